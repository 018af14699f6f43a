"""A writer that is killed at any moment leaves every finished iteration to other tools' own plain calls."""

import random
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from writing_fakes import credits_of, trees_of

from coplay.rollout_tree import read_rollouts

NUM_KILLS = 12
COLUMNS = {
    "episodes": "iteration, episode, status, returns",
    "steps": "iteration, episode, step, rewards",
    "turns": "iteration, episode, step, player, reply, ids, log_probs",
    "credits": "iteration, episode, token, credit",
}
"""What is compared of each table."""
Rows = dict[int, list[tuple[Any, ...]]]
"""Iteration -> its rows, in order."""


def by_pyarrow(run: Path, table: str) -> list[dict[str, Any]]:
    return pq.read_table(run / "rollouts" / table).to_pylist()


def by_pandas(run: Path, table: str) -> list[dict[str, Any]]:
    import pandas

    return pandas.read_parquet(run / "rollouts" / table).to_dict("records")


def by_duckdb(run: Path, table: str) -> list[dict[str, Any]]:
    import duckdb

    files = run / "rollouts" / table / "*" / "*.parquet"
    # Each worker of duckdb gives its rows when it is done; only one keeps them in the order of the files.
    with duckdb.connect(config={"threads": 1}) as base:
        found = base.execute(
            f"select * from read_parquet('{files}', hive_partitioning = true)"  # noqa: S608
        )
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


TOOLS = [
    by_pyarrow,
    pytest.param(by_pandas, marks=pytest.mark.needs("pandas")),
    pytest.param(by_duckdb, marks=pytest.mark.needs("duckdb")),
]


def plain(value: Any) -> Any:
    """Arrays and structs of any tool as lists and tuples."""
    if isinstance(value, np.ndarray | list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return [plain(item) for item in value.values()]
    return value.item() if isinstance(value, np.generic) else value


def rows_read(read: Callable[[Path, str], list[dict[str, Any]]], run: Path, table: str) -> Rows:
    found: Rows = defaultdict(list)
    for row in read(run, table):
        values = [plain(row[name]) for name in COLUMNS[table].split(", ")]
        found[int(values[0])].append(tuple(values[1:]))
    return found


@cache
def rows_written(iteration: int, table: str) -> list[tuple[Any, ...]]:
    trees = trees_of(iteration)
    if table == "credits":
        return [
            (c.episode, token, credit)
            for c in credits_of(iteration)
            for token, credit in zip(c.token, c.credit, strict=True)
        ]
    if table == "episodes":
        totals = [[[p, sum(step.rewards[p] for step in tree.steps)] for p in tree.players] for tree in trees]
        return [(tree.episode, tree.status, total) for tree, total in zip(trees, totals, strict=True)]
    if table == "steps":
        return [
            (tree.episode, step.id, [[p, value] for p, value in step.rewards.items()])
            for tree in trees
            for step in tree.steps
        ]
    return [
        (
            tree.episode,
            step.id,
            turn.player,
            turn.reply,
            [token for segment in turn.segments for token in segment.ids],
            [float(np.float32(x)) for segment in turn.segments for x in segment.log_probs],
        )
        for tree in trees
        for step in tree.steps
        for turn in step.turns
    ]


def kill_a_writer(run: Path, first: int, after: int, seconds: float) -> list[int]:
    """Kill it so long after it finished so many iterations; give those that it said it finished."""
    writer = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("writing_fakes.py")), str(run), str(first)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert writer.stdin is not None and writer.stdout is not None and writer.stderr is not None
    ready = writer.stdout.readline()
    assert ready == "ready\n", writer.stderr.read()
    writer.stdin.write("go\n")
    writer.stdin.flush()
    said = "".join(writer.stdout.readline() for _ in range(after))
    time.sleep(seconds)
    writer.kill()
    rest, errors = writer.communicate()
    assert writer.returncode == -signal.SIGKILL, errors
    return [int(line) for line in (said + rest).splitlines(keepends=True) if line.endswith("\n")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A copy of what a killed writer left behind, and how many iterations it or earlier ones had finished."""

    run: Path
    finished: int


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> list[Left]:
    """Writers that go on where the one before was killed; each dies at a random moment."""
    folder = tmp_path_factory.mktemp("kills")
    lots = random.Random(9)
    found: list[Left] = []
    finished = 0
    for number in range(NUM_KILLS):
        said = kill_a_writer(folder / "run", finished, after=number % 3, seconds=lots.uniform(0.0, 0.06))
        finished = max([finished, *(iteration + 1 for iteration in said)])
        if (folder / "run/rollouts").exists():
            shutil.copytree(folder / "run", folder / f"copy{number}")
            found.append(Left(run=folder / f"copy{number}", finished=finished))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("read", TOOLS)
def test_finished_iterations_when_writers_are_killed_at_random_moments_then_read_whole_by_other_tools(
    read: Callable[[Path, str], list[dict[str, Any]]], left: list[Left]
) -> None:
    """B47, law 8. Also while an iteration that is finished is written again, as a resumed run does."""
    assert any(list(one.run.rglob(".*.tmp")) for one in left), "some kills must fall into writes"
    whole = {one.finished: one for one in left if one.finished}
    assert len(whole) >= NUM_KILLS // 3, "and some between them"
    for finished, one in whole.items():
        stored = {table: rows_read(read, one.run, table) for table in COLUMNS}
        named = set(stored["episodes"])
        assert named - {finished} == set(range(finished)), "the next one may be there, and not be said"
        for table, rows in stored.items():
            assert named <= set(rows) <= named | {finished}
            for iteration in rows:  # a table of the unfinished one is whole too
                assert rows[iteration] == rows_written(iteration, table), (table, iteration)
        assert {tree.iteration for tree in read_rollouts(one.run)} == named
