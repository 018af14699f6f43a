"""Bargaining by proposals and messages: luck, acceptance, secrecy, exact returns."""

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from types import ModuleType
from typing import Any

import pytest

from coplay.agents.scripted_negotiation import acceptable, wish
from coplay.games import Chance, GameParameterError, make_game
from coplay.games.bargaining import BargainingState, worth
from coplay.games.bargaining_parameters import BargainingParameters

STRATEGIES = ("greedy", "fair", "lenient", "hardliner")
SMALL: dict[str, Any] = {"items": ("hats", "balls"), "max_count": 2, "max_value": 2, "messages": "none"}
Bundle = tuple[int, ...]


def small_states() -> Iterator[tuple[Fraction, Bundle, tuple[Bundle, Bundle]]]:
    """Chance, counts and values of every start of the small game."""
    vectors = list(product(range(3), repeat=2))
    pools = [counts for counts in vectors if any(counts)]
    for counts in pools:
        own = [values for values in vectors if worth(counts, values)]
        for pair in product(own, repeat=2):
            yield Fraction(1, len(pools) * len(own) ** 2), counts, (pair[0], pair[1])


def settled(
    first: str, second: str, counts: Bundle, values: tuple[Bundle, Bundle]
) -> tuple[Fraction, Fraction]:
    """The second takes what the first leaves if it is enough, else the first what the second leaves, else none."""
    totals = [worth(counts, own) for own in values]
    wishes = [wish(name, counts, own) for name, own in zip((first, second), values, strict=True)]
    for taker, name in ((1, second), (0, first)):
        proposal = wishes[1 - taker]
        rest = tuple(n - p for n, p in zip(counts, proposal, strict=True))
        if acceptable(name, worth(rest, values[taker]), totals[taker]):
            paid = [Fraction(0), Fraction(0)]
            paid[taker] = Fraction(worth(rest, values[taker]), totals[taker])
            paid[1 - taker] = Fraction(worth(proposal, values[1 - taker]), totals[1 - taker])
            return paid[0], paid[1]
    return Fraction(0), Fraction(0)


RETURNS = {
    ("greedy", "fair"): (Fraction(1519, 3840), Fraction(503, 1280)),
    ("greedy", "lenient"): (Fraction(1519, 3840), Fraction(503, 1280)),
    ("fair", "greedy"): (Fraction(503, 1280), Fraction(1519, 3840)),
    ("fair", "fair"): (Fraction(1001, 2560), Fraction(203, 480)),
    ("fair", "lenient"): (Fraction(3041, 7680), Fraction(409, 960)),
    ("fair", "hardliner"): (Fraction(127, 1536), Fraction(451, 3840)),
    ("lenient", "greedy"): (Fraction(503, 1280), Fraction(1519, 3840)),
    ("lenient", "fair"): (Fraction(1009, 2560), Fraction(1643, 3840)),
    ("lenient", "lenient"): (Fraction(3053, 7680), Fraction(823, 1920)),
    ("lenient", "hardliner"): (Fraction(127, 1536), Fraction(451, 3840)),
    ("hardliner", "fair"): (Fraction(451, 3840), Fraction(127, 1536)),
    ("hardliner", "lenient"): (Fraction(451, 3840), Fraction(127, 1536)),
}


@pytest.mark.parametrize(("row", "column"), list(product(STRATEGIES, repeat=2)))
def test_returns_when_strategies_meet_then_the_exact_mean(row: str, column: str) -> None:
    """Over all starts of the small game, the row moves first."""
    sums = [Fraction(0), Fraction(0)]
    for chance, counts, values in small_states():
        for seat, paid in enumerate(settled(row, column, counts, values)):
            sums[seat] += chance * paid
    assert tuple(sums) == RETURNS.get((row, column), (0, 0))


@pytest.mark.parametrize(("row", "column"), list(product(STRATEGIES, repeat=2)))
@pytest.mark.parametrize("parameters", [{}, {"wording": "terse", "messages": "symbols", "num_symbols": 1}])
def test_returns_when_played_then_what_the_rule_says(
    scripted: ModuleType, row: str, column: str, parameters: dict[str, Any]
) -> None:
    """Through texts, grammars and agents, in every ninth start."""
    game = make_game("bargaining", **SMALL | parameters)
    for _, counts, values in list(small_states())[::9]:
        state = BargainingState(0, counts, values, 4, 0)
        paid = scripted.play_from(game, state, {"Ada": row, "Bo": column})
        assert tuple(paid.values()) == pytest.approx(settled(row, column, counts, values))


def test_turns_when_drawn_then_poisson_from_four_to_ten() -> None:
    """P(n) ∝ 7ⁿ/n!, so P(n)/P(n-1) = 7/n."""
    chances = BargainingParameters().turn_chances()
    assert len(chances) == 7 and sum(chances) == pytest.approx(1)
    for place in range(1, 7):
        assert chances[place] / chances[place - 1] == pytest.approx(7 / (4 + place))
    game = make_game("bargaining")
    seen = Counter(game.initial_state(Chance(seed)).num_turns for seed in range(4000))
    assert set(seen) == set(range(4, 11))
    for place, share in enumerate(chances):
        assert abs(seen[4 + place] - 4000 * share) < 5 * (4000 * share) ** 0.5


