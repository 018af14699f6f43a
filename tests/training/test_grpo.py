"""Estimator `grpo`: one advantage a game, against its group."""

import math
from collections.abc import Sequence

import pytest
import torch
from run_fakes import make_tree, table_of

from coplay.training.estimators import estimate, mean_keys
from coplay.training.records import Estimate, TickTable
from coplay.training.schemes import GrpoEstimator


def outcomes(returns: Sequence[float], groups: Sequence[str] | None = None) -> tuple[TickTable, list[int]]:
    """Games of Ada's that pay so much ; and their rows, in the order given."""
    trees = [
        make_tree(
            {"Ada": [value], "Bo": [0.0]},
            episode=f"e{number}",
            group=groups[number] if groups else "g",
            silent=("Bo",),
        )
        for number, value in enumerate(returns)
    ]
    _, table = table_of(*trees)
    keys = [(key.episode, key.player) for key in table.keys]
    return table, [keys.index((f"e{number}", "Ada")) for number in range(len(returns))]


def advantages(settings: GrpoEstimator, table: TickTable, rows: Sequence[int]) -> list[float]:
    found = estimate(settings, table, running_means={})
    return found.advantages[rows, 0].tolist()


@pytest.mark.parametrize(
    ("returns", "population", "sample", "plain"),
    [
        ([1, 0, 0, 1], 1.0, 0.866025403784, 0.5),
        ([0, 1, 3, 4], 1.264911064067, 1.095445115010, 2.0),
    ],
)
def test_advantages_when_divided_by_either_deviation_or_none_then_goldens_g20(
    returns: list[float], population: float, sample: float, plain: float
) -> None:
    table, rows = outcomes(returns)
    last = 1 if returns[-1] > returns[1] or returns[-1] == 1 else -1
    for changes, expected in (
        ({"deviation": "population"}, population),
        ({"deviation": "sample"}, sample),
        ({"divide_by_deviation": False}, plain),
    ):
        found = advantages(GrpoEstimator(epsilon=0.0, **changes), table, rows)
        assert found[-1] == pytest.approx(last * expected, abs=1e-9)
        assert math.fsum(found) == pytest.approx(0.0, abs=1e-9)


def test_advantages_when_a_game_has_many_ticks_then_all_have_that_of_its_outcome() -> None:
    """Outcome supervision: rewards count from the first tick on, whenever they come; G15's discount does too."""
    trees = [
        make_tree({"Ada": [1.0, 0.0, 2.0], "Bo": [0.0] * 3}, episode="a"),
        make_tree({"Ada": [0.0, 4.0], "Bo": [0.0] * 2}, episode="b"),
    ]
    _, table = table_of(*trees)
    settings = GrpoEstimator(discount=0.5, divide_by_deviation=False)
    found = estimate(settings, table, running_means={})
    rows = {key[::2]: row for row, key in enumerate(table.keys)}
    assert found.returns[rows["a", "Ada"]].tolist() == [1.5] * 3
    assert found.advantages[rows["a", "Ada"]].tolist() == [-0.25] * 3
    assert found.advantages[rows["b", "Ada"]].tolist() == [0.25, 0.25, 0.0], "0 beyond a game's end"
    assert torch.equal(found.advantages, found.returns - found.baseline)


def test_advantages_when_groups_interleave_then_by_id_and_seat_b10() -> None:
    table, rows = outcomes([1.0, 5.0, 3.0, 5.0], ["x", "y", "x", "y"])
    found = advantages(GrpoEstimator(divide_by_deviation=False), table, rows)
    assert found == [-1.0, 0.0, 1.0, 0.0]


def test_group_when_all_got_the_same_then_nothing_is_divided_and_it_is_counted_b62_b63() -> None:
    table, rows = outcomes([0.1, 0.1, 0.1, 1.0, 2.0], ["x", "x", "x", "y", "y"])
    found = estimate(GrpoEstimator(), table, running_means={})
    assert found.advantages[rows[:3], 0].abs().max() < 1e-9
    assert found.metrics["credit/no_signal"] == pytest.approx(0.6)


def test_game_when_alone_in_its_group_then_the_running_mean_of_earlier_ones_rule_1() -> None:
    table, rows = outcomes([7.0, 1.0, 3.0], ["alone", "x", "x"])
    settings = GrpoEstimator()
    first = estimate(settings, table, running_means={})
    assert first.advantages[rows[0], 0] == 7.0, "nothing was seen yet"
    assert first.metrics["credit/groups_of_one"] == 2, "Ada's and Bo's"
    mean, count = first.running_means[mean_keys(table)[rows[0]]]
    assert (list(mean), list(count)) == ([pytest.approx(11 / 3)], [3.0])
    again = estimate(settings, table, running_means=first.running_means)
    assert float(again.advantages[rows[0], 0]) == pytest.approx(7 - 11 / 3)


def test_epsilon_when_as_in_trl_then_added_to_the_deviation() -> None:
    table, rows = outcomes([0.0, 1.0])
    deviation = math.sqrt(0.5)
    found: Estimate = estimate(GrpoEstimator(epsilon=0.1), table, running_means={})
    assert found.advantages[rows, 0].tolist() == pytest.approx(
        [-0.5 / (deviation + 0.1), 0.5 / (deviation + 0.1)]
    )
