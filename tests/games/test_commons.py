"""Commons: regrowth, the best plan against every plan, reference returns of scripted harvesters, wordings."""

from fractions import Fraction
from functools import cache
from itertools import product
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coplay.games import Chance, GameParameterError, Malformed, Move, make_game
from coplay.games.commons import CommonsState, Regrowth, harvests

NAMES = ("Ada", "Bo", "Cy", "Di", "Ed")
HARVESTERS = ("greedy_harvester", "sustainable_harvester", "planning_harvester")


def move(amount: int) -> Move:
    return Move(value=amount, text=str(amount))


def best_by_trial(rule: Regrowth, stock: int, rounds: int) -> int:
    """The largest total harvest over every sequence of whole harvests."""

    @cache
    def value(stock: int, rounds: int) -> int:
        if not rounds:
            return 0
        return max(stock - left + value(rule.grown(left), rounds - 1) for left in range(stock + 1))

    return value(stock, rounds)


@given(
    capacity=st.integers(1, 14),
    growth=st.fractions(1, 5, max_denominator=8),
    share=st.floats(0, 1),
    rounds=st.integers(1, 7),
    data=st.data(),
)
def test_best_total_when_any_rule_then_the_largest_of_all_plans(
    capacity: int, growth: Fraction, share: float, rounds: int, data: st.DataObject
) -> None:
    """The closed form of the docstring against dynamic programming, and its plan against its total."""
    free = Regrowth(capacity=capacity, growth=growth, collapse_below=0)
    rule = Regrowth(capacity=capacity, growth=growth, collapse_below=int(share * free.sustainable))
    stock = data.draw(st.integers(0, capacity))
    assert rule.best_total(stock, rounds) == best_by_trial(rule, stock, rounds)
    total, left = 0, stock
    for remaining in range(rounds, 0, -1):
        harvest = rule.best_harvest(left, remaining)
        total, left = total + harvest, rule.grown(left - harvest)
    assert total == rule.best_total(stock, rounds)


def test_best_total_when_a_million_rounds_then_known_at_once() -> None:
    rule = Regrowth(capacity=100, growth=Fraction(2), collapse_below=5)
    assert rule.best_total(100, 10**6) == 50 * (10**6 - 1) + 100
    assert rule.best_total(30, 4) == 0 + 10 + 50 + 100, (
        "30 and 60 grow to 60 and 100 before the harvest is 50"
    )


REFERENCE = {
    ("greedy_harvester", "greedy_harvester"): (20, 20),
    ("greedy_harvester", "sustainable_harvester"): (100 * 100 / 140, 100 * 10 / 140),
    ("greedy_harvester", "planning_harvester"): (100 * 100 / 140, 100 * 10 / 140),
    ("sustainable_harvester", "sustainable_harvester"): (120, 120),
    ("sustainable_harvester", "planning_harvester"): (120, 130),
    ("planning_harvester", "planning_harvester"): (130, 130),
    ("sustainable_harvester", "greedy_harvester"): (100 * 10 / 410, 100 * 100 / 410),
    ("planning_harvester", "greedy_harvester"): (100 * 10 / 410, 100 * 100 / 410),
    ("planning_harvester", "sustainable_harvester"): (130, 120),
}
"""Totals of (Ada, each of the other four), Ada playing the first strategy and the others the second."""


@pytest.mark.parametrize(("one", "rest"), list(product(HARVESTERS, repeat=2)))
@pytest.mark.parametrize("wording", ["full", "terse"])
def test_returns_when_strategies_meet_then_the_reference(
    scripted: ModuleType, one: str, rest: str, wording: str
) -> None:
    """Capacity 100, doubling: 50 a round can be taken for ever; greed takes it all at once."""
    game = make_game("commons", wording=wording)
    agents = dict.fromkeys(NAMES, rest) | {"Ada": one}
    played = list(scripted.play(game, agents))
    sums = {player: sum(step.outcome.rewards[player] for step in played) for player in NAMES}
    own, others = REFERENCE[one, rest]
    assert sums == pytest.approx({"Ada": own} | dict.fromkeys(NAMES[1:], others))
    assert len(played) == (1 if "greedy_harvester" in (one, rest) else 12)
    best = sum(step.outcome.info["best_total"] for step in played)
    assert best == 650 == Regrowth(capacity=100, growth=Fraction(2), collapse_below=5).best_total(100, 12)
    reached = sum(sums.values()) == pytest.approx(best)
    assert reached == (one == rest == "planning_harvester") and sum(sums.values()) < best + 1e-9


