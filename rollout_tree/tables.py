"""A table of a run's rollouts as Arrow, for analysis: what is not asked for is not read."""

import logging
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from coplay.games.names import nearest
from coplay.rollout_tree.schema import Table, arrow_schema
from coplay.rollout_tree.selection import Selection, check_known, selection
from coplay.rollout_tree.storage import beside, parts, read_part

if TYPE_CHECKING:
    import pyarrow as pa

_LOG = logging.getLogger(__name__)


def read_table(
    run_dir: str | os.PathLike[str],
    table: Table,
    iteration: int | None = None,
    *,
    columns: Sequence[str] | None = None,
    groups: Collection[str] | None = None,
    players: Collection[str] | None = None,
    status: Collection[str] | None = None,
) -> "pa.Table":
    """Read one table as Arrow, with the column `iteration` in front, for analysis.

    Texts are as stored (see `json_text.shield`). Filters mean what they mean in `read_rollouts`; `players`
    chooses rows of the tables that name one.

    Args:
        run_dir: the folder of a run.
        table: `episodes`, `steps`, `turns` or `credits`.
        iteration: only this one; None reads all, in order.
        columns: only these; None reads all.
        groups: only rows of episodes of these groups.
        players: only rows of these players.
        status: only rows of episodes with this outcome.

    Raises:
        FileNotFoundError: if nothing is stored there.
        ValueError: if a column, group, player or status is unknown.
    """
    import pyarrow as pa

    asked, schema = selection(groups, players, status), arrow_schema(table)
    for name in [*(columns or ()), *asked.turns]:
        if name not in schema.names:
            raise ValueError(
                f"table {table!r} has no column {name!r}; expected some of {schema.names}"
                f"{nearest(name, schema.names)}"
            )
    files = parts(run_dir, table, iteration)
    if table in ("steps", "turns"):
        files = [(number, path) for number, path in files if _complete(path)]
    check_known(asked, (read_part(beside(path, "episodes"), ("group", "seats")) for _, path in files))
    pieces = []
    for number, path in files:
        piece = read_part(path, columns, _wanted_rows(path, table, asked))
        pieces.append(piece.add_column(0, "iteration", [pa.array([number] * len(piece), pa.int32())]))
    if not pieces:
        raise FileNotFoundError(
            f"no finished iteration in {str(run_dir)!r}; expected one with a file of episodes"
        )
    return pa.concat_tables(pieces).unify_dictionaries()


def _complete(path: Path) -> bool:
    """True if the file of episodes, which comes last, is there; rows of an unfinished iteration are none."""
    whole = beside(path, "episodes").is_file()
    if not whole:
        _LOG.warning("skipped %s: the writing of its iteration was not finished", path)
    return whole


def _wanted_rows(path: Path, table: Table, asked: Selection) -> Mapping[str, Collection[str]]:
    if table == "episodes" or not asked.episodes:
        return {**asked.episodes, **asked.turns}
    chosen = read_part(beside(path, "episodes"), ("episode",), asked.episodes)
    return {"episode": set(chosen.column("episode").to_pylist()), **asked.turns}
