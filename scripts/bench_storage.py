"""`python -m coplay.scripts.bench_storage [--turns 100000] [--steps 1000000]`: storage against JSON, and large trees.

Made-up episodes are written as Parquet, as flat JSONL (one object a turn, the columns of our table `turns`, and what
finds its episode), as JSONL of nested records (one object an episode), and as a pickle of nested records, which is
what others keep rollouts in. JSON numbers have as few digits as give back the same float32. What is read back from
Parquet must equal what was written.

Pickle runs code from data (law 10) and is nowhere else in this project; here it reads only what it has just written.

Then trees of `--steps` steps, one long line and one bush of branches, become a graph, statistics and trajectories;
a quarter of the steps first, so that the cost a step shows whether it is linear.
"""

import argparse
import gzip
import json
import pickle  # noqa: TID251 - measured, and used for nothing
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from coplay.rollout_tree import (
    RolloutTree,
    RolloutWriter,
    branch_trajectories,
    build_trajectories,
    read_rollouts,
    read_table,
    summary,
    to_networkx,
)
from coplay.scripts.bench_trees import bush, line, make_trees

NUM_ITERATIONS = 10
SMALLER, FASTER = 3.0, 20.0
"""Parquet must be that much smaller than flat JSONL, and one group's trees that much sooner there."""
GROWTH = 1.7
"""A step of the whole tree may cost that much of a step of a quarter of it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and give 1 if a figure misses its bound."""
    parser = argparse.ArgumentParser(prog="bench_storage", description=__doc__)
    parser.add_argument("--turns", type=int, default=100_000, help="turns written and read (0: none)")
    parser.add_argument("--steps", type=int, default=1_000_000, help="steps of the large trees (0: none)")
    asked = parser.parse_args(arguments)
    fine = True
    if asked.turns:
        with tempfile.TemporaryDirectory() as folder:
            fine = storage(Path(folder), asked.turns)
    if asked.steps:
        fine &= all([large_tree("line", line, asked.steps), large_tree("bush", bush, asked.steps)])
    return 0 if fine else 1


