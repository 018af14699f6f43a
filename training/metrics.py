"""Metrics: flat dictionaries with slash-separated keys; one JSON line an update is the source of truth."""

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


def fetch(values: Mapping[str, Tensor | float]) -> dict[str, float]:
    """Bring all tensors to the host in one transfer."""
    tensors = {key: value for key, value in values.items() if isinstance(value, Tensor)}
    numbers: dict[str, float] = {}
    if tensors:
        stacked = torch.stack([value.detach().double().reshape(()) for value in tensors.values()])
        numbers = dict(zip(tensors, stacked.tolist(), strict=True))
    return {key: numbers[key] if key in numbers else float(value) for key, value in values.items()}


class MetricsFile:
    """`metrics.jsonl` of a run: each update stands in it once, in order."""

    def __init__(self, path: Path, *, resume_from: int) -> None:
        """Open for appending; lines of updates at or beyond `resume_from` are dropped (they will be redone)."""
        self.path = path
        kept = [line for line in read_metrics(path) if int(line["update"]) < resume_from]
        aside = path.with_name(f".{path.name}.partial")
        aside.write_text("".join(map(_line, kept)), encoding="utf-8")
        os.replace(aside, path)

    def append(self, update: int, values: Mapping[str, float]) -> None:
        """Write one update's line.

        Not-a-number is written as null, since JSON has no such number.
        """
        with self.path.open("a", encoding="utf-8") as file:
            file.write(_line({"update": update, **values}))


def read_metrics(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a metrics file; a last line cut off by a crash is left out.

    Raises:
        ValueError: if another line is damaged.
    """
    if not path.exists():
        return
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), start=1):
        if not line.endswith(b"\n"):
            continue
        try:
            values = json.loads(line)
            int(values["update"])
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(
                f"line {number} of '{path}' is {line[:60]!r}; expected a JSON object with an 'update': delete it"
            ) from error
        yield values


def _line(values: Mapping[str, Any]) -> str:
    finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}
    return json.dumps(finite) + "\n"


def prefixed(prefix: str, values: Mapping[str, float]) -> dict[str, float]:
    """The same numbers under `prefix/`."""
    return {f"{prefix}/{key}": value for key, value in values.items()}


def merged(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """All parts in one dictionary; a key given twice is an error of ours."""
    result: dict[str, float] = {}
    for part in parts:
        assert not result.keys() & part.keys()
        result.update(part)
    return result
