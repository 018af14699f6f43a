"""Rollouts on disk: Parquet, one immutable file for each table, writer and iteration.

A file is written under a name that starts with a dot and renamed when whole. Names are deterministic: an
iteration that is played again replaces itself, or stays untouched if it is the same. The episodes file comes last:
what it names is complete. So a killed process leaves every finished iteration as it was; the disk is not waited for.
"""

import filecmp
import logging
import os
import re
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from coplay.rollout_tree.columns import episodes_table, steps_table, turns_table
from coplay.rollout_tree.records import SCHEMA_VERSION, RolloutTree
from coplay.rollout_tree.rows import trees_from_tables
from coplay.rollout_tree.schema import VERSION_KEY, Table
from coplay.rollout_tree.selection import (
    Selection,
    Wanted,
    check_known,
    matching_row_groups,
    matching_rows,
    selection,
)

if TYPE_CHECKING:
    import pyarrow as pa

_LOG = logging.getLogger(__name__)
_PARTITION = re.compile(r"iteration=(\d+)")
ROW_GROUP = 1 << 16
"""Rows of a row group; bounds what a reader must hold at once."""
STEPS_AT_ONCE = 1 << 14
"""Steps that a reader makes records of at once: of a longer file it holds one stretch of episodes at a time."""
View = Literal["conversations"]
"""What is derived from the tables and lies beside them."""


def part_path(run_dir: str | os.PathLike[str], table: Table | View, iteration: int, writer: int = 0) -> Path:
    """Where the file of one table, iteration and writer stands."""
    return Path(run_dir) / "rollouts" / table / f"iteration={iteration:06d}" / f"part-{writer}.parquet"


def write_rollouts(
    run_dir: str | os.PathLike[str], iteration: int, trees: Sequence[RolloutTree], *, writer: int = 0
) -> None:
    """Write the episodes of one iteration, failed ones included; equal trees give equal bytes (law 8).

    Raises:
        ValueError: if a tree belongs to another iteration or an episode comes twice.
        TypeError: if info, facts or a move is no plain JSON value; the message names it.
    """
    trees = sorted(trees, key=lambda tree: tree.episode)
    names = [tree.episode for tree in trees]
    if len(set(names)) != len(names):
        twice = sorted({name for name, next_one in pairwise(names) if name == next_one})
        raise ValueError(
            f"episodes {twice} come more than once in iteration {iteration}; expected unique ids"
        )
    for tree in trees:
        if tree.iteration != iteration:
            raise ValueError(
                f"episode {tree.episode!r} is of iteration {tree.iteration}; expected {iteration}"
            )
    contents: dict[Table, pa.Table] = {
        "turns": turns_table(trees),
        "steps": steps_table(trees),
        "episodes": episodes_table(trees),
    }
    paths = [part_path(run_dir, table, iteration, writer) for table in contents]
    for path, content in zip(paths, contents.values(), strict=True):
        _write_aside(path, content)
    publish(paths)


def aside_path(path: Path) -> Path:
    """Where a file stands until it is whole: Parquet tools pass over names that start with a dot."""
    return path.parent / f".{path.name}.tmp"


def write_part(path: Path, table: "pa.Table") -> None:
    """Write one Parquet file: aside first, then renamed, so that readers only ever see whole files."""
    _write_aside(path, table)
    os.replace(aside_path(path), path)


def _write_aside(path: Path, table: "pa.Table") -> None:
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, aside_path(path), compression="zstd", row_group_size=ROW_GROUP)


def publish(paths: Sequence[Path]) -> None:
    """Rename files that belong together, and are whole, to their own names.

    The last one says that all are there: it goes first, so that no reader joins old with new. But an iteration that
    is played again gives the same bytes (law 8): then nothing that stands is touched, and it is readable throughout.
    """
    if all(path.exists() and filecmp.cmp(aside_path(path), path, shallow=False) for path in paths):
        for path in paths:
            aside_path(path).unlink()
        return
    paths[-1].unlink(missing_ok=True)
    for path in paths:
        os.replace(aside_path(path), path)