def test_draws_when_many_then_uniform_pools_and_values_worth_something() -> None:
    game = make_game("bargaining", items=("hats",), max_count=2, max_value=2, players=("Cy", "Di"))
    seen = Counter()
    for seed in range(4000):
        state = game.initial_state(Chance(seed))
        seen[state.counts[0], state.values[0][0], state.values[1][0]] += 1
    assert set(seen) == set(product((1, 2), repeat=3))
    assert all(abs(count - 500) < 5 * 500**0.5 for count in seen.values())


def start(**changes: Any) -> BargainingState:
    given: dict[str, Any] = {
        "round": 0,
        "counts": (2, 0, 3),
        "values": ((1, 9, 2), (4, 0, 0)),
        "num_turns": 3,
        "first": 0,
    }
    return BargainingState(**given | changes)


def say(game: Any, state: BargainingState, text: str) -> Any:
    (player,) = game.to_move(state)
    return game.step(state, {player: game.observe(state, player).grammar.parse(text)}, Chance(0, 1))


@pytest.mark.parametrize(("reward", "pay"), [("fraction", (6 / 8, 8 / 8)), ("raw", (6.0, 8.0))])
def test_step_when_a_proposal_is_accepted_then_paid_by_ones_own_values(
    reward: str, pay: tuple[float, float]
) -> None:
    game = make_game("bargaining", reward=reward)
    state, outcome = say(game, start(), "I need balls")
    assert game.to_move(state) == ("Ada",) and not outcome.round_ended
    state, outcome = say(game, state, "<proposal>0 books 0 hats 3 balls</proposal>")
    assert game.to_move(state) == ("Bo",)
    seen = game.observe(state, "Bo")
    assert 'Ada says: "I need balls"' in seen.text and "leaves you 2 books, 0 hats, 0 balls" in seen.text
    state, _ = say(game, state, "fine")
    state, outcome = say(game, state, "<answer>accept</answer>")
    assert tuple(outcome.rewards.values()) == pytest.approx(pay)
    assert outcome.terminated and outcome.info["agreed"] and outcome.info["num_turns"] == 2
    assert outcome.info["best_total"] == pytest.approx(sum(pay))
    assert pay in [pytest.approx(each) for each in zip(*outcome.info["efficient"].values(), strict=True)]


def test_step_when_turns_are_over_then_nobody_is_paid() -> None:
    game = make_game("bargaining", messages="none")
    state = start(num_turns=2)
    state, outcome = say(game, state, "<proposal>2 books 0 hats 3 balls</proposal>")
    assert not outcome.round_ended
    state, outcome = say(game, state, "<proposal>2 books 0 hats 0 balls</proposal>")
    assert outcome.terminated and set(outcome.rewards.values()) == {0.0} and not outcome.info["agreed"]


def test_malformed_when_a_move_is_wanted_then_no_proposal_stands() -> None:
    game = make_game("bargaining", messages="none")
    state, outcome = say(game, start(), "<proposal>3 books 0 hats 3 balls</proposal>")
    assert outcome.info["proposal"] is None
    seen = game.observe(state, "Bo")
    assert not seen.facts["accepts"] and "<answer>" not in seen.grammar.describe()


def test_proposals_when_not_shown_then_bind_unseen() -> None:
    game = make_game("bargaining", messages="none", show_proposals=False)
    state, _ = say(game, start(), "<proposal>0 books 0 hats 3 balls</proposal>")
    seen = game.observe(state, "Bo")
    assert "offer" not in seen.facts and "leaves" not in seen.text
    assert say(game, state, "<answer>accept</answer>")[1].rewards == {"Ada": 0.75, "Bo": 1.0}


def test_observation_when_what_is_hidden_changes_then_the_same() -> None:
    """Neither the other's values nor the number of turns is told."""
    game = make_game("bargaining")
    seen = game.observe(start(), "Ada")
    assert seen == game.observe(start(values=((1, 9, 2), (0, 7, 7)), num_turns=9), "Ada")
    assert game.private(start(), "Bo") == {"values": {"books": 4, "hats": 0, "balls": 0}}


def test_symbols_when_said_then_heard_and_anything_else_is_silence() -> None:
    game = make_game("bargaining", messages="symbols", num_symbols=3, alphabet_size=4)
    for text, heard in (("3 0 1", "3 0 1"), ("3 0 4", ""), ("hello", "")):
        state, _ = say(game, start(), text)
        assert state.message == heard
    assert len(game.observe(start(), "Ada").grammar.labels()) == 64


@pytest.mark.parametrize(
    "parameters", [{"min_turns": 5, "max_turns": 4}, {"answer_tag": "proposal"}, {"items": ("a b",)}]
)
def test_parameters_when_they_do_not_fit_then_refused(parameters: dict[str, Any]) -> None:
    with pytest.raises(GameParameterError):
        make_game("bargaining", **parameters)
