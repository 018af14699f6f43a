"""`python -m coplay.scripts.bench_growth_rollouts`: how the cost of rollouts grows with what is played.

The games of `bench_growth_training`, embedded model, one axis varied at a time: processor time of collecting them, and
of the local engine in it, beside the tokens that had to be read, each distinct (prefix, token) once, and those that
the engine did read. The exponents are slopes of log time over log tokens to be read by least squares: over the whole
curve, where fixed costs flatten it, and over its upper half; then over the size. A reply's token attends to all before
it, so that long prompts add attention's own square.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from coplay.agents.engine import Sample, SampleRequest
from coplay.scripts.bench_growth_training import (
    AXES,
    POLICY,
    Axis,
    Settings,
    added_costs,
    distinct_tokens,
    exponent,
)
from coplay.scripts.settings import check_settings
from coplay.training.run import Run
from coplay.training.stages import collect_rollouts, seldom_collecting


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One size of one axis."""

    size: int
    distinct: int
    """Tokens to be read: every distinct (prefix, token) of contexts, and of replies but their last."""
    read: int
    """Tokens that the engine read."""
    asked: int
    """Tokens that reading every context for every request would read."""
    engine: float
    """CPU seconds of sampling."""
    total: float
    """CPU seconds of collecting."""


class Watched:
    """Wraps an engine's `sample_all`: its processor time, and what it was asked."""

    def __init__(self, sample_all: Any) -> None:
        self.seconds = 0.0
        self.rows: list[tuple[int, ...]] = []
        self._sample_all = sample_all

    def __call__(self, requests: Sequence[SampleRequest]) -> list[Sample]:
        """Sample, watched."""
        start = time.process_time()
        samples: list[Sample] = self._sample_all(requests)
        self.seconds += time.process_time() - start
        self.rows += [
            (*request.context, *sample.ids[:-1]) for request, sample in zip(requests, samples, strict=True)
        ]
        return samples


def collect_once(run: Run, size: int) -> Point:
    """Play one iteration's games from empty caches."""
    engine = run.engine
    engine.clear()
    before = engine.tokens_read
    watched = Watched(engine.sample_all)
    engine.sample_all = watched  # type: ignore[method-assign]
    start = time.process_time()
    try:
        collect_rollouts(run, 0)
    finally:
        del engine.sample_all
    total = time.process_time() - start
    return Point(
        size=size,
        distinct=distinct_tokens(watched.rows),
        read=engine.tokens_read - before,
        asked=sum(map(len, watched.rows)),
        engine=watched.seconds,
        total=total,
    )


def measure(settings: Settings, size: int, repeats: int) -> Point:
    """Play one size's games `repeats` times after a warm-up; medians of the times."""
    chosen = {
        "agents": {"policies": {POLICY: {"weights": {"kind": "full"}}}, **settings.get("agents", {})},
        "update": {"num_threads": 1},
        **{name: section for name, section in settings.items() if name != "agents"},
    }
    with tempfile.TemporaryDirectory() as folder:
        run = Run(check_settings(chosen), folder=Path(folder))
        points = [collect_once(run, size) for _ in range(repeats + 1)][1:]
    last = points[-1]
    return Point(
        size=size,
        distinct=last.distinct,
        read=last.read,
        asked=last.asked,
        engine=median(point.engine for point in points),
        total=median(point.total for point in points),
    )


@seldom_collecting()
def rollout_curves(axes: Mapping[str, Axis] = AXES, *, repeats: int = 1) -> dict[str, list[Point]]:
    """Every axis's points, in order of size."""
    return {
        name: [measure(axis.settings(size), size, repeats) for size in axis.sizes]
        for name, axis in axes.items()
    }


def curves_table(curves: Mapping[str, Sequence[Point]]) -> str:
    """Every point, and below each curve its exponents over the tokens to be read, and over the size."""
    lines = []
    for name, points in curves.items():
        lines.append(
            f"{name:>24}{'distinct':>10}{'read':>9}{'asked':>9}   engine  collect    added   CPU ms an iteration; µs of"
            " engine a distinct token added"
        )
        more = added_costs([point.distinct for point in points], [point.engine for point in points])
        lines += [
            f"{point.size:>24}{point.distinct:10d}{point.read:9d}{point.asked:9d}"
            f"{1e3 * point.engine:9.1f}{1e3 * point.total:9.1f}{added}"
            for point, added in zip(points, more, strict=True)
        ]
        half = points[len(points) // 2 :]
        for told, kept, over in (
            ("exponent", points, "distinct"),
            ("in the upper half", half, "distinct"),
            ("over the size", points, "size"),
        ):
            scale = [float(getattr(point, over)) for point in kept]
            read, engine, total = (
                exponent(scale, [float(getattr(point, part)) for point in kept])
                for part in ("read", "engine", "total")
            )
            lines.append(f"{told:>24}{'':10}{read:9.2f}{'':9}{engine:9.2f}{total:9.2f}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the curves."""
    parser = argparse.ArgumentParser(
        prog="python -m coplay.scripts.bench_growth_rollouts", description=__doc__
    )
    parser.add_argument("--repeats", type=int, default=1, help="iterations of which the median is taken")
    parser.add_argument("--axes", nargs="+", choices=list(AXES), default=list(AXES), help="what to vary")
    chosen = parser.parse_args(arguments)
    print(curves_table(rollout_curves({name: AXES[name] for name in chosen.axes}, repeats=chosen.repeats)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
