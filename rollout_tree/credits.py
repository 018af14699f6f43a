"""What every sampled token was credited with, and why: a table beside the rollouts, joined to them by ids."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coplay.rollout_tree.columns import make_table, words
from coplay.rollout_tree.rows import grouped
from coplay.rollout_tree.storage import part_path, parts, read_part, write_part

if TYPE_CHECKING:
    import pyarrow as pa

_KEYS = ("position", "token", "tick", "turn")
_NUMBERS = ("reward_to_go", "value", "baseline", "advantage", "shaping", "importance_weight", "credit")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CreditRow:
    """The sampled tokens of one training row, K of them, each with the parts its credit is made of.

    Every array is (K,); None means that the estimator knows no such number. It is never zero.
    """

    episode: str
    branch: str
    player: str
    row: int
    """Index into `Trajectory.rows`."""
    position: ArrayLike
    """Of each token in its row."""
    token: ArrayLike
    tick: ArrayLike
    turn: ArrayLike
    """Index into `Trajectory.turns`."""
    reward_to_go: ArrayLike | None = None
    value: ArrayLike | None = None
    baseline: ArrayLike | None = None
    advantage: ArrayLike | None = None
    """The player's own, before shaping."""
    shaping: ArrayLike | None = None
    """Credit minus advantage: what shaping, whitening, a malformed attempt's penalty and γ^t made of it."""
    importance_weight: ArrayLike | None = None
    credit: ArrayLike | None = None
    """What multiplied the token's log-prob in the end, importance weight aside."""


def write_credits(
    run_dir: str | os.PathLike[str], iteration: int, credits: Sequence[CreditRow], *, writer: int = 0
) -> None:
    """Write the credit of every token of one iteration, one table row a token.

    Raises:
        ValueError: if the arrays of a row have different lengths.
    """
    ordered = sorted(credits, key=lambda c: (c.episode, c.branch, c.player, c.row))
    sizes = [_size(credit) for credit in ordered]
    columns: dict[str, Any] = {
        name: words(
            text
            for credit, size in zip(ordered, sizes, strict=True)
            for text in [getattr(credit, name)] * size
        )
        for name in ("episode", "branch", "player")
    }
    columns["row"] = np.repeat(np.array([credit.row for credit in ordered], dtype=np.int32), sizes)
    for name in _KEYS:
        columns[name] = _joined([np.asarray(getattr(credit, name), dtype=np.int32) for credit in ordered])
    for name in _NUMBERS:
        columns[name] = _nullable([getattr(credit, name) for credit in ordered], sizes)
    write_part(part_path(run_dir, "credits", iteration, writer), make_table("credits", columns))


def _size(credit: CreditRow) -> int:
    lengths = {name: np.size(getattr(credit, name)) for name in _KEYS}
    lengths |= {name: np.size(v) for name in _NUMBERS if (v := getattr(credit, name)) is not None}
    if len(set(lengths.values())) != 1:
        where = f"row {credit.row} of player {credit.player!r} of episode {credit.episode!r}"
        raise ValueError(f"the credits of {where} have the lengths {lengths}; expected one length")
    return lengths["position"]


def _joined(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int32)


def _nullable(arrays: Sequence[ArrayLike | None], sizes: Sequence[int]) -> "pa.Array":
    import pyarrow as pa

    known = _joined([np.full(size, a is not None) for a, size in zip(arrays, sizes, strict=True)]).astype(
        bool
    )
    values = np.zeros(len(known), dtype=np.float32)
    values[known] = _joined([np.asarray(a, dtype=np.float32) for a in arrays if a is not None])
    return pa.array(values, pa.float32(), mask=~known)


def read_credits(run_dir: str | os.PathLike[str], iteration: int | None = None) -> Iterator[CreditRow]:
    """Read stored credits, file by file.

    Raises:
        FileNotFoundError: at once, if nothing is stored there.
        ValueError: if a file was written under another version of the schema.
    """
    return _read([path for _, path in parts(run_dir, "credits", iteration)])


def _read(paths: Sequence[Path]) -> Iterator[CreditRow]:
    for path in paths:
        for key, columns in grouped(read_part(path), ("episode", "branch", "player", "row")):
            arrays: dict[str, Any] = {name: np.array(columns[name], dtype=np.int32) for name in _KEYS}
            arrays |= {name: _known(columns[name]) for name in _NUMBERS}
            yield CreditRow(**key, **arrays)


def _known(values: Sequence[float | None]) -> NDArray[np.float32] | None:
    return None if None in values else np.array(values, dtype=np.float32)
