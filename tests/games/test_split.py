"""Split without communication: payout, value generators, reference returns."""

from collections import Counter
from itertools import product
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coplay.games import Chance, GameParameterError, Malformed, Move, make_game
from coplay.games.split import SplitState, pay, shares
from coplay.games.split_values import ValueRule, acceptance, draw_values

ITEMS = ("hats", "books", "balls")


def states() -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The 12 equally likely pairs of values of the default game."""
    vectors = list(product((1, 10), repeat=3))
    return [(a, b) for a in vectors for b in vectors if a != b and sum(a) == sum(b)]


def test_values_when_default_then_the_twelve_states_equally_often() -> None:
    """Law 7."""
    rule = make_game("split").parameters.value_rule()
    seen = Counter(draw_values(rule, Chance(seed)) for seed in range(6000))
    assert set(seen) == set(states()) and len(seen) == 12
    assert all(abs(count - 500) < 5 * 500**0.5 for count in seen.values())


@pytest.mark.parametrize(
    ("row", "column", "expected"),
    [
        ("welfare_maximising", "welfare_maximising", (127.5, 127.5)),
        ("greedy", "greedy", (82.5, 82.5)),
        ("fair", "fair", (82.5, 82.5)),
        ("welfare_maximising", "greedy", (68.3333, 141.6667)),
        ("welfare_maximising", "fair", (94.1667, 80.8333)),
        ("greedy", "fair", (110, 55)),
    ],
)
@pytest.mark.parametrize("wording", ["full", "terse"])
def test_returns_when_strategies_meet_then_the_exact_reference(
    scripted: ModuleType, row: str, column: str, expected: tuple[float, float], wording: str
) -> None:
    """By enumeration of the 12 states, through texts and grammars."""
    game = make_game("split", num_rounds=1, wording=wording)
    seats = scripted.seat_agents(game, {"Ada": row, "Bo": column}, 0)
    sums = {"Ada": 0.0, "Bo": 0.0}
    for values in states():
        state = SplitState(0, values)
        actions = {}
        for player, agent in seats.items():
            seen = game.observe(state, player)
            key = scripted.TurnKey(episode="0", branch="", player=player, step=1)
            actions[player] = seen.grammar.parse(scripted.answer(agent, seen, key))
        for player, reward in game.step(state, actions, Chance(0, 1))[1].rewards.items():
            sums[player] += reward / 12
    assert tuple(sums.values()) == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ("random", (67.5, 67.5)),
        ("greedy", (49.6843, 115.3157)),
        ("fair", (68.3054, 74.1946)),
        ("welfare_maximising", (75.7797, 94.6198)),
    ],
)
def test_returns_when_one_is_random_then_the_exact_expectation(
    other: str, expected: tuple[float, float]
) -> None:
    """67.5 for two: items are independent, so the mean over one item's values and claims is enough.

    Of the 36 item values of the twelve states 12 are equal, half of these at 10; the rest are 10 to one and 1 to the
    other.
    """
    pairs = Counter(pair for state in states() for pair in zip(*state, strict=True))
    assert pairs == {(1, 10): 12, (10, 1): 12, (1, 1): 6, (10, 10): 6}
    sums = [0.0, 0.0]
    for (own, theirs), number in pairs.items():
        claims = {
            "random": [*range(11)],
            "greedy": [10],
            "fair": [5],
            "welfare_maximising": [5 if own == theirs else 10 * (theirs > own)],
        }[other]
        for one, two in product(range(11), claims):
            for seat, points in enumerate(pay(((one,), (two,)), ((own,), (theirs,)), 10)):
                sums[seat] += number / 12 * points / 11 / len(claims)
    assert tuple(sums) == pytest.approx(expected, abs=5e-5)


def test_returns_when_both_are_random_then_near_the_reference(scripted: ModuleType) -> None:
    """67.5 a round."""
    game = make_game("split", wording="terse")
    rounds = [
        step.outcome.rewards
        for seed in range(150)
        for step in scripted.play(game, {"Ada": "random", "Bo": "random"}, seed=seed)
    ]
    assert sum(r["Ada"] + r["Bo"] for r in rounds) / (2 * len(rounds)) == pytest.approx(67.5, abs=1.5)


@given(
    st.integers(1, 20), st.lists(st.lists(st.integers(0, 20), min_size=2, max_size=2), min_size=2, max_size=5)
)
def test_shares_when_any_claims_then_within_stock_and_claims(stock: int, claims: list[list[int]]) -> None:
    """q_i = stock·c_i / max(stock, Σ c): claims within the stock are met exactly, larger ones share all of it."""
    table = tuple(tuple(min(claim, stock) for claim in own) for own in claims)
    got = shares(table, stock)
    for item in range(2):
        total = sum(own[item] for own in table)
        assert sum(own[item] for own in got) == pytest.approx(min(stock, total))
        if total <= stock:
            assert [own[item] for own in got] == [own[item] for own in table]
    values = tuple((3, 5) for _ in table)
    assert pay(table, values, stock) == tuple(pytest.approx(3 * own[0] + 5 * own[1]) for own in got)


RULES = [
    ("ten_one_ties", 2, 3, True, True, 12 / 64),
    ("ten_one_ties", 2, 3, False, False, 1.0),
    ("ten_one_ties", 2, 1, True, True, 0.0),
    ("ten_one_exclusive", 2, 3, True, True, 0.0),
    ("ten_one_exclusive", 2, 4, True, False, 6 / 16),
    ("ten_one_exclusive", 3, 3, True, True, 6 / 27),
    ("one_to_twenty", 2, 1, True, False, 1 / 20),
]


@pytest.mark.parametrize(("generator", "players", "items", "equal", "conflict", "share"), RULES)
def test_acceptance_when_conditions_then_the_exact_share(
    generator: Any, players: int, items: int, equal: bool, conflict: bool, share: float
) -> None:
    rule = ValueRule(
        generator=generator,
        num_players=players,
        num_items=items,
        equal_totals=equal,
        at_least_one_conflict=conflict,
    )
    assert acceptance(rule) == pytest.approx(share)


@pytest.mark.parametrize("generator", ["ten_one_exclusive", "ten_one_ties", "one_to_twenty"])
@pytest.mark.parametrize("players", [2, 3])
@pytest.mark.parametrize("equal", [True, False])
def test_values_when_drawn_then_generator_and_conditions_hold(
    generator: str, players: int, equal: bool
) -> None:
    items = ("hats", "books", "balls", "pens", "cups", "rings")
    names = ("Ada", "Bo", "Cy")[:players]
    game = make_game("split", value_generator=generator, players=names, items=items, equal_totals=equal)
    lows, highs = Counter[int](), Counter[int]()
    for seed in range(60):
        values = game.initial_state(Chance(seed)).values
        assert len(values) == players and len(set(values)) > 1
        assert not equal or len({sum(own) for own in values}) == 1
        for own in values:
            lows.update(value for value in own if value < 10)
            highs.update(value for value in own if value >= 10)
        if generator == "ten_one_exclusive":
            assert all(sorted(column) == [1] * (players - 1) + [10] for column in zip(*values, strict=True))
    if generator == "one_to_twenty":
        assert set(lows) | set(highs) == set(range(1, 21))
    else:
        assert set(lows) == {1} and set(highs) == {10}


@pytest.mark.parametrize(
    ("generator", "told"),
    [
        ("ten_one_exclusive", "10 a unit for exactly one player"),
        ("ten_one_ties", "10 or 1 a unit"),
        ("one_to_twenty", "1 to 20 a unit"),
    ],
)
def test_wording_when_values_are_explained_then_the_true_range(generator: str, told: str) -> None:
    """The reference always said 1 to 20."""
    game = make_game("split", value_generator=generator, equal_totals=False)
    system = game.observe(game.initial_state(Chance(0)), "Ada").system
    assert told in system
    assert sum(other in system for other in ("exactly one player", "10 or 1", "1 to 20")) == 1


def test_malformed_when_proposal_is_no_move_then_claims_nothing() -> None:
    game = make_game("split")
    state = game.initial_state(Chance(0))
    action = game.observe(state, "Ada").grammar.parse("I want everything")
    assert isinstance(action, Malformed)
    greedy = Move(value=dict.fromkeys(ITEMS, 10), text="")
    outcome = game.step(state, {"Ada": action, "Bo": greedy}, Chance(0, 1))[1]
    assert outcome.info["claims"]["Ada"] == dict.fromkeys(ITEMS, 0)
    assert outcome.rewards == {"Ada": 0.0, "Bo": 10.0 * sum(state.values[1])}


def test_values_when_next_round_then_drawn_afresh_and_free_of_the_claims() -> None:
    """Law 7: luck does not depend on what was done."""
    game = make_game("split", num_rounds=3)
    state = game.initial_state(Chance(5))
    all_of_it, nothing = (Move(value=dict.fromkeys(ITEMS, claim), text="") for claim in (10, 0))
    one = game.step(state, {"Ada": all_of_it, "Bo": nothing}, Chance(5, 1))[0]
    other = game.step(state, {"Ada": nothing, "Bo": nothing}, Chance(5, 1))[0]
    assert one.values == other.values
    assert (
        len(
            {
                game.step(state, {"Ada": nothing, "Bo": nothing}, Chance(seed, 1))[0].values
                for seed in range(30)
            }
        )
        > 5
    )


def test_terse_text_when_played_then_others_claims_and_values_alone() -> None:
    game = make_game("split", wording="terse")
    state = SplitState(1, ((10, 1, 1), (1, 1, 10)), ((10, 5, 0), (10, 10, 9)), ((1, 10, 1), (10, 1, 1)))
    assert game.observe(state, "Ada").text == "10 10 9 10 1 1 1 1 10"
    assert game.observe(state, "Bo").text == "10 5 0 1 1 10 10 1 1"


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"value_generator": "ten_one_exclusive"}, "equal_totals"),
        ({"items": ("hats",)}, "at_least_one_conflict"),
        ({"value_generator": "one_to_twenty", "players": tuple("abcdef")}, "share of"),
        ({"items": ("two words", "books")}, "single words"),
        ({"items": ("hats", "hats")}, "all different"),
        ({"stock": 0}, "stock"),
    ],
)
def test_parameters_when_they_do_not_fit_then_one_sentence(parameters: dict[str, Any], told: str) -> None:
    with pytest.raises(GameParameterError) as caught:
        make_game("split", **parameters)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
