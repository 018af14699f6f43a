"""What a run's page shows of its training: learning curves, evaluations and payoff matrices, as the run keeps them."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from coplay.rollout_tree.page_data import short

MAX_POINTS = 1000
"""Points of a curve; longer runs are averaged over equal numbers of updates."""
_UNSEEN = ("time/",)
"""Metrics that differ from one run of the same configuration to the next."""


def learning_curves(path: Path) -> dict[str, Any]:
    """Every metric by update: `updates` (n,), and `series`, each (n,) with None where it was not measured.

    Raises:
        ValueError: if a line is no JSON object with an update.
    """
    lines = list(_lines(path))
    names = dict.fromkeys(name for line in lines for name in line if name != "update")
    width = -(-len(lines) // MAX_POINTS) or 1
    bins = [lines[start : start + width] for start in range(0, len(lines), width)]
    return {
        "updates": [part[0]["update"] for part in bins],
        "width": width,
        "series": {
            name: [_mean([line.get(name) for line in part]) for part in bins]
            for name in names
            if not name.startswith(_UNSEEN)
        },
    }


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a metrics file; a last line cut off by a crash is left out."""
    if not path.is_file():
        return
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), start=1):
        if not line.endswith(b"\n"):
            continue
        try:
            values = json.loads(line, parse_constant=_unknown)
            int(values["update"])
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(
                f"line {number} of '{path}' is {line[:60]!r}; expected a JSON object with an 'update': delete it"
            ) from error
        yield values


def _unknown(_: str) -> None:
    """NaN and infinities, which are no JSON, are not known."""


def _mean(values: Sequence[float | None]) -> float | int | None:
    known = [value for value in values if value is not None]
    return short(sum(known) / len(known)) if known else None


def evaluations(path: Path) -> list[dict[str, Any]]:
    """The run's evaluations as stored: `update` and `results`, one for each opponent.

    Raises:
        ValueError: if the file is damaged.
    """
    if not path.is_file():
        return []
    try:
        found = json.loads(path.read_text(encoding="utf-8"), parse_constant=_unknown)
        return [{"update": int(entry["update"]), "results": list(entry["results"])} for entry in found]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"'{path}' is no list of evaluations: {error!r}; delete it to go without") from error


def payoffs(path: Path) -> list[dict[str, Any]]:
    """The run's payoff matrices as stored: `rows`, `columns`, and `cells`, a list of rows.

    Raises:
        ValueError: if the file is damaged.
    """
    if not path.is_file():
        return []
    try:
        found = json.loads(path.read_text(encoding="utf-8"), parse_constant=_unknown)
        return [_matrix(one) for one in list(found)]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f"'{path}' is no list of payoff matrices: {error!r}; delete it to go without"
        ) from error


def _matrix(stored: dict[str, Any]) -> dict[str, Any]:
    cells = [[{**cell, "pay": dict(cell["pay"])} for cell in row] for row in stored["cells"]]
    shape = {len(row) for row in cells}
    if len(cells) != len(stored["rows"]) or shape != {len(stored["columns"])}:
        raise ValueError("a table of another shape than its rows and columns")
    return {**stored, "cells": cells}
