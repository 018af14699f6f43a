"""Rows of task files as plain values: JSON lines, Parquet, and folders that `datasets` saves; nothing is run.

Every row comes with its place, so that a mistake can be told by file and line.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from coplay.games.names import nearest

Row = Mapping[str, Any]
SUFFIXES = (".jsonl", ".json", ".parquet", ".arrow")


class TaskFileError(ValueError):
    """A file of tasks that cannot be read as asked; its message says where and what was expected."""


def task_files(path: Path, split: str | None) -> tuple[Path, ...]:
    """The files of a path, in the order of their rows.

    A folder is one that `datasets` saved (with a table of splits: the one called `split`), or holds files of rows,
    taken in the order of their names.

    Raises:
        TaskFileError: if there are none, or the split is missing or unknown.
    """
    if not path.exists():
        raise TaskFileError(
            f"there is no '{path}'; expected a file of rows ({', '.join(SUFFIXES)}) or a folder of them"
        )
    if path.is_file():
        _no_split(path, split)
        if path.suffix not in SUFFIXES:
            raise TaskFileError(f"'{path}' ends in {path.suffix!r}; expected one of {', '.join(SUFFIXES)}")
        return (path,)
    if (path / "dataset_dict.json").is_file():
        splits = [str(name) for name in _object(path / "dataset_dict.json").get("splits", ())]
        if split not in splits:
            raise TaskFileError(
                f"'{path}' has splits {splits}, got split = {split!r}; expected one{nearest(split, splits)}"
            )
        return task_files(path / str(split), None)
    _no_split(path, split)
    if (path / "state.json").is_file():
        named = _object(path / "state.json").get("_data_files", ())
        found = [path / str(entry["filename"]) for entry in named]
        missing = [one.name for one in found if not one.is_file() or one.parent != path]
        if not found or missing:
            raise TaskFileError(
                f"'{path / 'state.json'}' names {missing or 'no files'}; expected Arrow files beside it"
            )
        return tuple(found)
    found = sorted(one for one in path.iterdir() if one.suffix in SUFFIXES and one.is_file())
    if not found:
        raise TaskFileError(
            f"folder '{path}' has no file of rows; expected some that end in {', '.join(SUFFIXES)}"
        )
    return tuple(found)


def _no_split(path: Path, split: str | None) -> None:
    if split is not None:
        raise TaskFileError(f"'{path}' has no splits, got split = {split!r}; expected none")


def _object(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise TaskFileError(f"'{path}' is no JSON: {error}") from None
    if not isinstance(data, dict):
        raise TaskFileError(f"'{path}' is {data!r:.60}; expected a JSON object")
    return data


def read_rows(files: Iterable[Path], columns: Iterable[str]) -> Iterator[tuple[str, Row]]:
    """Every row with its place, in order.

    Args:
        files: of any kind.
        columns: those that are looked at, dotted where they lie inside others; of Parquet and Arrow no other is read.

    Raises:
        TaskFileError: if a file is damaged or a line is no JSON object.
    """
    wanted = list(columns)
    for path in files:
        try:
            yield from _READERS[path.suffix](path, wanted)
        except (OSError, UnicodeDecodeError) as error:
            raise TaskFileError(f"'{path}' cannot be read: {error}") from None


def _json_lines(path: Path, columns: list[str]) -> Iterator[tuple[str, Row]]:
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield _json_row(f"'{path}' line {number}", line)


def _json_row(place: str, line: str) -> tuple[str, Row]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise TaskFileError(f"{place} is {line.strip()[:60]!r}; expected a JSON object, one a line")
    return place, row


def _json_list(path: Path, columns: list[str]) -> Iterator[tuple[str, Row]]:
    text = path.read_text(encoding="utf-8-sig")
    try:
        rows = json.loads(text)
    except RecursionError:
        raise TaskFileError(f"'{path}' is nested too deeply; expected JSON objects") from None
    except ValueError:
        yield from _json_lines(path, columns)
        return
    for number, row in enumerate(rows if isinstance(rows, list) else [rows], start=1):
        if not isinstance(row, dict):
            raise TaskFileError(f"'{path}' row {number} is {row!r:.60}; expected a JSON object")
        yield f"'{path}' row {number}", row


def _parquet(path: Path, columns: list[str]) -> Iterator[tuple[str, Row]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            present = file.schema_arrow.names
            number = 0
            for batch in file.iter_batches(columns=_tops(columns, present)):
                for row in batch.to_pylist():
                    number += 1
                    yield f"'{path}' row {number}", row
    except pa.ArrowInvalid as error:
        raise TaskFileError(f"'{path}' is no Parquet file: {error}") from None


def _arrow(path: Path, columns: list[str]) -> Iterator[tuple[str, Row]]:
    import pyarrow as pa

    number = 0
    try:
        with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as stream:
            kept = _tops(columns, stream.schema.names)
            for batch in stream:
                for row in batch.select(kept).to_pylist():
                    number += 1
                    yield f"'{path}' row {number}", row
    except pa.ArrowInvalid as error:
        raise TaskFileError(f"'{path}' is no Arrow stream, as datasets writes them: {error}") from None


def _tops(columns: Iterable[str], present: list[str]) -> list[str]:
    """Whole columns that hold what is looked at; all, if one is missing, so that the message can name them."""
    tops = {name if name in present else name.partition(".")[0] for name in columns}
    return [name for name in present if name in tops] if tops <= set(present) else list(present)


_READERS: Mapping[str, Callable[[Path, list[str]], Iterator[tuple[str, Row]]]] = {
    ".jsonl": _json_lines,
    ".json": _json_list,
    ".parquet": _parquet,
    ".arrow": _arrow,
}


def cell(row: Row, column: str, place: str) -> Any:
    """What stands in a column, `a.b.c` for one inside others.

    Raises:
        TaskFileError: if the row has no such column.
    """
    if column in row:
        return row[column]
    value: Any = row
    for part in column.split("."):
        if not isinstance(value, Mapping) or part not in value:
            known = [str(name) for name in (value if isinstance(value, Mapping) else row)]
            raise TaskFileError(
                f"{place} has no column {column!r}; expected one of {known}{nearest(part, known)}"
            )
        value = value[part]
    return value
