"""`python -m coplay.scripts.bench_growth_training`: how a training step's cost grows with what is trained on.

Games of the embedded model are played once; then everything between collecting and storing them is timed: extract,
credit (estimate, exchange, shape) and step. One axis is varied at a time. Beside the processor time stand the tokens
that must be read, each distinct (prefix, token) once, and those of all rows together. The exponents are slopes of
log time over log distinct tokens by least squares: over the whole curve, where fixed costs flatten it, and over its
upper half. Tokens are not all of one price: a reply's has a longer context than its prompt's and a head to ask, so that
a group's curve is steeper than 1. The last line of each axis is therefore the slope over the FLOP that had to be done.
"""

import argparse
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

import numpy as np

from coplay.rollout_tree import RolloutTree, Trajectory
from coplay.scripts.bench_work import work_of
from coplay.scripts.settings import check_settings
from coplay.training.extract import extract
from coplay.training.packets import make_packets
from coplay.training.run import Run
from coplay.training.stages import (
    collect_rollouts,
    estimate_advantages,
    lay_out,
    read_critic,
    seldom_collecting,
    shape_credits,
    update_policies,
)

Settings = dict[str, dict[str, Any]]
POLICY = "shared"
PARTS = ("extract", "credit", "step")


@dataclass(frozen=True, slots=True)
class Axis:
    """What is varied: its sizes, and the settings of one size."""

    sizes: tuple[int, ...]
    settings: Callable[[int], Settings]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One size of one axis."""

    size: int
    distinct_tokens: int
    """Each distinct (prefix, token) of the rows once."""
    row_tokens: int
    """Of every path's rows, however much they share."""
    flop: float
    """That a step over the distinct tokens cannot do without."""
    seconds: Mapping[str, float]
    """CPU seconds by part."""

    @property
    def total(self) -> float:
        """CPU seconds of all parts."""
        return sum(self.seconds.values())


def _game(game: dict[str, Any], **collect: Any) -> Settings:
    return {"game": game, "collect": {"num_groups": 1, "group_size": 16, **collect}}


def _split(num_rounds: int, **collect: Any) -> Settings:
    """Claims of three items: games and branches soon go different ways."""
    return _game({"kind": "split", "wording": "terse", "num_rounds": num_rounds}, **collect)


def _tree(num_rounds: int, num_alternatives: int) -> Settings:
    """A fork at every step of both players, each branch played to the end."""
    played = _split(num_rounds, group_size=2, branching={"num_alternatives": num_alternatives})
    return {**played, "estimator": {"kind": "branches"}}


def _group(group_size: int) -> Settings:
    """A prompt of several hundred tokens, since the small tokenizer spells it out, and short free replies."""
    game = {"kind": "iterated_matrix", "wording": "full", "num_rounds": 1}
    sampling = {"constrained": False, "max_new_tokens": 16}
    return {**_game(game, group_size=group_size), "agents": {"sampling": sampling}}


AXES: dict[str, Axis] = {
    "games": Axis((1, 4, 16, 64, 256), lambda size: _split(4, group_size=size)),
    "turns of a dialogue": Axis((2, 4, 8, 16, 32), _split),
    "group size": Axis((2, 4, 8, 16, 32), _group),
    "depth of a tree": Axis((2, 4, 8, 16), lambda size: _tree(size, 1)),
    "alternatives at a fork": Axis((1, 2, 4, 8), lambda size: _tree(4, size)),
}


def distinct_tokens(rows: Iterable[Sequence[int]]) -> int:
    """Number of distinct (prefix, token) of rows: their nodes as a trie."""
    found = 0
    last: tuple[int, ...] = ()
    for row in sorted(map(tuple, rows)):
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(last, row, strict=False)))
        found, last = found + len(row) - shared, row
    return found


def trained_rows(trajectories: Iterable[Trajectory]) -> list[tuple[int, ...]]:
    """Ids of every row with a sampled token."""
    return [tuple(row.ids.tolist()) for path in trajectories for row in path.rows if bool(row.sampled.any())]


def train_once(run: Run, trees: Sequence[RolloutTree]) -> tuple[dict[str, float], float]:
    """CPU seconds of all between collecting and storing, and FLOP; the policy is labelled as before afterwards."""
    policy = run.policies[POLICY]
    version, times = policy.version, [time.process_time()]
    trajectories = extract(trees, branches=run.config.estimator.kind == "branches")
    times.append(time.process_time())
    table = lay_out(run, trajectories)
    advantages = estimate_advantages(run, table, read_critic(run, trajectories, table), update=0)
    packets = make_packets(table, advantages.advantages)
    credits = shape_credits(run, trajectories, table, advantages, packets, update=0)
    times.append(time.process_time())
    update_policies(run, credits, update=0)
    times.append(time.process_time())
    policy.version = version
    batch = credits[POLICY].batch
    seconds = {part: end - start for part, start, end in zip(PARTS, times, times[1:], strict=False)}
    return seconds, work_of(batch).flop(policy, batch)


