"""Every strictly ordinal 2×2 game by name, against an enumeration of all pairs of rankings."""

from collections import Counter
from itertools import permutations, product
from types import ModuleType
from typing import get_args

import pytest

from coplay.games import Chance, GameParameterError, make_game
from coplay.games.iterated_matrix_presets import (
    ORDINAL_TYPES,
    PRESETS,
    OrdinalType,
    Payoffs,
    Preset,
    ordinal_table,
)

PAIRS = list(product(ORDINAL_TYPES, repeat=2))
KNOWN = {
    "prisoners_dilemma": "TRPS",
    "chicken": "TRSP",
    "battle_of_the_sexes": "TSRP",
    "hero": "TSPR",
    "compromise": "TPSR",
    "deadlock": "TPRS",
    "stag_hunt": "RTPS",
    "assurance": "RPTS",
    "coordination": "RPST",
    "peace": "RSPT",
    "harmony": "RSTP",
    "concord": "RTSP",
}
"""From best to worst: R both play the first move, S only oneself, T only the other, P both the second."""


def relabelled(table: Payoffs) -> set[Payoffs]:
    """The same game with rows and columns in any order."""
    return {
        tuple(tuple(table[i][j] for j in columns) for i in rows)
        for rows in ((0, 1), (1, 0))
        for columns in ((0, 1), (1, 0))
    }


def reseated(table: Payoffs) -> Payoffs:
    """The same game with the players' seats exchanged."""
    return tuple(tuple(table[j][i][::-1] for j in (0, 1)) for i in (0, 1))


def equilibria(table: Payoffs) -> list[tuple[int, int]]:
    """Cells of pure play in which nobody gains by moving alone."""
    return [
        (i, j)
        for i, j in product((0, 1), repeat=2)
        if table[i][j][0] >= table[1 - i][j][0] and table[i][j][1] >= table[i][1 - j][1]
    ]


def all_games() -> set[frozenset[Payoffs]]:
    """All 24·24 pairs of rankings, those that differ by the names of moves together."""
    games = set()
    for row, column in product(permutations((1, 2, 3, 4)), repeat=2):
        table = tuple(tuple((row[2 * i + j], column[2 * i + j]) for j in (0, 1)) for i in (0, 1))
        games.add(frozenset(relabelled(table)))
    return games


def test_types_when_generated_by_swaps_then_the_known_orders_of_the_symmetric_games() -> None:
    assert {
        name: "".join(sorted("RSTP", key=lambda cell: -ranks["RSTP".index(cell)]))
        for name, ranks in ORDINAL_TYPES.items()
    } == KNOWN
    assert get_args(OrdinalType) == tuple(ORDINAL_TYPES)
    names = [name for part in get_args(Preset) for name in get_args(part) or (part,)]
    assert set(names) == set(PRESETS) | {"ordinal", "custom"}


def test_pairs_of_types_when_all_are_taken_then_each_of_the_144_games_once() -> None:
    """And 78 up to the players' seats, of which 12 are symmetric (Rapoport and Guyer 1966)."""
    named = [frozenset(relabelled(ordinal_table(*pair))) for pair in PAIRS]
    assert len(set(named)) == len(named) == 144
    assert set(named) == all_games()
    seats = {frozenset({game, frozenset(relabelled(reseated(next(iter(game)))))}) for game in all_games()}
    assert len(seats) == 78 and sum(len(pair) == 1 for pair in seats) == 12


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_table_when_of_two_types_then_the_first_moves_leave_the_other_his_best(pair: tuple[str, str]) -> None:
    table = ordinal_table(*pair)
    assert 4 in {table[0][0][0], table[1][0][0]}, "the row player's best is in the first column"
    assert 4 in {table[0][0][1], table[0][1][1]}, "the column player's best is in the first row"
    assert reseated(table) == ordinal_table(*pair[::-1])
    game = make_game("iterated_matrix", preset="ordinal", row_type=pair[0], column_type=pair[1])
    assert game.spec.symmetric == (pair[0] == pair[1])
    assert game.parameters.table() == table


def test_equilibria_when_counted_over_all_games_then_the_known_numbers() -> None:
    """Of 144 games 18 have none in pure play, 18 two, 108 one; in 36 both can have their best at once."""
    counts = Counter(len(equilibria(ordinal_table(*pair))) for pair in PAIRS)
    assert counts == {0: 18, 1: 108, 2: 18}
    assert sum((4, 4) in ordinal_table(*pair)[0] for pair in PAIRS) == 36


@pytest.mark.parametrize(
    ("preset", "cells"),
    [
        ("prisoners_dilemma", [(1, 1)]),
        ("deadlock", [(1, 1)]),
        ("compromise", [(1, 1)]),
        ("stag_hunt", [(0, 0), (1, 1)]),
        ("assurance", [(0, 0), (1, 1)]),
        ("coordination", [(0, 0), (1, 1)]),
        ("chicken", [(0, 1), (1, 0)]),
        ("hero", [(0, 1), (1, 0)]),
        ("battle_of_the_sexes", [(0, 0), (1, 1)]),
        ("harmony", [(0, 0)]),
        ("peace", [(0, 0)]),
        ("concord", [(0, 0)]),
        ("matching_pennies", []),
    ],
)
def test_preset_when_named_then_its_equilibria(preset: str, cells: list[tuple[int, int]]) -> None:
    assert equilibria(PRESETS[preset]) == cells
    assert make_game("iterated_matrix", preset=preset).spec.zero_sum == (preset == "matching_pennies")


def test_returns_when_the_two_constant_strategies_meet_then_the_cells_of_every_ordinal_game(
    scripted: ModuleType,
) -> None:
    names = ("always_cooperate", "always_defect")
    for row_type, column_type in PAIRS:
        game = make_game(
            "iterated_matrix",
            preset="ordinal",
            row_type=row_type,
            column_type=column_type,
            num_rounds=2,
            wording="terse",
        )
        for (i, one), (j, other) in product(enumerate(names), repeat=2):
            row, column = ordinal_table(row_type, column_type)[i][j]
            assert tuple(scripted.totals(game, {"Ada": one, "Bo": other}).values()) == (2 * row, 2 * column)


def test_title_when_shown_then_both_types_are_named() -> None:
    for parameters, told in (
        ({"preset": "ordinal", "row_type": "chicken"}, "the iterated game of chicken and chicken"),
        (
            {"preset": "ordinal", "row_type": "hero", "column_type": "prisoners_dilemma"},
            "the iterated game of hero and prisoner's dilemma",
        ),
        ({"preset": "matching_pennies"}, "the iterated matching pennies"),
    ):
        game = make_game("iterated_matrix", show_name=True, **parameters)
        assert told in game.observe(game.initial_state(Chance(0)), "Ada").system


@pytest.mark.parametrize(
    "parameters",
    [
        {"preset": "ordinal"},
        {"row_type": "chicken"},
        {"column_type": "chicken"},
        {"preset": "ordinal", "column_type": "hero"},
    ],
)
def test_parameters_when_types_and_preset_do_not_fit_then_one_sentence(parameters: dict[str, str]) -> None:
    with pytest.raises(GameParameterError) as caught:
        make_game("iterated_matrix", **parameters)
    assert "exactly with preset = 'ordinal'" in str(caught.value) and "\n" not in str(caught.value)
