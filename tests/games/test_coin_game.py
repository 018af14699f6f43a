"""Coin game: the exact rule set, and rewards per step of scripted players by the exact Markov chain."""

from collections.abc import Callable
from itertools import product
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from coplay.agents.scripted_dilemmas import cooperative_moves, greedy_moves
from coplay.games import Chance, GameParameterError, Malformed, Move, Observation, make_game
from coplay.games.chance_outcomes import chance_outcomes
from coplay.games.coin_game import MOVES, STEPS, CoinGame, CoinState, distance, neighbour

Strategy = Callable[[Observation, str], list[int]]
"""The moves that a player makes, each equally likely."""


def move(direction: int, names: tuple[str, ...] = MOVES) -> Move:
    return Move(value=names[direction], text=names[direction])


def moves(one: int, other: int) -> dict[str, Any]:
    return {"Ada": move(one), "Bo": move(other)}


STRATEGIES: dict[str, Strategy] = {
    "coin_cooperator": cooperative_moves,
    "coin_greedy": greedy_moves,
    "random": lambda observation, player: [0, 1, 2, 3],
}


def shifted(state: CoinState, size: int = 3) -> CoinState:
    """The same position with Ada in cell 0: nothing depends on where on a torus one stands."""
    up, left = divmod(state.places[0], size)

    def shift(cell: int) -> int:
        row, column = divmod(cell, size)
        return (row - up) % size * size + (column - left) % size

    return CoinState((0, shift(state.places[1])), shift(state.coin), state.owner)


POSITIONS = [
    CoinState((0, other), coin, owner)
    for other, coin, owner in product(range(9), range(9), (0, 1))
    if coin not in (0, other)
]


def stationary_rewards(one: Strategy, other: Strategy) -> tuple[float, float]:
    """Mean reward per step in the long run: the chain of all positions, through the game's own step."""
    game = make_game("coin_game")
    assert isinstance(game, CoinGame)
    number = {state: place for place, state in enumerate(POSITIONS)}
    chain = np.zeros((len(POSITIONS), len(POSITIONS)))
    rewards = np.zeros((len(POSITIONS), 2))
    for place, state in enumerate(POSITIONS):
        seen = {player: game.observe(state, player) for player in ("Ada", "Bo")}
        first, second = one(seen["Ada"], "Ada"), other(seen["Bo"], "Bo")
        for a, b in product(first, second):
            share = 1 / (len(first) * len(second))

            def play(chance: Chance, state: CoinState = state, a: int = a, b: int = b) -> Any:
                return game.step(state, moves(a, b), chance)

            for probability, (after, outcome) in chance_outcomes(play, 1):
                chain[place, number[shifted(after)]] += share * probability
                rewards[place] += share * float(probability) * np.array([*outcome.rewards.values()])
    assert np.allclose(chain.sum(axis=1), 1)
    weights = np.full(len(POSITIONS), 1 / len(POSITIONS))
    for _ in range(400):
        weights = (weights + weights @ chain) / 2
    assert np.allclose(weights, weights @ chain, atol=1e-12)
    first_mean, second_mean = weights @ rewards
    return float(first_mean), float(second_mean)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("coin_cooperator", "coin_cooperator", (0.335580, 0.335580)),
        ("coin_cooperator", "coin_greedy", (-0.284054, 0.639121)),
        ("coin_greedy", "coin_greedy", (0, 0)),
        ("random", "random", (0, 0)),
        ("coin_cooperator", "random", (0.056615, 0.112491)),
        ("coin_greedy", "random", (0.533333, -0.533333)),
        ("random", "coin_cooperator", (0.112491, 0.056615)),
        ("coin_greedy", "coin_cooperator", (0.639121, -0.284054)),
    ],
)
def test_rewards_when_two_strategies_play_for_ever_then_the_reference(
    one: str, other: str, expected: tuple[float, float]
) -> None:
    """By the exact chain of 128 positions."""
    found = stationary_rewards(STRATEGIES[one], STRATEGIES[other])
    assert found == pytest.approx(expected, abs=5e-7)


@pytest.mark.parametrize("name", ["coin_cooperator", "coin_greedy"])
def test_agents_when_asked_often_then_each_of_their_moves_and_no_other(
    scripted: ModuleType, name: str
) -> None:
    """The agents draw from the very lists whose chain is solved above."""
    game = make_game("coin_game")
    for state in POSITIONS[::7]:
        for player in ("Ada", "Bo"):
            observation = game.observe(state, player)
            agent = scripted.seat_agents(game, {"Ada": name, "Bo": name}, 3)[player]
            keys = [scripted.TurnKey(episode="0", branch="", player=player, step=step) for step in range(40)]
            said = {scripted.answer(agent, observation, key) for key in keys}
            allowed = STRATEGIES[name](observation, player)
            assert said == {f"<move>{MOVES[direction]}</move>" for direction in allowed}