def measure(settings: Settings, size: int, repeats: int) -> Point:
    """Play one size's games, then train on them `repeats` times after a warm-up; medians."""
    chosen = {
        "agents": {"policies": {POLICY: {"weights": {"kind": "full"}}}, **settings.get("agents", {})},
        "update": {"num_threads": 1, "lr": 1e-9},  # so small that all repeats train on the same policy
        **{name: section for name, section in settings.items() if name != "agents"},
    }
    with tempfile.TemporaryDirectory() as folder:
        run = Run(check_settings(chosen), folder=Path(folder))
        trees = collect_rollouts(run, 0)
        passes = [train_once(run, trees) for _ in range(repeats + 1)][1:]
    rows = trained_rows(extract(trees, branches=run.config.estimator.kind == "branches"))
    return Point(
        size=size,
        distinct_tokens=distinct_tokens(rows),
        row_tokens=sum(map(len, rows)),
        flop=passes[0][1],
        seconds={part: statistics.median([seconds[part] for seconds, _ in passes]) for part in PARTS},
    )


@seldom_collecting()
def training_curves(axes: Mapping[str, Axis] = AXES, *, repeats: int = 3) -> dict[str, list[Point]]:
    """Every axis's points, in order of size."""
    return {
        name: [measure(axis.settings(size), size, repeats) for size in axis.sizes]
        for name, axis in axes.items()
    }


def exponent(over: Sequence[float], values: Sequence[float]) -> float:
    """Slope of log values over log `over` by least squares."""
    slope, _ = np.polyfit([math.log(one) for one in over], [math.log(one) for one in values], 1)
    return float(slope)


def added_costs(tokens: Sequence[int], seconds: Sequence[float]) -> list[str]:
    """CPU microseconds for each token that a size has more than the one before it, as cells; the first is empty."""
    more = zip(pairwise(tokens), pairwise(seconds), strict=True)
    costs = [1e6 * (spent - spent_before) / (now - before) for (before, now), (spent_before, spent) in more]
    return [f"{'':9}", *[f"{cost:9.1f}" for cost in costs]]


def curves_table(curves: Mapping[str, Sequence[Point]]) -> str:
    """Every point, and below each curve its exponents over the distinct tokens: of the whole, of the upper half."""
    lines = []
    for name, points in curves.items():
        heads = "".join(f"{part:>9}" for part in (*PARTS, "all"))
        lines.append(
            f"{name:>24}{'distinct':>10}{'of rows':>9}{heads}{'added':>9}   CPU ms; µs a token added"
        )
        more = added_costs([one.distinct_tokens for one in points], [one.total for one in points])
        for point, added in zip(points, more, strict=True):
            numbers = "".join(f"{1e3 * seconds:9.1f}" for seconds in (*point.seconds.values(), point.total))
            lines.append(f"{point.size:>24}{point.distinct_tokens:10d}{point.row_tokens:9d}{numbers}{added}")
        for told, kept in (("exponent", points), ("in the upper half", points[len(points) // 2 :])):
            tokens = [float(point.distinct_tokens) for point in kept]
            columns = [[point.seconds[part] for point in kept] for part in PARTS]
            columns.append([point.total for point in kept])
            slopes = [exponent(tokens, column) for column in columns]
            lines.append(f"{told:>24}{'':19}" + "".join(f"{slope:9.2f}" for slope in slopes))
        upper = points[len(points) // 2 :]
        slope = exponent([point.flop for point in upper], [point.total for point in upper])
        lines.append(f"{'of it over FLOP':>24}{'':46}{slope:9.2f}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the curves."""
    parser = argparse.ArgumentParser(
        prog="python -m coplay.scripts.bench_growth_training", description=__doc__
    )
    parser.add_argument("--repeats", type=int, default=3, help="iterations of which the median is taken")
    parser.add_argument("--axes", nargs="+", choices=list(AXES), default=list(AXES), help="what to vary")
    chosen = parser.parse_args(arguments)
    print(curves_table(training_curves({name: AXES[name] for name in chosen.axes}, repeats=chosen.repeats)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
