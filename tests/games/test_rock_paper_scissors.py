"""Rock, paper, scissors: who beats whom, reference returns, equilibrium."""

import itertools
from types import ModuleType

import pytest

from coplay.games import GameParameterError, make_game
from coplay.games.game_tree import game_tree
from coplay.games.rock_paper_scissors import wins
from coplay.games.solve import best_response, nash_conv, uniform, values

FIVE = ("rock", "paper", "scissors", "spock", "lizard")
BEATEN = {
    "rock": {"scissors", "lizard"},
    "paper": {"rock", "spock"},
    "scissors": {"paper", "lizard"},
    "spock": {"scissors", "rock"},
    "lizard": {"spock", "paper"},
}


def test_wins_when_there_are_five_then_the_known_table() -> None:
    for (i, one), (j, other) in itertools.product(enumerate(FIVE), repeat=2):
        expected = 0 if one == other else 1 if other in BEATEN[one] else -1
        assert wins(i, j, 5) == expected, (one, other)


@pytest.mark.parametrize("num_moves", [3, 5, 9])
def test_wins_when_counted_then_each_beats_half_of_the_others(num_moves: int) -> None:
    for own in range(num_moves):
        results = [wins(own, other, num_moves) for other in range(num_moves)]
        assert results.count(1) == results.count(-1) == num_moves // 2
        assert all(wins(other, own, num_moves) == -result for other, result in enumerate(results))


@pytest.mark.parametrize("moves", [("rock", "paper", "scissors"), FIVE])
def test_equilibrium_when_uniform_then_worth_nothing_and_else_exploitable(moves: tuple[str, ...]) -> None:
    tree = game_tree(make_game("rock_paper_scissors", moves=moves), exact=True)
    both = {"Ada": uniform, "Bo": uniform}
    assert values(tree, both) == {"Ada": 0, "Bo": 0}
    assert nash_conv(tree, both) == 0
    rock = {**both, "Ada": lambda decision: {decision.moves[0]: 1}}
    found = best_response(tree, "Bo", rock)
    assert found.value == 1
    assert list(found.replies.values()) == ["<move>paper</move>"]


RETURNS = {
    ("always_first", "always_first"): 0,
    ("always_first", "cycle"): 0,
    ("always_first", "beat_last"): -8,
    ("cycle", "cycle"): 0,
    ("cycle", "beat_last"): 0,
    ("beat_last", "beat_last"): 0,
}
"""Of the first over nine rounds: who cycles ties with whoever beats his last move, as both play the same."""


@pytest.mark.parametrize(("row", "column"), list(RETURNS))
def test_returns_when_scripted_agents_meet_then_the_reference(
    scripted: ModuleType, row: str, column: str
) -> None:
    for wording in ("full", "terse"):
        game = make_game("rock_paper_scissors", num_rounds=9, wording=wording)
        told = RETURNS[row, column]
        assert scripted.totals(game, {"Ada": row, "Bo": column}) == {"Ada": told, "Bo": -told}
        assert scripted.totals(game, {"Ada": column, "Bo": row}) == {"Ada": -told, "Bo": told}


def test_returns_when_one_is_random_then_nothing_on_average(scripted: ModuleType) -> None:
    game = make_game("rock_paper_scissors", num_rounds=2)
    for name in ("always_first", "cycle", "beat_last"):
        strategies = {"Ada": scripted.as_strategy(game, name), "Bo": uniform}
        assert values(game_tree(game, exact=True), strategies) == {"Ada": 0, "Bo": 0}


def test_parameters_when_the_number_of_moves_is_even_then_refused() -> None:
    with pytest.raises(GameParameterError, match="expected an odd number"):
        make_game("rock_paper_scissors", moves=("a", "b", "c", "d"))
