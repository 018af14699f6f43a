"""Deal or no deal: instances, deals, secrecy, reference returns."""

from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from coplay.agents.scripted_negotiation import LEAST, acceptable, wish
from coplay.games import Chance, GameParameterError, Malformed, Move, make_game
from coplay.games.best_outcomes import efficient_points, split_points
from coplay.games.deal_instances import DealInstance, all_instances, load_instances
from coplay.games.deal_or_no_deal import DealState

ITEMS = ("books", "hats", "balls")
STRATEGIES = tuple(LEAST)


def dot(bundle: tuple[int, ...], values: tuple[int, ...]) -> int:
    return sum(n * v for n, v in zip(bundle, values, strict=True))


def rest(counts: tuple[int, ...], bundle: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n - b for n, b in zip(counts, bundle, strict=True))


def mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers)


def test_instances_when_enumerated_then_the_published_constraints_and_their_number() -> None:
    """31 pools, 5,793 ordered instances."""
    instances = all_instances()
    assert len(instances) == len(set(instances)) == 5793
    assert len({each.counts for each in instances}) == 31
    for each in instances:
        assert 5 <= sum(each.counts) <= 7 and min(each.counts) >= 1
        assert dot(each.counts, each.values[0]) == dot(each.counts, each.values[1]) == 10
        columns = list(zip(*each.values, strict=True))
        assert all(map(any, columns)) and any(map(all, columns))
    assert {each.swapped() for each in instances} == set(instances)


def test_splits_when_all_instances_then_the_reference_means() -> None:
    """Joint value 15.0637, Nash product 55.6603, greatest minimum 6.5614; a random split pays 5 each."""
    tables = [split_points(each.counts, each.values) for each in all_instances()]
    assert mean([max(a + b for a, b in table) for table in tables]) == pytest.approx(15.0637, abs=5e-5)
    assert mean([max(a * b for a, b in table) for table in tables]) == pytest.approx(55.6603, abs=5e-5)
    assert mean([max(min(pair) for pair in table) for table in tables]) == pytest.approx(6.5614, abs=5e-5)
    assert all(mean([a for a, _ in table]) == mean([b for _, b in table]) == 5 for table in tables)
    assert all((10.0, 10.0) not in table for table in tables)


def test_efficient_points_when_compared_in_pairs_then_the_same() -> None:
    for each in all_instances()[::200]:
        points = set(split_points(each.counts, each.values))
        best = {p for p in points if not any(q != p and q[0] >= p[0] and q[1] >= p[1] for q in points)}
        assert set(efficient_points(points)) == best


def proposed(strategy: str, other: str, each: DealInstance) -> tuple[int, int]:
    """Pay of one offer, to be accepted or rejected."""
    own = wish(strategy, each.counts, each.values[0])
    left = dot(rest(each.counts, own), each.values[1])
    return (dot(own, each.values[0]), left) if acceptable(other, left, 10) else (0, 0)


def talked(first: str, second: str, each: DealInstance) -> tuple[int, int]:
    """Both say what they take; either may take what the other leaves; else both hold on."""
    one, two = (wish(name, each.counts, own) for name, own in zip((first, second), each.values, strict=True))
    if acceptable(second, dot(rest(each.counts, one), each.values[1]), 10):
        return dot(one, each.values[0]), dot(rest(each.counts, one), each.values[1])
    if acceptable(first, dot(rest(each.counts, two), each.values[0]), 10) or two == rest(each.counts, one):
        return dot(rest(each.counts, two), each.values[0]), dot(two, each.values[1])
    return 0, 0


SEQUENTIAL = {
    ("fair", "greedy"): (33192, 36665),
    ("fair", "fair"): (26541, 33109),
    ("fair", "lenient"): (29619, 35213),
    ("fair", "hardliner"): (14061, 20224),
    ("fair", "bayesian"): (26541, 33109),
    ("lenient", "greedy"): (33192, 36665),
    ("lenient", "fair"): (26541, 33109),
    ("lenient", "lenient"): (29619, 35213),
    ("lenient", "hardliner"): (14061, 20224),
    ("lenient", "bayesian"): (26541, 33109),
    ("bayesian", "greedy"): (40278, 37584),
    ("bayesian", "fair"): (32271, 34044),
    ("bayesian", "lenient"): (36306, 36300),
    ("bayesian", "hardliner"): (14619, 19326),
    ("bayesian", "bayesian"): (32271, 34044),
}
"""Sums over all 5,793 instances, the one who offers first; greedy and hardliner ask for all and get nothing."""
TALKED = {
    ("greedy", "fair"): (36665, 33192),
    ("greedy", "lenient"): (36665, 33192),
    ("greedy", "bayesian"): (37584, 40278),
    ("fair", "greedy"): (33192, 36665),
    ("fair", "fair"): (33586, 40309),
    ("fair", "lenient"): (34524, 40511),
    ("fair", "hardliner"): (14061, 20224),
    ("fair", "bayesian"): (32158, 40429),
    ("lenient", "greedy"): (33192, 36665),
    ("lenient", "fair"): (34334, 41579),
    ("lenient", "lenient"): (34892, 41223),
    ("lenient", "hardliner"): (14061, 20224),
    ("lenient", "bayesian"): (33258, 42516),
    ("hardliner", "fair"): (20224, 14061),
    ("hardliner", "lenient"): (20224, 14061),
    ("hardliner", "bayesian"): (19326, 14619),
    ("bayesian", "greedy"): (40278, 37584),
    ("bayesian", "fair"): (36551, 38516),
    ("bayesian", "lenient"): (38843, 39187),
    ("bayesian", "hardliner"): (14619, 19326),
    ("bayesian", "bayesian"): (34698, 37236),
}


