"""Trading: exchange, pay, news, secrecy, reference returns by enumeration."""

from collections import Counter
from itertools import product
from types import ModuleType
from typing import Any

import pytest

from coplay.games import Chance, GameParameterError, make_game
from coplay.games.trading import TradingState

SMALL: dict[str, Any] = {"goods": ("salt", "gold"), "max_value": 2, "num_rounds": 6}
Bundle = tuple[int, ...]
PLAYERS = ("Ada", "Bo", "Cy")


def values_of_small() -> list[tuple[Bundle, ...]]:
    """All 64 equally likely values of the small game."""
    return [tuple(each) for each in product(product((1, 2), repeat=2), repeat=3)]


def traded(strategies: tuple[str, ...], values: tuple[Bundle, ...]) -> tuple[int, ...]:
    """Six rounds of offers of a unit of what is worth least for what is worth most, the first seat beginning."""
    held = [[2, 2] for _ in values]
    points = [0, 0, 0]
    for number in range(6):
        seat = number % 3
        own = values[seat]
        order = [(seat + number + 1 + step) % 3 for step in range(3)]
        order.remove(seat)
        mine = [good for good in (0, 1) if held[seat][good]]
        theirs = [good for good in (0, 1) if any(held[other][good] for other in order)]
        if not mine or not theirs:
            continue
        least, best = min(mine, key=own.__getitem__), max(theirs, key=own.__getitem__)
        if own[best] <= own[least]:
            continue
        partner = next(other for other in order if held[other][best])
        units = held[partner][best] if strategies[seat] == "greedy" else 1
        gain = values[partner][least] - units * values[partner][best]
        if gain > 0:
            held[seat][least] -= 1
            held[partner][least] += 1
            held[seat][best] += units
            held[partner][best] -= units
            points[seat] += units * own[best] - own[least]
            points[partner] += gain
    return tuple(points)


RETURNS = {
    ("fair", "fair", "fair"): (28, 16, 12),
    ("fair", "fair", "greedy"): (16, 16, 0),
    ("fair", "greedy", "fair"): (28, 16, 12),
    ("fair", "greedy", "greedy"): (16, 16, 0),
    ("greedy", "fair", "fair"): (28, 14, 14),
    ("greedy", "fair", "greedy"): (16, 14, 2),
    ("greedy", "greedy", "fair"): (16, 2, 14),
    ("greedy", "greedy", "greedy"): (0, 0, 0),
}
"""Sums over the 64 values of the small game."""


@pytest.mark.parametrize("strategies", list(product(("fair", "greedy"), repeat=3)))
def test_returns_when_strategies_meet_then_the_sums_over_all_values(
    scripted: ModuleType, strategies: tuple[str, ...]
) -> None:
    agents = dict(zip(PLAYERS, strategies, strict=True))
    sums = [0.0, 0.0, 0.0]
    for place, values in enumerate(values_of_small()):
        game = make_game("trading", wording=("full", "terse")[place % 2], **SMALL)
        state = TradingState(0, 0, game.parameters.endowments(), values, (-1, -1, -1))
        paid = tuple(scripted.play_from(game, state, agents).values())
        assert paid == traded(strategies, values)
        sums = [total + each for total, each in zip(sums, paid, strict=True)]
    assert tuple(sums) == RETURNS[strategies]


def start(game: Any, **changes: Any) -> TradingState:
    given: dict[str, Any] = {
        "round": 0,
        "first": 0,
        "holdings": game.parameters.endowments(),
        "values": ((1, 5, 9), (9, 5, 1), (2, 2, 2)),
        "seen": (-1, -1, -1),
    }
    return TradingState(**given | changes)


def say(game: Any, state: TradingState, *texts: str) -> Any:
    outcome = None
    for text in texts:
        (player,) = game.to_move(state)
        state, outcome = game.step(
            state, {player: game.observe(state, player).grammar.parse(text)}, Chance(0, 1)
        )
    return state, outcome


OFFER = ("Bo", "2 wheat 0 salt 0 gold", "0 wheat 0 salt 1 gold")


def test_step_when_an_offer_is_accepted_then_goods_change_hands_and_both_are_paid() -> None:
    game = make_game("trading", tag=None)
    state, outcome = say(game, start(game), *OFFER)
    assert game.to_move(state) == ("Bo",) and not outcome.round_ended
    assert "Ada offers you 2 wheat for 1 gold." in game.observe(state, "Bo").text
    state, outcome = say(game, state, "accept")
    assert outcome.rewards == {"Ada": 7.0, "Bo": 17.0, "Cy": 0.0}
    assert outcome.round_ended and not outcome.terminated and outcome.info["agreed"]
    assert state.holdings == ((0, 2, 3), (4, 2, 1), (2, 2, 2)) and game.to_move(state) == ("Bo",)


