"""Tic-tac-toe: rules and exact outcomes."""

from fractions import Fraction
from types import ModuleType

import pytest

from coplay.agents.scripted_exact import best_cells
from coplay.games import Chance, Malformed, Move, make_game
from coplay.games.game_tree import Decision, GameTree, Transition, game_tree
from coplay.games.solve import best_response, nash_conv, reach_probabilities, uniform, values
from coplay.games.tic_tac_toe import TicTacToeState, free_cells, winner


@pytest.fixture(scope="module")
def tree() -> GameTree:
    """The board tells all: 5478 positions, of which 4520 go on."""
    return game_tree(make_game("tic_tac_toe", wording="terse"), recall="last", exact=True)


def minimax(decision: Decision) -> dict[str, Fraction]:
    cells = best_cells("".join(decision.observation.facts["board"]))
    return {str(cell + 1): Fraction(1, len(cells)) for cell in cells}


def results(tree: GameTree, ada: object, bo: object) -> tuple[object, ...]:
    """Probabilities that X wins, that O wins, and of a draw."""
    reach = reach_probabilities(tree, {"Ada": ada, "Bo": bo})  # type: ignore[dict-item]
    ends = [
        (reach[index] * outcome.probability, outcome.rewards[0])
        for index, node in enumerate(tree.nodes)
        if isinstance(node, Transition)
        for outcome in node.outcomes
        if outcome.child is None
    ]
    return tuple(sum(share for share, gain in ends if gain == result) for result in (1, -1, 0))


def test_tree_when_made_then_all_positions(tree: GameTree) -> None:
    assert sum(isinstance(node, Decision) for node in tree.nodes) == 4520


def test_outcomes_when_both_are_random_then_the_exact_fractions(tree: GameTree) -> None:
    assert results(tree, uniform, uniform) == (Fraction(737, 1260), Fraction(121, 420), Fraction(8, 63))


def test_best_reply_when_the_other_is_random_then_the_exact_fractions(tree: GameTree) -> None:
    strategies = {"Ada": uniform, "Bo": uniform}
    as_x, as_o = (best_response(tree, player, strategies).strategy() for player in ("Ada", "Bo"))
    assert results(tree, as_x, uniform) == (Fraction(191, 192), 0, Fraction(1, 192))
    assert results(tree, uniform, as_o) == (Fraction(1, 135), Fraction(881, 945), Fraction(19, 315))


def test_minimax_when_the_other_is_random_then_the_exact_fractions_and_perfect(tree: GameTree) -> None:
    assert results(tree, minimax, uniform) == (Fraction(75257, 77760), 0, Fraction(2503, 77760))
    assert results(tree, uniform, minimax) == (0, Fraction(2645, 3402), Fraction(757, 3402))
    perfect = {"Ada": minimax, "Bo": minimax}
    assert values(tree, perfect) == {"Ada": 0, "Bo": 0}
    assert nash_conv(tree, perfect) == 0


def test_scripted_when_minimax_is_seated_then_never_loses(scripted: ModuleType) -> None:
    game = make_game("tic_tac_toe")
    for seed in range(30):
        assert scripted.totals(game, {"Ada": "minimax", "Bo": "random"}, seed=seed)["Ada"] >= 0
        assert scripted.totals(game, {"Ada": "random", "Bo": "minimax"}, seed=seed)["Bo"] >= 0
        assert scripted.totals(game, {"Ada": "minimax", "Bo": "minimax"}, seed=seed)["Bo"] == 0


def test_step_when_three_are_in_a_row_then_paid_and_over() -> None:
    game = make_game("tic_tac_toe")
    state, outcome = game.step(
        TicTacToeState("XX-OO----"), {"Ada": Move(value="3", text="<cell>3</cell>")}, Chance(0, 5)
    )
    assert winner(state.board) == "X" and free_cells(state.board) == () and game.to_move(state) == ()
    assert outcome.rewards == {"Ada": 1.0, "Bo": -1.0} and outcome.terminated


def test_malformed_when_a_cell_is_taken_then_the_first_free_one() -> None:
    game = make_game("tic_tac_toe")
    state = TicTacToeState("X---O----")
    action = game.observe(state, "Ada").grammar.parse("<cell>5</cell>")
    assert isinstance(action, Malformed) and action.reason == "out_of_range"
    after, _ = game.step(state, {"Ada": action}, Chance(0, 3))
    assert after.board == "XX--O----"