@pytest.mark.parametrize(("row", "column"), list(product(STRATEGIES, repeat=2)))
@pytest.mark.parametrize(("rule", "table"), [(proposed, SEQUENTIAL), (talked, TALKED)])
def test_returns_when_strategies_meet_then_the_sums_over_all_instances(
    row: str, column: str, rule: Any, table: dict[tuple[str, str], tuple[int, int]]
) -> None:
    paid = [rule(row, column, each) for each in all_instances()]
    assert (sum(a for a, _ in paid), sum(b for _, b in paid)) == table.get((row, column), (0, 0))


@pytest.mark.parametrize(("row", "column"), list(product(STRATEGIES, repeat=2)))
@pytest.mark.parametrize(
    ("rule", "parameters"),
    [
        (proposed, {"final_deal": "sequential", "max_messages": 0, "wording": "terse"}),
        (talked, {"max_messages": 4}),
    ],
)
def test_returns_when_played_then_what_the_rule_says(
    scripted: ModuleType, row: str, column: str, rule: Any, parameters: dict[str, Any]
) -> None:
    """Through texts, grammars and agents, in every hundredth instance."""
    game = make_game("deal_or_no_deal", **parameters)
    for each in all_instances()[::100]:
        state = DealState(0, each.counts, each.values, 0)
        paid = scripted.play_from(game, state, {"Ada": row, "Bo": column})
        assert tuple(paid.values()) == rule(row, column, each)


@pytest.mark.parametrize(("other", "expected"), [("lenient", 6.5987), ("fair", 5.5707)])
def test_offer_when_it_pays_best_on_average_then_the_reference(other: str, expected: float) -> None:
    """The Bayes-optimal offer of one who knows his own values only, against thresholds of 4 and 5."""
    groups: dict[Any, list[tuple[int, ...]]] = {}
    for each in all_instances():
        groups.setdefault((each.counts, each.values[0]), []).append(each.values[1])
    total = 0
    for (counts, own), others in groups.items():
        total += max(
            dot(bundle, own)
            * sum(acceptable(other, dot(rest(counts, bundle), theirs), 10) for theirs in others)
            for bundle in product(*(range(n + 1) for n in counts))
        )
    assert total / 5793 == pytest.approx(expected, abs=5e-5)
    if other == "fair":
        assert total == SEQUENTIAL["bayesian", "fair"][0]


def start(game: Any, counts: tuple[int, ...] = (1, 2, 3)) -> DealState:
    return DealState(0, counts, ((1, 3, 1), (4, 0, 2)), 0)


def say(game: Any, state: DealState, text: str) -> Any:
    (player,) = game.to_move(state)
    return game.step(state, {player: game.observe(state, player).grammar.parse(text)}, Chance(0, 1))


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        ("<deal>1 books 0 hats 2 balls</deal>", (7.0, 8.0)),
        ("<deal>1 books 0 hats 1 balls</deal>", (0.0, 0.0)),
        ("<deal>1 books 1 hats 2 balls</deal>", (0.0, 0.0)),
        ("<deal>1 books 3 hats 2 balls</deal>", (0.0, 0.0)),
        ("whatever is left", (0.0, 0.0)),
    ],
)
def test_deal_when_claims_are_exactly_what_there_is_then_paid_else_nothing(
    second: str, expected: tuple[float, float]
) -> None:
    game = make_game("deal_or_no_deal")
    state, outcome = say(game, start(game), "Fine: <deal>0 books 2 hats 1 balls</deal>")
    assert not outcome.round_ended and game.to_move(state) == ("Bo",)
    seen = game.observe(state, "Bo")
    assert seen.facts["closed"] and "offer" not in seen.facts
    assert "2 hats 1 balls" not in seen.text
    state, outcome = say(game, state, second)
    assert tuple(outcome.rewards.values()) == expected and outcome.terminated
    assert outcome.info["agreed"] is (expected != (0.0, 0.0))
    assert outcome.info["best_total"] == 16.0
    assert (6, 10) in zip(*outcome.info["efficient"].values(), strict=True)


@pytest.mark.parametrize(
    ("answer", "expected"), [("accept", (7.0, 8.0)), ("reject", (0.0, 0.0)), ("hm", (0.0, 0.0))]
)
def test_sequential_when_answered_then_the_rest_or_nothing(
    answer: str, expected: tuple[float, float]
) -> None:
    game = make_game("deal_or_no_deal", final_deal="sequential", answer_tag=None)
    state, _ = say(game, start(game), "<deal>0 books 2 hats 1 balls</deal>")
    assert game.observe(state, "Bo").facts["offer"] == {"books": 1, "hats": 0, "balls": 2}
    assert tuple(say(game, state, answer)[1].rewards.values()) == expected


