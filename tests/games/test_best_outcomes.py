"""What games say a step could have paid at best, against every division and every cell by brute force."""

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coplay.games import Chance, Malformed, Move, make_game
from coplay.games.best_outcomes import (
    division_best_total,
    division_corners,
    division_yardsticks,
    efficient_cells,
    matrix_yardsticks,
)
from coplay.games.iterated_matrix_presets import PRESETS

VALUES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=3)
STOCK = 3


def divisions(pairs: list[tuple[int, int]]) -> list[tuple[float, float]]:
    """The pay of every whole division of three units of each item."""
    paid = []
    for given_away in product(range(STOCK + 1), repeat=len(pairs)):
        first = sum(units * one for units, (one, _) in zip(given_away, pairs, strict=True))
        second = sum((STOCK - units) * other for units, (_, other) in zip(given_away, pairs, strict=True))
        paid.append((float(first), float(second)))
    return paid


@given(VALUES)
def test_best_total_when_goods_are_divided_then_the_largest_sum_of_any_division(pairs) -> None:
    values = tuple(zip(*pairs, strict=True))
    assert division_best_total(values, STOCK) == max(map(sum, divisions(pairs)))


@given(VALUES)
def test_corners_when_goods_are_divided_then_nothing_lies_beyond_and_each_can_be_had(pairs) -> None:
    corners = division_corners(tuple(zip(*pairs, strict=True)), STOCK)
    paid = divisions(pairs)
    assert set(corners) <= set(paid)
    for corner in corners:
        assert not any(rival != corner and rival[0] >= corner[0] and rival[1] >= corner[1] for rival in paid)
    assert max(first for first, _ in paid) == corners[-1][0]
    assert max(second for _, second in paid) == corners[0][1]
    for (x0, y0), (x1, y1) in pairwise(corners):
        assert all((x1 - x0) * (y - y0) - (y1 - y0) * (x - x0) <= 0 for x, y in paid), "a line that bends out"


def test_corners_when_values_differ_then_the_worked_example() -> None:
    """10 : 1 and 1 : 10 and 10 : 10, ten units: 210 in all at first, item one first, the equal one second."""
    line = division_corners(((10, 1, 10), (1, 10, 10)), 10)
    assert line == ((0.0, 210.0), (100.0, 200.0), (200.0, 100.0), (210.0, 0.0))
    assert division_corners(((3, 0), (0, 2)), 5) == ((15.0, 10.0),), "nothing to fight about"


def test_cells_when_of_the_presets_then_the_known_efficient_ones() -> None:
    assert efficient_cells(PRESETS["prisoners_dilemma"]) == ((3, 3), (0, 5), (5, 0))
    assert efficient_cells(PRESETS["stag_hunt"]) == ((4, 4),)
    assert efficient_cells(PRESETS["chicken"]) == ((3, 3), (1, 4), (4, 1))
    assert efficient_cells(PRESETS["battle_of_the_sexes"]) == ((3, 2), (2, 3))


def test_yardsticks_when_there_are_three_players_then_only_what_is_exact() -> None:
    assert matrix_yardsticks("abc", PRESETS["stag_hunt"]) == {}
    assert division_yardsticks("abc", ((1,), (2,), (3,)), 4) == {"best_total": 12.0}
    assert matrix_yardsticks("ab", PRESETS["stag_hunt"]) == {
        "best_total": 8.0,
        "efficient": {"a": [4], "b": [4]},
    }


@pytest.mark.parametrize(
    ("claims", "agreed"), [((4, 6), True), ((4, 7), False), ((0, 0), True), ((5, None), False)]
)
def test_agreed_when_claims_meet_then_true_if_all_are_moves_and_fit(claims, agreed) -> None:
    trust = make_game("trust_and_split", messages_per_player=0, num_rounds=1)
    split = make_game("split", num_rounds=1, items=("hats",), at_least_one_conflict=False)
    for game, move in ((trust, lambda n: n), (split, lambda n: {"hats": n})):
        chance = Chance(1)
        actions = {
            player: Malformed(reason="no_move", text="")
            if claim is None
            else Move(value=move(claim), text="")
            for player, claim in zip(game.spec.players, claims, strict=True)
        }
        _, outcome = game.step(game.initial_state(chance), actions, chance)
        assert outcome.info["agreed"] is agreed
        assert outcome.info["best_total"] >= sum(outcome.rewards.values())