@pytest.mark.parametrize("name", HARVESTERS)
def test_returns_when_one_is_random_then_the_exact_expectation(scripted: ModuleType, name: str) -> None:
    """Every claim of the random player is equally likely: play through `step` against the rule written down again."""
    capacity, rounds = 6, 3
    game = make_game("commons", players=("Ada", "Bo"), capacity=capacity, num_rounds=rounds, collapse_below=1)

    def claimed(stock: int, left: int) -> int:
        above = {"greedy_harvester": stock, "sustainable_harvester": max(0, stock - 3) // 2}
        return above.get(name, stock // 2 if left == 1 else max(0, stock - 3) // 2)

    def expected(stock: int, left: int) -> tuple[float, float]:
        if not left or not stock:
            return 0.0, 0.0
        sums = [0.0, 0.0]
        for other in range(capacity + 1):
            own = claimed(stock, left)
            share = stock / max(stock, own + other)
            later = expected(min(capacity, 2 * max(0, stock - own - other)), left - 1)
            sums[0] += (own * share + later[0]) / (capacity + 1)
            sums[1] += (other * share + later[1]) / (capacity + 1)
        return sums[0], sums[1]

    agent = scripted.seat_agents(game, {"Ada": name, "Bo": "random"}, 0)["Ada"]
    key = scripted.TurnKey(episode="0", branch="", player="Ada", step=1)
    totals, stack = [0.0, 0.0], [(game.initial_state(Chance(0)), 1.0)]
    while stack:
        state, share = stack.pop()
        if not game.to_move(state):
            continue
        observation = game.observe(state, "Ada")
        own = observation.grammar.parse(scripted.answer(agent, observation, key))
        for other in range(capacity + 1):
            after, outcome = game.step(state, {"Ada": own, "Bo": move(other)}, Chance(0))
            for seat, reward in enumerate(outcome.rewards.values()):
                totals[seat] += share / (capacity + 1) * reward
            stack.append((after, share / (capacity + 1)))
    assert tuple(totals) == pytest.approx(expected(capacity, rounds))


def test_efficiency_when_a_game_ends_early_then_measured_against_all_rounds() -> None:
    """`best_total` of the last step holds all rounds that were not played."""
    game = make_game("commons", players=("Ada", "Bo"))
    state = game.initial_state(Chance(0))
    state, first = game.step(state, {"Ada": move(30), "Bo": move(0)}, Chance(0, 1))
    assert (state.stock, first.info["best_total"], first.info["left"], first.terminated) == (
        100,
        50,
        70,
        False,
    )
    state, second = game.step(state, {"Ada": move(90), "Bo": move(6)}, Chance(0, 2))
    assert second.terminated and game.to_move(state) == () and state.stock == 0, "4 left collapse"
    assert second.rewards == {"Ada": 90.0, "Bo": 6.0} and second.info["agreed"] is True
    assert first.info["best_total"] + second.info["best_total"] == 650


@pytest.mark.parametrize(
    ("left", "after"), [(0, 0), (4, 0), (5, 7), (6, 9), (13, 19), (14, 20), (15, 20), (20, 20)]
)
def test_regrowth_when_units_are_left_then_rounded_down_capped_or_gone(left: int, after: int) -> None:
    rule = Regrowth(capacity=20, growth=Fraction(3, 2), collapse_below=5)
    assert rule.grown(left) == after and rule.sustainable == 14


@pytest.mark.parametrize("growth", [1.1, 1.3, 1.7, 2.3, 3.7])
def test_regrowth_when_growth_is_a_decimal_then_ten_units_grow_to_ten_times_it(growth: float) -> None:
    """1.7 is below 17/10 as a float: rounded down it would make 16."""
    rule = make_game("commons", growth=growth).parameters.regrowth()
    assert rule.grown(10) == round(10 * growth)


@given(st.integers(1, 50), st.lists(st.integers(0, 50), min_size=2, max_size=5))
def test_harvests_when_any_claims_then_within_claims_and_stock(stock: int, claims: list[int]) -> None:
    got = harvests(tuple(claims), stock)
    assert sum(got) == pytest.approx(min(stock, sum(claims)))
    assert all(units <= claim + 1e-9 for units, claim in zip(got, claims, strict=True))


def test_malformed_when_no_number_then_nothing_is_taken() -> None:
    game = make_game("commons", players=("Ada", "Bo"))
    state = game.initial_state(Chance(0))
    action = game.observe(state, "Ada").grammar.parse("<harvest>101</harvest>")
    assert isinstance(action, Malformed)
    state, outcome = game.step(state, {"Ada": action, "Bo": move(60)}, Chance(0, 1))
    assert outcome.rewards == {"Ada": 0.0, "Bo": 60.0}
    assert state == CommonsState(stock=80, best_stock=100, round=1, last=(0, 60), last_stock=100)
    assert outcome.info["agreed"] is False


def test_texts_when_a_round_was_played_then_stock_claims_and_harvests() -> None:
    parameters = {"players": ("Ada", "Bo", "Cy"), "capacity": 40, "collapse_below": 0}
    full, terse = make_game("commons", **parameters), make_game("commons", wording="terse", **parameters)
    state = CommonsState(stock=20, best_stock=40, round=1, last=(30, 20, 10), last_stock=40)
    assert terse.observe(state, "Bo").text == "30 10 20"
    assert terse.observe(full.initial_state(Chance(0)), "Bo").text == "go 40"
    assert terse.observe(state, "Bo").system == "items 40 take 0 - 40 m 2 high 40 low 0 n 3 x 12"
    assert full.observe(state, "Bo").text == (
        "Round 2 of 12. Last round Ada claimed 30 and got 20, you claimed 20 and got 13.33, Cy claimed 10 and got 6.67."
        " The stock is 20. Your claim?"
    )
    assert (
        "collapse" not in full.observe(state, "Bo").system and "gone" not in full.observe(state, "Bo").system
    )
    assert "fewer than 5 units" in make_game("commons").observe(CommonsState(100, 100), "Ada").system


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"growth": 0.5}, "growth"),
        ({"initial_stock": 101}, "no more than the capacity"),
        ({"collapse_below": 51}, "at most 50"),
        ({"capacity": 0}, "capacity"),
    ],
)
def test_parameters_when_they_do_not_fit_then_one_sentence(parameters: dict[str, Any], told: str) -> None:
    with pytest.raises(GameParameterError) as caught:
        make_game("commons", **parameters)
    assert told in str(caught.value) and "\n" not in str(caught.value)