def test_talk_when_messages_are_used_up_then_a_claim_is_asked_for() -> None:
    game = make_game("deal_or_no_deal", max_messages=1, max_message_characters=5)
    state, _ = say(game, start(game), "<think>3 balls</think>Hello Bo")
    seen = game.observe(state, "Bo")
    assert seen.facts["heard"] == ["Hello"] and seen.facts["phase"] == "deal"
    assert isinstance(seen.grammar.parse("a message"), Malformed)
    state, outcome = say(game, state, "a message")
    assert outcome.terminated and outcome.info["claims"] == {} and not outcome.info["agreed"]


def test_talk_when_a_claim_is_no_claim_then_silence() -> None:
    game = make_game("deal_or_no_deal")
    state, outcome = say(game, start(game), "<deal>9 books 0 hats 0 balls</deal>")
    assert outcome.info["phase"] == "talk" and state.said == ("",)
    assert "Ada says nothing." in game.observe(state, "Bo").text


def test_observation_when_the_others_values_change_then_the_same() -> None:
    """The predecessor showed the partner's current values."""
    game = make_game("deal_or_no_deal", num_rounds=2)
    one = DealState(1, (1, 2, 3), ((1, 3, 1), (4, 0, 2)), 0, last_agreed=True, last_points=(5, 6))
    other = DealState(1, (1, 2, 3), ((1, 3, 1), (0, 5, 0)), 0, last_agreed=True, last_points=(5, 9))
    assert game.observe(one, "Ada") == game.observe(other, "Ada")
    assert game.private(one, "Bo") == {"values": {"books": 4, "hats": 0, "balls": 2}}


def test_draws_when_many_seeds_then_over_all_and_whose_values_are_whose_by_lot(tmp_path: Path) -> None:
    path = tmp_path / "one.txt"
    path.write_text("1 4 2 0 3 2\n1 1 2 3 3 1\n", encoding="utf-8")
    game = make_game("deal_or_no_deal", instances=str(path))
    drawn = {game.initial_state(Chance(seed)).values for seed in range(30)}
    assert drawn == {((4, 0, 2), (1, 3, 1)), ((1, 3, 1), (4, 0, 2))}
    usual = make_game("deal_or_no_deal")
    assert len({usual.initial_state(Chance(seed)).counts for seed in range(600)}) == 31


DIALOGUE = (
    "<input> 1 4 2 0 3 2 </input> <dialogue> YOU: i want the book <eos> THEM: deal <eos> YOU: <selection>"
    " </dialogue> <output> item0=1 item1=0 item2=2 item0=0 item1=2 item2=1 </output>"
    " <partner_input> 1 1 2 3 3 1 </partner_input>"
)


def test_load_when_dialogues_or_contexts_then_each_instance_once(tmp_path: Path) -> None:
    expected = DealInstance((1, 2, 3), ((4, 0, 2), (1, 3, 1)))
    dialogues, contexts = tmp_path / "train.txt", tmp_path / "selfplay.txt"
    dialogues.write_text(f"{DIALOGUE}\n\n{DIALOGUE}\n", encoding="utf-8")
    contexts.write_text("1 4 2 0 3 2\n1 1 2 3 3 1\n4 0 1 1 1 9\n4 1 1 6 1 0\n", encoding="utf-8")
    assert load_instances(dialogues) == (expected,)
    assert load_instances(contexts) == (expected, DealInstance((4, 1, 1), ((0, 1, 9), (1, 6, 0))))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no line"),
        ("1 4 2 0 3 2\n", "even number"),
        ("1 4 2 0 3 2\n2 1 2 3 3 1\n", "the same for both"),
        ("1 4 2 0 3\n1 1 2 3 3 1\n", "line 1"),
        (f"{DIALOGUE}\nno input\n", "line 2"),
        (DIALOGUE.replace("1 4 2", "1 x 2"), "line 1"),
    ],
)
def test_load_when_the_file_is_wrong_then_one_sentence(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "data.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=told):
        load_instances(path)


@pytest.mark.parametrize(
    "parameters",
    [
        {"players": ("Ada", "Bo", "Cy")},
        {"items": ("books", "hats")},
        {"items": ("books", "hats", "red balls")},
        {"message_tag": "deal"},
    ],
)
def test_parameters_when_they_do_not_fit_then_refused(parameters: dict[str, Any]) -> None:
    with pytest.raises(GameParameterError):
        make_game("deal_or_no_deal", **parameters)


def test_move_when_a_claim_is_only_discussed_then_a_message() -> None:
    game = make_game("deal_or_no_deal")
    action = game.observe(start(game), "Ada").grammar.parse("How about 1 books 0 hats 0 balls?")
    assert isinstance(action, Move) and action.value == {"message": "How about 1 books 0 hats 0 balls?"}
