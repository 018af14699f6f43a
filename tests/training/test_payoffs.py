"""Payoff matrices: known pay, both seats, common luck, self-play marked, and kept where the page looks."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from coplay.agents.scripted import scripted_agent
from coplay.games import make_game
from coplay.rollout_tree.curves import payoffs
from coplay.training.evaluate import Contestant
from coplay.training.payoffs import FILE, Entrant, payoff_matrix, record_payoffs


def everywhere(players: tuple[str, ...], *names: str) -> Mapping[str, Entrant]:
    """Scripted agents, each in every seat."""
    return {
        name: dict.fromkeys(players, Contestant(label=name, factory=scripted_agent(name))) for name in names
    }


def means(matrix) -> list[list[float]]:
    return [[round(cell.pay.mean, 9) for cell in row] for row in matrix.cells]


def test_matrix_when_scripted_agents_meet_then_their_known_pay() -> None:
    """Ten rounds of 5/3/1/0: tit for tat loses the first round to a defector, who gets 14 for its 9."""
    game = make_game("iterated_matrix", num_rounds=10)
    agents = everywhere(game.spec.players, "tit_for_tat", "always_defect", "always_cooperate")
    matrix = payoff_matrix(game, agents, agents, games=3, seed=0)
    assert matrix.rows == matrix.columns == ["tit_for_tat", "always_defect", "always_cooperate"]
    assert means(matrix) == [[3.0, 0.9, 3.0], [1.4, 1.0, 5.0], [3.0, 0.0, 3.0]]
    assert matrix.least() == [1, 1, 1]
    assert [[cell.self_play for cell in row] for row in matrix.cells] == [
        [row == column for column in range(3)] for row in range(3)
    ]
    assert {cell.games for row in matrix.cells for cell in row if not cell.self_play} == {6}, "both seats"
    assert {row[place].games for place, row in enumerate(matrix.cells)} == {3}


def test_matrix_when_the_seats_differ_then_pay_is_the_mean_over_both() -> None:
    """The row seat gets 4 and the column seat 1, whoever sits there; so everyone gets 2.5."""
    game = make_game("iterated_matrix", preset="custom", payoffs=(((4, 1),),), num_rounds=2)
    agents = everywhere(game.spec.players, "always_defect", "random")
    assert means(payoff_matrix(game, agents, agents, games=2, seed=0)) == [[2.5, 2.5], [2.5, 2.5]]


def test_matrix_when_rows_and_columns_differ_then_each_cell_is_that_of_the_whole_one() -> None:
    game = make_game("split", num_rounds=2)
    agents = everywhere(game.spec.players, "greedy", "fair", "random")
    whole = payoff_matrix(game, agents, agents, games=6, seed=3)
    part = payoff_matrix(game, {"fair": agents["fair"]}, {"random": agents["random"]}, games=6, seed=3)
    assert part.cells == [[whole.cells[1][2]]]
    other = payoff_matrix(game, {"fair": agents["fair"]}, {"random": agents["random"]}, games=6, seed=4)
    assert other.cells != part.cells, "another seed is other luck"
    low_high = whole.cells[0][2].pay
    assert low_high.low < low_high.mean < low_high.high


def test_matrix_when_three_play_then_the_row_alone_among_copies_of_the_column() -> None:
    """A defector among two cooperators gets 5 a round; a cooperator among two defectors 0."""
    game = make_game("iterated_matrix", players=("a", "b", "c"), num_rounds=2)
    agents = everywhere(game.spec.players, "always_defect", "always_cooperate")
    matrix = payoff_matrix(game, agents, agents, games=2, seed=0)
    assert means(matrix) == [[1.0, 5.0], [0.0, 3.0]]
    assert [cell.games for cell in matrix.cells[0]] == [2, 6]


def test_record_when_kept_again_then_one_of_the_same_rows_and_columns(tmp_path: Path) -> None:
    game = make_game("iterated_matrix", num_rounds=2)
    agents = everywhere(game.spec.players, "grim", "always_defect")
    whole = payoff_matrix(game, agents, agents, games=1, seed=0)
    row = payoff_matrix(game, {"grim": agents["grim"]}, agents, games=1, seed=0)
    for matrix in (whole, row, whole.model_copy(update={"seed": 7})):
        record_payoffs(tmp_path, matrix)
    kept = payoffs(tmp_path / FILE)
    assert [(one["rows"], one["seed"]) for one in kept] == [(["grim"], 0), (["grim", "always_defect"], 7)]
    assert kept[1]["cells"][0][0]["pay"]["mean"] == 3.0
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


@pytest.mark.parametrize("content", ["[", "3", '[{"rows": ["a"], "columns": ["b"], "cells": [[]]}]', "[3]"])
def test_file_when_damaged_then_named(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=r"payoffs.json' is no list of payoff matrices"):
        payoffs(tmp_path / FILE)
    matrix = payoff_matrix(
        make_game("iterated_matrix", num_rounds=1),
        everywhere(("Ada", "Bo"), "grim"),
        everywhere(("Ada", "Bo"), "grim"),
        games=1,
        seed=0,
    )
    with pytest.raises(ValueError, match=r"payoffs.json' is no list of payoff matrices"):
        record_payoffs(tmp_path, matrix)
    assert (tmp_path / FILE).read_text(encoding="utf-8") == content, "nothing is overwritten"


def test_file_when_missing_then_no_matrix(tmp_path: Path) -> None:
    assert payoffs(tmp_path / FILE) == []
    (tmp_path / FILE).write_text(json.dumps([]), encoding="utf-8")
    assert payoffs(tmp_path / FILE) == []