def storage(folder: Path, num_turns: int) -> bool:
    """Write and read in all forms; True if Parquet keeps its bounds."""
    trees = list(make_trees(num_turns, NUM_ITERATIONS))
    turns = sum(len(step.turns) for tree in trees for step in tree.steps)
    print(f"{turns} turns of {len(trees)} episodes in {NUM_ITERATIONS} iterations")
    written = seconds(lambda: write_parquet(folder, trees))
    sizes = write_others(folder, trees)
    for name, size in sizes.items():
        print(f"  size  {name:<24} {size / 1e6:8.1f} MB  {size / sizes['parquet']:6.2f} x parquet")
    read: dict[str, list[RolloutTree]] = {}
    group = trees[len(trees) // 2].group
    times = {
        name: min(seconds(ask) for _ in range(1 if name[:3] == "all" else 3))
        for name, ask in questions(folder, group, read).items()
    }
    print(f"  write parquet from trees {written:.2f} s (processor time, here and below)")
    for name, spent in times.items():
        print(f"  load  {name:<30} {spent:8.3f} s")
    exact = read["all"] == trees and read["group"] == [tree for tree in trees if tree.group == group]
    smaller = sizes["flat JSONL"] / sizes["parquet"]
    faster = times["one group, flat JSONL"] / times["one group, parquet to trees"]
    print(f"  read back exactly: {exact}")
    print(f"  flat JSONL / parquet, size: {smaller:.2f} (at least {SMALLER:g})")
    print(f"  flat JSONL / parquet, time to one group's trees: {faster:.1f} (at least {FASTER:g})")
    return exact and smaller >= SMALLER and faster >= FASTER


def write_others(folder: Path, trees: Sequence[RolloutTree]) -> dict[str, int]:
    """Write the other forms beside Parquet; give the bytes of each."""
    flat, nested, pickled = folder / "flat.jsonl", folder / "nested.jsonl", folder / "nested.pickle"
    write_lines(flat, flat_lines(folder))
    write_lines(nested, (rounded(asdict(tree)) for tree in trees))
    pickled.write_bytes(pickle.dumps([asdict(tree) for tree in trees], pickle.HIGHEST_PROTOCOL))
    return {
        "parquet": sum(path.stat().st_size for path in folder.glob("rollouts/*/*/*.parquet")),
        "flat JSONL": flat.stat().st_size,
        "the same, rules once": flat.stat().st_size - repeated(flat),
        "the same, gzip": len(gzip.compress(flat.read_bytes(), 6)),
        "nested JSONL": nested.stat().st_size,
        "nested pickle": pickled.stat().st_size,
    }


def questions(folder: Path, group: str, read: dict[str, list[RolloutTree]]) -> dict[str, Callable[[], Any]]:
    """What is asked of each form; the trees that Parquet gives go to `read`."""
    flat, nested, pickled = folder / "flat.jsonl", folder / "nested.jsonl", folder / "nested.pickle"
    cut = folder / "cut.jsonl"
    write_lines(cut, (row for row in read_lines(flat) if row["episode"][:6] == group[:6]))

    def load() -> list[dict[str, Any]]:
        return list(pickle.loads(pickled.read_bytes()))  # noqa: S301 - written by this process

    def of_group(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        return [row for row in rows if row["group"] == group]

    return {
        "all, flat JSONL to objects": lambda: read_lines(flat),
        "all, nested JSONL to objects": lambda: read_lines(nested),
        "all, nested pickle to objects": load,
        "all, parquet to Arrow tables": lambda: [
            read_table(folder, t) for t in ("episodes", "steps", "turns")
        ],
        "all, parquet to trees": lambda: read.update(all=list(read_rollouts(folder))),
        "one group, flat JSONL": lambda: of_group(read_lines(flat)),
        "the same, cut by iteration": lambda: of_group(read_lines(cut)),
        "one group, nested JSONL": lambda: of_group(read_lines(nested)),
        "one group, nested pickle": lambda: of_group(load()),
        "one group, parquet to trees": lambda: read.update(
            group=list(read_rollouts(folder, int(group[:6]), groups=[group]))
        ),
        "one group, no iteration told": lambda: list(read_rollouts(folder, groups=[group])),
    }


def write_parquet(folder: Path, trees: Sequence[RolloutTree]) -> None:
    """One file of each table for each iteration, as a run writes them."""
    for iteration, of_it in groupby(trees, lambda tree: tree.iteration):
        with RolloutWriter(folder, iteration) as writer:
            for tree in of_it:
                writer.add(tree)


def flat_lines(folder: Path) -> Iterator[dict[str, Any]]:
    """One object a turn: the columns of `turns`, and what its episode and step say."""
    for iteration in range(NUM_ITERATIONS):
        episodes = {row["episode"]: row for row in read_table(folder, "episodes", iteration).to_pylist()}
        steps = {
            (row["episode"], row["step"]): row for row in read_table(folder, "steps", iteration).to_pylist()
        }
        for turn in read_table(folder, "turns", iteration).to_pylist():
            episode = episodes[turn["episode"]]
            step = steps[turn["episode"], turn["step"]]
            about = {name: episode[name] for name in ("game", "group", "group_seed")}
            place = {name: step[name] for name in ("parent", "branch", "index", "tick", "info_json")}
            rewards = {pair["player"]: pair["value"] for pair in step["rewards"]}
            yield rounded(turn | about | place | {"rewards": rewards, "status": step["status"]})


def rounded(value: Any) -> Any:
    """The same, its float32 numbers with as few digits as it takes."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        if value and all(isinstance(item, float) for item in value):
            return [float(str(number)) for number in np.array(value, dtype=np.float32)]
        return [rounded(item) for item in value]
    return value


def write_lines(path: Path, entries: Iterable[dict[str, Any]]) -> None:
    """JSON without spaces, one object a line."""
    with path.open("w", encoding="utf-8") as file:
        for entry in entries:
            file.write(json.dumps(entry, ensure_ascii=False, separators=(",", ":"), default=vars) + "\n")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Every line as an object."""
    with path.open(encoding="utf-8") as file:
        return [json.loads(text) for text in file]


def repeated(path: Path) -> int:
    """Bytes of the rules and grammars in flat lines, which stand in every one."""
    return sum(len(json.dumps([row["system"], row["grammar_json"]])) for row in read_lines(path))


def seconds(work: Callable[[], object]) -> float:
    """Processor time of one call, on all its threads."""
    start = time.process_time()
    work()
    return time.process_time() - start


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What the stages cost a step, in microseconds."""

    graph: float
    statistics: float
    trajectories: float


def costs(tree: RolloutTree) -> Cost:
    """Turn a tree into a graph, numbers and trajectories, one after the other."""
    scale = 1e6 / len(tree.steps)

    def graph() -> None:
        made = to_networkx(tree)
        assert made.number_of_nodes() == len(tree.steps)

    return Cost(
        graph=scale * seconds(graph),
        statistics=scale * seconds(lambda: summary([tree])),
        trajectories=scale * seconds(lambda: (build_trajectories(tree), branch_trajectories(tree))),
    )


def large_tree(name: str, make: Callable[[int], RolloutTree], num_steps: int) -> bool:
    """Measure a quarter and the whole; True if a step costs about the same in both."""
    quarter = costs(make(num_steps // 4))
    tree = make(num_steps)
    whole = costs(tree)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{name} of {len(tree.steps)} steps, peak memory of this process so far {peak:.2f} GiB")
    fine = True
    for stage in ("graph", "statistics", "trajectories"):
        small, large = getattr(quarter, stage), getattr(whole, stage)
        fine &= large <= GROWTH * small
        print(f"  {stage:<13} {large:6.2f} µs a step, {small:6.2f} in a tree a quarter as large")
    return fine


if __name__ == "__main__":
    sys.exit(main())
