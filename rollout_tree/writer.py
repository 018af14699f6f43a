"""Writing an iteration's episodes as they come, in bounded memory, to the same files as `write_rollouts`."""

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from coplay.rollout_tree.columns import episodes_table, steps_table, turns_table
from coplay.rollout_tree.records import RolloutTree
from coplay.rollout_tree.schema import Table, arrow_schema
from coplay.rollout_tree.storage import ROW_GROUP, aside_path, part_path, publish

if TYPE_CHECKING:
    import pyarrow as pa

_TABLES: dict[Table, Callable[[Sequence[RolloutTree]], "pa.Table"]] = {
    "turns": turns_table,
    "steps": steps_table,
    "episodes": episodes_table,
}
"""In the order in which they are finished: what the file of episodes names is complete."""
MAX_TURNS = 1 << 13
MAX_CHARACTERS = 1 << 25


class RolloutWriter:
    """Takes the episodes of one iteration one at a time; `with RolloutWriter(run_dir, iteration) as writer`.

    What is held at once is at most `max_turns` turns and `max_characters` of text, and the last tree that was
    added; then a row group of each table is written. Files are written aside and renamed when the block ends,
    episodes last; a block left by an exception leaves no file, and one that is killed leaves what stood there.
    Episodes read back in the order in which they were added.
    """

    def __init__(
        self,
        run_dir: str | os.PathLike[str],
        iteration: int,
        *,
        writer: int = 0,
        max_turns: int = MAX_TURNS,
        max_characters: int = MAX_CHARACTERS,
    ) -> None:
        self._iteration = iteration
        self._max_turns, self._max_characters = max_turns, max_characters
        self._paths = {table: part_path(run_dir, table, iteration, writer) for table in _TABLES}
        self._files: dict[Table, Any] | None = None
        self._stack = ExitStack()
        self._held: list[RolloutTree] = []
        self._turns = self._characters = 0
        self._names: set[str] = set()

    def __enter__(self) -> Self:
        import pyarrow.parquet as pq

        with ExitStack() as stack:
            files = {}
            for table, path in self._paths.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                stack.callback(aside_path(path).unlink, missing_ok=True)
                file = pq.ParquetWriter(aside_path(path), arrow_schema(table), compression="zstd")
                files[table] = stack.enter_context(file)
            self._files, self._stack = files, stack.pop_all()
        return self

    def add(self, tree: RolloutTree) -> None:
        """Take one episode.

        Raises:
            ValueError: if it is of another iteration, or comes twice.
            TypeError: if info, facts or a move is no plain JSON value.
            RuntimeError: outside the `with` block.
        """
        if self._files is None:
            raise RuntimeError("the writer is not open; expected `with RolloutWriter(...) as writer`")
        if tree.iteration != self._iteration:
            raise ValueError(
                f"episode {tree.episode!r} is of iteration {tree.iteration}; expected {self._iteration}"
            )
        if tree.episode in self._names:
            raise ValueError(
                f"episode {tree.episode!r} comes more than once in iteration {self._iteration}; expected unique ids"
            )
        self._names.add(tree.episode)
        self._held.append(tree)
        for step in tree.steps:
            for turn in (*step.turns, *step.closing):
                self._turns += 1
                self._characters += len(turn.observation.text) + len(turn.reply)
        if self._turns >= self._max_turns or self._characters >= self._max_characters:
            self._flush()

    def _flush(self) -> None:
        """Write what is held as one row group of each table."""
        assert self._files is not None
        made = {table: make(self._held) for table, make in _TABLES.items()}  # all or, at a bad value, none
        for table, file in self._files.items():
            file.write_table(made[table], row_group_size=ROW_GROUP)
        self._held, self._turns, self._characters = [], 0, 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack:  # removes what stands aside, whatever happens
            assert self._files is not None
            if kind is None and (self._held or not self._names):
                self._flush()
            for file in self._files.values():
                file.close()
            self._files = None
            if kind is None:
                publish(list(self._paths.values()))
