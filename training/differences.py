"""How credits computed again differ from those stored, player by player."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coplay.training.records import PathKey
from coplay.training.recredit import Recredited, StoredIteration, recredited_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditDifference:
    """How one player's credits under other settings differ from the stored ones, over his action tokens."""

    player: str
    tokens: int
    stored_mean: float
    """Mean size |c| of the stored credits."""
    mean: float
    """Mean |c' - c|."""
    largest: float
    rank_correlation: float | None
    """Spearman's; None where one side is constant."""
    sign_flips: float
    """Share of tokens whose credit changed from above to below 0 or back."""
    identical: bool
    """True if not a bit differs (as float32)."""


def compare_credits(stored: StoredIteration, result: Recredited) -> tuple[CreditDifference, ...]:
    """How each player's credits differ from the stored ones, joined by path, row and position.

    Raises:
        ValueError: if the stored credits are of other tokens than the rollouts.
    """
    before: dict[str, list[NDArray[np.float32]]] = {}
    after: dict[str, list[NDArray[np.float32]]] = {}
    rows = {(PathKey(one.episode, one.branch, one.player), one.row): one for one in recredited_rows(result)}
    if rows.keys() != stored.credits.keys():
        odd = sorted(rows.keys() ^ stored.credits.keys())[0]
        raise ValueError(
            f"credits and rollouts of iteration {stored.number} differ at {odd}; expected the same rows in both"
        )
    for place, new in rows.items():
        old = stored.credits[place]
        if not (
            np.array_equal(old.position, new.position)
            and np.array_equal(old.token, new.token)
            and old.credit is not None
        ):
            raise ValueError(f"the stored credits of {place} are of other tokens than the stored rollouts")
        before.setdefault(new.player, []).append(np.asarray(old.credit, dtype=np.float32))
        after.setdefault(new.player, []).append(np.asarray(new.credit, dtype=np.float32))
    return tuple(
        credit_difference(player, np.concatenate(before[player]), np.concatenate(after[player]))
        for player in sorted(before)
    )


def credit_difference(
    player: str, before: NDArray[np.float32], after: NDArray[np.float32]
) -> CreditDifference:
    """Compare two credits (N,) of the same N tokens."""
    gap = np.abs(after.astype(np.float64) - before.astype(np.float64))
    return CreditDifference(
        player=player,
        tokens=len(gap),
        stored_mean=float(np.abs(before.astype(np.float64)).mean()),
        mean=float(gap.mean()),
        largest=float(gap.max()),
        rank_correlation=rank_correlation(before, after),
        sign_flips=float((np.sign(before) * np.sign(after) < 0).mean()),
        identical=before.tobytes() == after.tobytes(),
    )


def rank_correlation(one: NDArray[np.floating[Any]], other: NDArray[np.floating[Any]]) -> float | None:
    """Spearman's rank correlation of two (N,), equal numbers sharing their mean rank; None if one is constant."""
    first, second = (ranks - ranks.mean() for ranks in (_ranks(one), _ranks(other)))
    size = float(np.sqrt((first @ first) * (second @ second)))
    return float(first @ second) / size if size else None


def _ranks(numbers: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    _, places, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    shared: NDArray[np.float64] = np.cumsum(counts) - (counts - 1) / 2
    return shared[places]