@pytest.mark.parametrize(
    ("places", "owner", "chosen", "expected"),
    [
        ((3, 8), 0, (1, 0), (1, 0)),
        ((3, 8), 1, (1, 0), (1, -2)),
        ((0, 1), 1, (0, 2), (0, 1)),
        ((0, 1), 0, (0, 2), (-2, 1)),
        ((3, 1), 0, (1, 2), (-1, 1)),
        ((3, 1), 1, (1, 2), (1, -1)),
        ((0, 8), 0, (0, 0), (0, 0)),
    ],
)
def test_pay_when_the_coin_in_the_middle_is_taken_or_not_then_the_rule(
    places: tuple[int, int], owner: int, chosen: tuple[int, int], expected: tuple[int, int]
) -> None:
    """+1 for any pickup, −2 to the owner when the other takes it, also where both come to it at once."""
    game = make_game("coin_game")
    state, outcome = game.step(CoinState(places, 4, owner), moves(*chosen), Chance(3, 1))
    assert tuple(outcome.rewards.values()) == expected and state.last == expected
    took = any(outcome.info["took"].values())
    assert took or (state.coin, state.owner) == (4, owner)
    assert state.coin not in state.places


def test_new_coin_when_one_was_taken_then_every_free_cell_and_owner_equally_likely() -> None:
    game = make_game("coin_game")
    found: dict[tuple[int, int], float] = {}
    for probability, (state, _) in chance_outcomes(
        lambda chance: game.step(CoinState((3, 8), 4, 0), moves(1, 0), chance), 1
    ):
        found[state.coin, state.owner] = found.get((state.coin, state.owner), 0) + float(probability)
    free = [cell for cell in range(9) if cell not in (4, 5)]
    assert found == pytest.approx(dict.fromkeys(product(free, (0, 1)), 1 / 14))


def test_start_when_drawn_then_all_three_apart() -> None:
    game = make_game("coin_game")
    starts = [game.initial_state(Chance(seed)) for seed in range(3000)]
    assert all(len({*state.places, state.coin}) == 3 for state in starts)
    assert len({(state.places, state.coin, state.owner) for state in starts}) > 900, "of 9·8·7·2 = 1008"


@pytest.mark.parametrize("size", [2, 3, 5])
def test_neighbours_when_walked_round_the_torus_then_back_at_the_start(size: int) -> None:
    for cell, direction in product(range(size**2), range(4)):
        assert neighbour(neighbour(cell, direction, size), (direction + 2) % 4, size) == cell
        walked = cell
        for _ in range(size):
            walked = neighbour(walked, direction, size)
        assert walked == cell
        ways = [neighbour(cell, step, size) for step in range(len(STEPS))]
        assert all(distance(cell, way, size) == 1 for way in ways)
        assert max(distance(cell, other, size) for other in range(size**2)) == 2 * (size // 2)


def test_texts_when_seen_from_both_sides_then_own_signs_and_the_same_grid() -> None:
    full, terse = make_game("coin_game"), make_game("coin_game", wording="terse")
    state = CoinState((0, 5), 7, 1, 3, (-2, 1))
    assert full.observe(state, "Ada").text == (
        "Round 4 of 50. Points of the last round: you -2, Bo 1.\nY . .\n. . O\n. o .\nYour move?"
    )
    assert full.observe(state, "Bo").text == (
        "Round 4 of 50. Points of the last round: you 1, Ada -2.\nO . .\n. . Y\n. y .\nYour move?"
    )
    assert terse.observe(state, "Ada").text == "-2 1 6 8 their"
    assert terse.observe(state, "Bo").text == "1 6 1 8 my"
    assert terse.observe(state, "Ada").grammar.labels() == ("N", "E", "S", "W")
    together = full.observe(CoinState((4, 4), 0, 0), "Ada").text
    assert together == "Round 1 of 50.\ny . .\n. B .\n. . .\nYour move?"


def test_malformed_when_no_move_then_north() -> None:
    game = make_game("coin_game")
    state = CoinState((3, 8), 0, 0)
    action = game.observe(state, "Ada").grammar.parse("north or south")
    assert isinstance(action, Malformed)
    after, outcome = game.step(state, {"Ada": action, "Bo": move(0)}, Chance(0, 1))
    assert after.places == (0, 5) and outcome.rewards == {"Ada": 1.0, "Bo": 0.0}


@pytest.mark.parametrize(
    ("parameters", "told"), [({"size": 1}, "size"), ({"players": ("Ada", "Bo", "Cy")}, "players")]
)
def test_parameters_when_out_of_bounds_then_one_sentence(parameters: dict[str, Any], told: str) -> None:
    with pytest.raises(GameParameterError) as caught:
        make_game("coin_game", **parameters)
    assert told in str(caught.value) and "\n" not in str(caught.value)
