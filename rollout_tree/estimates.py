"""What an estimator knew beside an iteration's rewards: running means, a critic's readings, what a KL took off them.

Rewards, credits and these are all that credit is computed from, so that it can be computed again.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coplay.rollout_tree.columns import make_table, words
from coplay.rollout_tree.rows import grouped
from coplay.rollout_tree.storage import part_path, parts, read_part, write_part

if TYPE_CHECKING:
    import pyarrow as pa

_KEY = ("episode", "branch", "player")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EstimateRow:
    """What was known of one player's path, S ticks long, before its rewards were."""

    episode: str
    branch: str
    player: str
    running_mean: NDArray[np.float64]
    """(S,) mean earlier return of (player, opponents) at each tick, scaled and discounted; 0 if none was seen."""
    running_count: NDArray[np.float64]
    """(S,) how many returns it is the mean of."""
    value: NDArray[np.float64] | None = None
    """(S + 1,) the critic's readings, the last one after a truncation; NaN where none was read; None: no critic."""
    penalty: NDArray[np.float64] | None = None
    """(S,) what a KL lowered the scaled reward of each tick by; None: no KL is in the rewards."""


def write_estimates(
    run_dir: str | os.PathLike[str], iteration: int, estimates: Sequence[EstimateRow], *, writer: int = 0
) -> None:
    """Write what was known of every path of one iteration, one table row a tick."""
    ordered = sorted(estimates, key=_key)
    sizes = [len(one.running_mean) + (one.value is not None) for one in ordered]
    columns: dict[str, Any] = {
        name: words(getattr(one, name) for one, size in zip(ordered, sizes, strict=True) for _ in range(size))
        for name in _KEY
    }
    columns["tick"] = _joined([np.arange(size) for size in sizes]).astype(np.int32)
    columns["value"] = _nullable(
        [np.full(size, np.nan) if one.value is None else one.value for one, size in _sized(ordered, sizes)]
    )
    for name in ("running_mean", "running_count", "penalty"):
        columns[name] = _nullable([_padded(getattr(one, name), size) for one, size in _sized(ordered, sizes)])
    write_part(part_path(run_dir, "estimates", iteration, writer), make_table("estimates", columns))


def read_estimates(run_dir: str | os.PathLike[str], iteration: int | None = None) -> Iterator[EstimateRow]:
    """Read what was known, file by file, equal to what was written.

    Raises:
        FileNotFoundError: at once, if nothing is stored there.
        ValueError: if a file was written under another version of the schema.
    """
    return _read([path for _, path in parts(run_dir, "estimates", iteration)])


def _read(paths: Sequence[Path]) -> Iterator[EstimateRow]:
    for path in paths:
        for key, columns in grouped(read_part(path), _KEY):
            # files that were written before there was such a column
            unknown = [None] * len(columns["tick"])
            value, mean, count, penalty = (
                np.array([np.nan if x is None else x for x in columns.get(name, unknown)], dtype=np.float64)
                for name in ("value", "running_mean", "running_count", "penalty")
            )
            inside = ~np.isnan(mean)
            yield EstimateRow(
                **key,
                running_mean=mean[inside],
                running_count=count[inside],
                value=None if inside.all() else value,
                penalty=None if np.isnan(penalty).all() else penalty[inside],
            )


def _key(one: EstimateRow) -> tuple[str, str, str]:
    return (one.episode, one.branch, one.player)


def _sized(ordered: Sequence[EstimateRow], sizes: Sequence[int]) -> Iterator[tuple[EstimateRow, int]]:
    return zip(ordered, sizes, strict=True)


def _padded(numbers: NDArray[np.float64] | None, size: int) -> NDArray[np.float64]:
    known = np.zeros(0) if numbers is None else numbers
    return np.concatenate([known, np.full(size - len(known), np.nan)])


def _joined(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.zeros(0)


def _nullable(arrays: Sequence[NDArray[np.float64]]) -> "pa.Array":
    import pyarrow as pa

    joined = _joined(arrays)
    return pa.array(joined, pa.float64(), mask=np.isnan(joined))