@pytest.mark.parametrize("answer", ["reject", "maybe"])
def test_step_when_an_offer_is_not_accepted_then_nothing_changes(answer: str) -> None:
    game = make_game("trading", tag=None)
    state, outcome = say(game, start(game), *OFFER, answer)
    assert set(outcome.rewards.values()) == {0.0} and outcome.round_ended and not outcome.info["agreed"]
    assert state.holdings == game.parameters.endowments()


def test_grammar_when_goods_are_few_then_nobody_gives_what_is_not_there() -> None:
    game = make_game("trading", endowment="own", units=3, wording="terse")
    state, _ = say(game, start(game), "C")
    assert game.observe(state, "Ada").grammar.labels() == tuple(f"{n} 0 0" for n in range(4))
    state, _ = say(game, state, "3 0 0")
    assert game.observe(state, "Ada").grammar.labels() == tuple(f"0 0 {n}" for n in range(4))


def test_malformed_when_an_offer_is_wanted_then_pass_or_nothing() -> None:
    game = make_game("trading", tag=None)
    state, outcome = say(game, start(game), "Di")
    assert outcome.info["passed"] and outcome.round_ended and game.to_move(state) == ("Bo",)
    state, outcome = say(game, start(game), "Bo", "3 wheat 0 salt 0 gold", "all of it")
    assert (state.give, state.get) == ((0, 0, 0), (0, 0, 0))
    assert "Ada offers you nothing for nothing." in game.observe(state, "Bo").text


def test_news_when_others_trade_then_told_once_and_rejections_to_the_proposer_alone() -> None:
    game = make_game("trading", tag=None, num_rounds=9)
    state, _ = say(game, start(game), *OFFER, "accept")
    assert "gave" not in game.observe(state, "Bo").text
    state, _ = say(game, state, "Cy", "1 wheat 0 salt 0 gold", "0 wheat 0 salt 1 gold")
    assert "Ada gave Bo 2 wheat for 1 gold." in game.observe(state, "Cy").text
    state, _ = say(game, state, "reject")
    seen = game.observe(state, "Cy").text
    assert "gave" not in seen and "rejected" not in seen
    state, _ = say(game, state, "pass")
    seen = game.observe(state, "Ada").text
    assert "You gave Bo 2 wheat for 1 gold." in seen and "rejected" not in seen
    state, _ = say(game, state, "pass")
    seen = game.observe(state, "Bo").text
    assert "Cy rejected your offer." in seen and "gave" not in seen
    state, _ = say(game, state, "pass", "pass")
    assert "gave" not in game.observe(state, "Ada").text and state.log == ()


def test_end_when_reached_then_gains_add_up_to_the_rewards(scripted: ModuleType) -> None:
    game = make_game("trading", num_rounds=9, players=("Ada", "Bo", "Cy", "Di"))
    agents = {"Ada": "fair", "Bo": "greedy", "Cy": "fair", "Di": "random"}
    for seed in range(10):
        steps = list(scripted.play(game, agents, seed=seed))
        total = sum(sum(step.outcome.rewards.values()) for step in steps)
        info = steps[-1].outcome.info
        assert info["total_gain"] == total <= info["best_total_gain"]
        held = [
            sum(column) for column in zip(*(each.values() for each in info["holdings"].values()), strict=True)
        ]
        assert held == [8, 8, 8]


def test_observation_when_others_values_change_then_the_same() -> None:
    game = make_game("trading")
    one, other = start(game), start(game, values=((1, 5, 9), (1, 1, 1), (8, 8, 8)))
    assert game.observe(one, "Ada") == game.observe(other, "Ada")
    assert game.private(one, "Bo") == {"values": {"wheat": 9, "salt": 5, "gold": 1}}


def test_draws_when_many_then_values_and_who_begins_are_uniform() -> None:
    game = make_game("trading", max_value=3)
    states = [game.initial_state(Chance(seed)) for seed in range(900)]
    for place in product(range(3), repeat=2):
        counts = Counter(state.values[place[0]][place[1]] for state in states)
        assert set(counts) == {1, 2, 3} and all(abs(count - 300) < 5 * 300**0.5 for count in counts.values())
    assert all(abs(count - 300) < 5 * 300**0.5 for count in Counter(s.first for s in states).values())


@pytest.mark.parametrize(
    "parameters",
    [
        {"players": ("Ada", "pass", "Bo")},
        {"players": ("Ada", "ada")},
        {"endowment": "own", "players": ("Ada", "Bo")},
        {"goods": ("salt", "salt")},
        {"players": tuple("abcdefghijk")},
    ],
)
def test_parameters_when_they_do_not_fit_then_refused(parameters: dict[str, Any]) -> None:
    with pytest.raises(GameParameterError):
        make_game("trading", **parameters)