def read_part(path: Path, columns: Sequence[str] | None = None, wanted: Wanted | None = None) -> "pa.Table":
    """Read one Parquet file of ours.

    Args:
        path: the file.
        columns: only these; None reads all.
        wanted: only rows that have one of these values in these columns of text, as stored.

    Raises:
        FileNotFoundError: if it is missing.
        ValueError: if it was written under another version of the schema, or is damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        raise FileNotFoundError(
            f"{str(path)!r} is missing; expected it beside the other tables of its iteration"
        )
    try:
        with pq.ParquetFile(path) as file:
            version = (file.schema_arrow.metadata or {}).get(VERSION_KEY, b"none").decode()
            if version == str(SCHEMA_VERSION):
                return _rows_of(file, columns, wanted) if columns or wanted else file.read()
    except (pa.ArrowException, OSError) as error:
        raise ValueError(
            f"{str(path)!r} is damaged: {error}; without it, only other iterations can be read"
        ) from error
    raise ValueError(
        f"{str(path)!r} has schema version {version}; this coplay reads version {SCHEMA_VERSION}"
    )


def _rows_of(file: Any, columns: Sequence[str] | None, wanted: Wanted | None) -> "pa.Table":
    columns = list(columns or file.schema_arrow.names)
    needed = [*columns, *(name for name in wanted or () if name not in columns)]
    chosen = matching_row_groups(file.metadata, wanted or {})
    return matching_rows(file.read_row_groups(chosen, columns=needed), wanted or {}).select(columns)


def parts(
    run_dir: str | os.PathLike[str], table: Table | View, iteration: int | None = None
) -> list[tuple[int, Path]]:
    """The whole files of a table with their iterations, in order; unfinished ones are skipped with a notice.

    Raises:
        FileNotFoundError: if there are none, or none of this iteration.
    """
    folder = Path(run_dir) / "rollouts" / table
    found: dict[int, list[Path]] = {}
    for place in folder.iterdir() if folder.is_dir() else ():
        match = _PARTITION.fullmatch(place.name)
        if match:
            found[int(match[1])] = _whole_files(place)
    stored = sorted(number for number, files in found.items() if files)
    if not stored:
        raise FileNotFoundError(
            f"no {table} under {str(folder)!r}; expected the folder of a run that stored them"
        )
    if iteration is None:
        return [(number, path) for number in stored for path in found[number]]
    if iteration not in stored:
        raise FileNotFoundError(
            f"iteration {iteration} is not under {str(folder)!r}; stored are {stored[0]} to {stored[-1]},"
            f" {len(stored)} in all"
        )
    return [(iteration, path) for path in found[iteration]]


def _whole_files(folder: Path) -> list[Path]:
    whole = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            _LOG.warning("skipped %s: a file whose writing was not finished", path)
        elif path.suffix == ".parquet":
            whole.append(path)
    return whole


def read_rollouts(
    run_dir: str | os.PathLike[str],
    iteration: int | None = None,
    *,
    groups: Collection[str] | None = None,
    players: Collection[str] | None = None,
    status: Collection[str] | None = None,
) -> Iterator[RolloutTree]:
    """Read stored episodes, stretch by stretch, equal to what was written (log-probs as float32).

    What is not asked for is not loaded: files of other iterations are not opened, row groups that cannot hold
    an asked episode are not read, and no records are made of other rows.

    Args:
        run_dir: the folder of a run.
        iteration: only this one; None reads all, in order.
        groups: only episodes of these groups.
        players: only these players' turns; steps, rewards and seats stay whole.
        status: only episodes that are `terminated`, `truncated`, `failed` or `running`.

    Raises:
        FileNotFoundError: at once, if nothing is stored there.
        ValueError: at once, if a group, player or status is unknown; or later, if a file was written under
            another version of the schema.
    """
    asked = selection(groups, players, status)
    files = parts(run_dir, "episodes", iteration)
    check_known(asked, (read_part(path, ("group", "seats")) for _, path in files))
    return _read(files, asked)


def _read(files: Sequence[tuple[int, Path]], asked: Selection) -> Iterator[RolloutTree]:
    for iteration, path in files:
        episodes = read_part(path, wanted=asked.episodes)
        narrowed = bool(asked.episodes)
        for stretch in _stretches(episodes):
            one_of_many = narrowed or len(stretch) < len(episodes)
            wanted = {"episode": set(stretch.column("episode").to_pylist())} if one_of_many else {}
            if one_of_many and not len(stretch):
                continue
            steps = read_part(beside(path, "steps"), wanted=wanted)
            turns = read_part(beside(path, "turns"), wanted={**wanted, **asked.turns})
            yield from trees_from_tables(stretch, steps, turns, iteration)


def beside(path: Path, table: Table) -> Path:
    """The file of another table by the same writer."""
    return path.parents[2] / table / path.parent.name / path.name


def _stretches(episodes: "pa.Table") -> Iterator["pa.Table"]:
    """Runs of episodes with at most `STEPS_AT_ONCE` steps together, or one episode."""
    start, held = 0, 0
    for place, size in enumerate(episodes.column("num_steps").to_pylist()):
        if held and held + size > STEPS_AT_ONCE:
            yield episodes.slice(start, place - start)
            start, held = place, 0
        held += size
    yield episodes.slice(start)
