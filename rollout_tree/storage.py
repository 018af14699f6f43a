"""Rollouts on disk: Parquet, one immutable file for each table, writer and iteration.

A file is written under a name that starts with a dot and renamed when whole. Names are deterministic: an
iteration that is played again replaces itself. The episodes file comes last: what it names is complete.
"""

import logging
import os
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from coplay.rollout_tree.columns import episodes_table, steps_table, turns_table
from coplay.rollout_tree.records import SCHEMA_VERSION, RolloutTree
from coplay.rollout_tree.rows import trees_from_tables
from coplay.rollout_tree.schema import VERSION_KEY, Table

if TYPE_CHECKING:
    import pyarrow as pa

_LOG = logging.getLogger(__name__)
_PARTITION = re.compile(r"iteration=(\d+)")
ROW_GROUP = 1 << 16
"""Rows of a row group; bounds what a reader must hold at once."""


def part_path(run_dir: str | os.PathLike[str], table: Table, iteration: int, writer: int = 0) -> Path:
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
    part_path(run_dir, "episodes", iteration, writer).unlink(missing_ok=True)
    for table, content in contents.items():
        write_part(part_path(run_dir, table, iteration, writer), content)


def write_part(path: Path, table: "pa.Table") -> None:
    """Write one Parquet file: aside first, then renamed, so that readers only ever see whole files."""
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.parent / f".{path.name}.tmp"
    pq.write_table(table, aside, compression="zstd", row_group_size=ROW_GROUP)
    os.replace(aside, path)


def read_part(path: Path) -> "pa.Table":
    """Read one Parquet file of ours.

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
                return file.read()
    except (pa.ArrowException, OSError) as error:
        raise ValueError(
            f"{str(path)!r} is damaged: {error}; without it, only other iterations can be read"
        ) from error
    raise ValueError(
        f"{str(path)!r} has schema version {version}; this coplay reads version {SCHEMA_VERSION}"
    )


def parts(
    run_dir: str | os.PathLike[str], table: Table, iteration: int | None = None
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


def read_rollouts(run_dir: str | os.PathLike[str], iteration: int | None = None) -> Iterator[RolloutTree]:
    """Read stored episodes, file by file, equal to what was written (log-probs as float32).

    Args:
        run_dir: the folder of a run.
        iteration: only this one; None reads all, in order.

    Raises:
        FileNotFoundError: at once, if nothing is stored there.
        ValueError: if a file was written under another version of the schema.
    """
    return _read(parts(run_dir, "episodes", iteration))


def _read(files: Sequence[tuple[int, Path]]) -> Iterator[RolloutTree]:
    for iteration, path in files:
        root = path.parents[2]
        steps, turns = (
            read_part(root / table / path.parent.name / path.name) for table in ("steps", "turns")
        )
        yield from trees_from_tables(read_part(path), steps, turns, iteration)
