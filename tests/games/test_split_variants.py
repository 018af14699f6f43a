"""The published variants of the split games: the exchange game of Advantage Alignment, and no-press trust-and-split."""

from itertools import product
from types import ModuleType
from typing import Any

import pytest

from coplay.games import Chance, Move, make_game
from coplay.games.split import SplitState, pay

EXCHANGE: dict[str, Any] = {
    "value_generator": "five_one_exclusive",
    "equal_totals": False,
    "stock": 5,
    "reward_divisor": 75,
    "num_rounds": 50,
}
PROPOSALS = ("welfare_maximising", "greedy", "random")


def owners() -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The eight equally likely pairs of values."""
    firsts = product((1, 5), repeat=3)
    return [(own, tuple(6 - value for value in own)) for own in firsts]


def claims_of(name: str, own: int) -> list[int]:
    """What a strategy claims of an item of this value, each equally likely."""
    return {"welfare_maximising": [5 if own == 5 else 0], "greedy": [5], "random": [*range(6)]}[name]


@pytest.mark.parametrize(
    ("row", "column", "expected"),
    [
        ("welfare_maximising", "welfare_maximising", (0.5, 0.5)),
        ("greedy", "greedy", (0.3, 0.3)),
        ("welfare_maximising", "greedy", (0.25, 0.55)),
        ("random", "random", (0.241667, 0.241667)),
        ("random", "greedy", (0.177183, 0.422817)),
        ("random", "welfare_maximising", (0.279530, 0.352348)),
    ],
)
def test_exchange_when_strategies_meet_then_the_reference_rewards(
    row: str, column: str, expected: tuple[float, float]
) -> None:
    """Three independent items, so three times the mean over one item's values and claims."""
    sums = [0.0, 0.0]
    for own, other in ((1, 5), (5, 1)):
        pairs = list(product(claims_of(row, own), claims_of(column, other)))
        for one, two in pairs:
            for seat, points in enumerate(pay(((one,), (two,)), ((own,), (other,)), 5)):
                sums[seat] += 3 * points / 75 / 2 / len(pairs)
    assert tuple(sums) == pytest.approx(expected, abs=5e-7)


@pytest.mark.parametrize(
    ("row", "column", "expected"),
    [
        ("welfare_maximising", "welfare_maximising", (0.5, 0.5)),
        ("greedy", "greedy", (0.3, 0.3)),
        ("welfare_maximising", "greedy", (0.25, 0.55)),
        ("greedy", "welfare_maximising", (0.55, 0.25)),
    ],
)
@pytest.mark.parametrize("wording", ["full", "terse"])
def test_exchange_when_agents_play_every_value_then_the_reference_rewards(
    scripted: ModuleType, row: str, column: str, expected: tuple[float, float], wording: str
) -> None:
    """Through texts, grammars and `step`, over the eight states."""
    game = make_game("split", wording=wording, **EXCHANGE)
    seats = scripted.seat_agents(game, {"Ada": row, "Bo": column}, 0)
    sums = {"Ada": 0.0, "Bo": 0.0}
    for values in owners():
        state = SplitState(0, values)
        actions = {}
        for player, agent in seats.items():
            seen = game.observe(state, player)
            key = scripted.TurnKey(episode="0", branch="", player=player, step=1)
            actions[player] = seen.grammar.parse(scripted.answer(agent, seen, key))
        outcome = game.step(state, actions, Chance(0, 1))[1]
        assert outcome.info["best_total"] == 1.0
        for player, reward in outcome.rewards.items():
            sums[player] += reward / 8
    assert tuple(sums.values()) == pytest.approx(expected)


def test_exchange_when_values_are_drawn_then_five_for_one_and_one_for_the_other_by_lot() -> None:
    game = make_game("split", **EXCHANGE)
    drawn = [game.initial_state(Chance(seed)).values for seed in range(2000)]
    counts = {values: drawn.count(values) for values in owners()}
    assert sum(counts.values()) == 2000 and all(abs(count - 250) < 5 * 250**0.5 for count in counts.values())


def test_exchange_when_worded_then_range_and_divisor_are_told() -> None:
    full, terse = make_game("split", **EXCHANGE), make_game("split", wording="terse", **EXCHANGE)
    state = SplitState(1, owners()[0], ((5, 5, 5), (0, 5, 0)), owners()[1])
    system = full.observe(state, "Ada").system
    assert "5 a unit for exactly one player and 1 a unit for everyone else" in system
    assert "your units times your values, divided by 75, as points" in system
    assert terse.observe(state, "Ada").system == "hats books balls 5 v 1 | 5 ! x 50 / 75"
    told = full.observe(state, "Ada").text
    assert "5 balls and got 0.43 points" in told, "5·1 + 2.5·1 + 5·5 = 32.5 of 75"
    assert "0 balls and got 0.17 points" in told, "2.5·5 = 12.5 of 75"
    claims = {"hats": 5, "books": 5, "balls": 5}
    nothing = dict.fromkeys(claims, 0)
    actions = {"Ada": Move(value=claims, text=""), "Bo": Move(value=nothing, text="")}
    rewards = full.step(SplitState(0, owners()[-1]), actions, Chance(0, 1))[1].rewards
    assert rewards == {"Ada": 1.0, "Bo": 0.0} and full.spec.reward_range == (0.0, 1.0)


@pytest.mark.parametrize(
    ("row", "column", "expected"),
    [
        ("welfare_maximising", "welfare_maximising", (50, 50)),
        ("welfare_maximising", "greedy", (25, 52.5)),
        ("welfare_maximising", "fair", (100 / 3, 80 / 3)),
        ("greedy", "greedy", (27.5, 27.5)),
        ("greedy", "fair", (110 / 3, 55 / 3)),
        ("fair", "fair", (27.5, 27.5)),
    ],
)
@pytest.mark.parametrize("alternating", [True, False])
def test_no_press_when_hands_alternate_then_the_reference_in_every_two_rounds(
    scripted: ModuleType, row: str, column: str, expected: tuple[float, float], alternating: bool
) -> None:
    """With alternating hands each has the upper one in half of the rounds, so the mean is exact."""
    game = make_game(
        "trust_and_split", messages_per_player=0, public_values=True, alternating_hands=alternating
    )
    agents = {"Ada": row, "Bo": column}
    if alternating:
        sums = scripted.totals(game, agents, seed=4)
    else:
        steps = [step for seed in range(60) for step in scripted.play(game, agents, seed=seed)]
        uppers = [step for step in steps if step.outcome.info["values"]["Ada"] == 10]
        lowers = [step for step in steps if step.outcome.info["values"]["Ada"] == 1]
        assert abs(len(uppers) - 300) < 5 * 150**0.5
        sums = {
            player: 5 * (uppers[0].outcome.rewards[player] + lowers[0].outcome.rewards[player])
            for player in agents
        }
    assert tuple(sums.values()) == pytest.approx(tuple(10 * points for points in expected))
