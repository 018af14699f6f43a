"""The curves of a training step's cost on tiny numbers: what is counted, fitted and printed."""

import pytest

from coplay.rollout_tree import RolloutTree
from coplay.scripts import bench_growth_training as bench
from coplay.scripts.bench_growth_training import AXES, Axis, Point, curves_table, distinct_tokens, exponent


def test_distinct_tokens_when_rows_begin_alike_then_a_common_beginning_counts_once() -> None:
    assert distinct_tokens([(1, 2, 3), (1, 2, 4), (1, 2, 3), (2, 2), (1,), (1, 2, 3, 9)]) == 7
    assert distinct_tokens([]) == 0


def test_exponent_when_the_curve_is_a_power_then_that_power() -> None:
    sizes = [1.0, 2.0, 4.0, 8.0]
    assert exponent(sizes, [3 * size**1.5 for size in sizes]) == pytest.approx(1.5)


def test_table_when_cost_is_the_square_of_the_tokens_then_every_exponent_says_so() -> None:
    parts = ("extract", "credit", "step")
    points = [
        Point(
            size=n,
            distinct_tokens=10 * n,
            row_tokens=20 * n,
            flop=5.0 * n * n,
            seconds=dict.fromkeys(parts, 1e-3 * n * n),
        )
        for n in (1, 2, 4)
    ]
    lines = curves_table({"games": points}).splitlines()
    assert [line.split()[-4:] for line in lines[-3:-1]] == [["2.00"] * 4] * 2
    assert lines[-1].split() == ["of", "it", "over", "FLOP", "1.00"]
    assert lines[3].split() == ["4", "40", "80", "16.0", "16.0", "16.0", "48.0", "1800.0"]


@pytest.mark.parametrize("axis", sorted(AXES))
def test_axis_when_its_size_grows_then_its_tokens_do_and_every_part_is_timed(axis: str) -> None:
    sizes = AXES[axis].sizes[:2]
    (points,) = bench.training_curves({axis: Axis(sizes, AXES[axis].settings)}, repeats=1).values()
    assert [point.size for point in points] == list(sizes)
    assert points[0].distinct_tokens < points[1].distinct_tokens <= points[1].row_tokens
    assert all(seconds > 0 for point in points for seconds in point.seconds.values())


def test_training_when_repeated_then_on_the_same_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the second repeat would find nothing to train on, and measure that."""
    trained: list[int] = []
    train_once = bench.train_once

    def counted(run: bench.Run, trees: list[RolloutTree]) -> tuple[dict[str, float], float]:
        times = train_once(run, trees)
        trained.append(sum(map(len, bench.trained_rows(bench.extract(trees)))))
        assert run.idle_updates == 0 and run.policies[bench.POLICY].version == 0
        return times

    monkeypatch.setattr(bench, "train_once", counted)
    point = bench.measure(AXES["games"].settings(1), 1, repeats=2)
    assert trained == [point.row_tokens] * 3
