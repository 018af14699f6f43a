"""Covariance traces of gradients from their inner products: ratios with intervals, and whether means agree.

Over M batches, of whose gradients only the Gram matrix is kept,

    tr Cov = (sum_m |g_m|^2 - |sum_m g_m|^2 / M) / (M - 1).

Estimators that saw the same games are paired: a bootstrap draws batches, and both sides of a ratio with them.
"""

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from coplay.training.evaluate import Interval

ESTIMATORS = ("ungrouped", "groups", "branches")
RESAMPLES = 2000
_PIECE = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class VarianceStudy:
    """What M batches gave."""

    gram: NDArray[np.float64]
    """(3, M, 3, M) inner products of the gradients, by estimator in the order of ESTIMATORS and batch."""
    sampled: NDArray[np.float64]
    """(3, M) tokens sampled."""
    read: NDArray[np.float64]
    """(3, M) tokens read."""
    games: int
    """Main lines of a batch."""

    def trace(self, name: str, batches: NDArray[np.int64] | None = None) -> float:
        """Trace of the covariance of an estimator's gradient over batches, drawn with replacement or as they are."""
        own = ESTIMATORS.index(name)
        return covariance_trace(self.gram[own, :, own], batches)

    def tokens(self, name: str, batches: NDArray[np.int64] | None = None, *, read: bool = False) -> float:
        """Mean tokens of a batch."""
        found = (self.read if read else self.sampled)[ESTIMATORS.index(name)]
        return float((found if batches is None else found[batches]).mean())


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanTest:
    """Whether two estimators have the same mean gradient, from paired batches."""

    difference: float
    """Norm of the mean difference beside that of the second's mean; 0 where the estimate of its square is negative."""
    p_value: float
    """Of a sign-flip test: how often differences of random sign have a sum as long."""


def gram(rows: Tensor) -> NDArray[np.float64]:
    """Inner products of all rows in float64, (n, n), without a second copy of them."""
    total = torch.zeros(len(rows), len(rows), dtype=torch.float64)
    for start in range(0, rows.shape[1], _PIECE):
        exact = rows[:, start : start + _PIECE].double()
        total += exact @ exact.T
    return total.numpy()


def covariance_trace(products: NDArray[np.float64], batches: NDArray[np.int64] | None = None) -> float:
    """Trace of the sample covariance of M vectors, from their inner products (M, M).

    Args:
        batches: (M,) which of them, drawn with replacement; None: each once.
    """
    count = len(products)
    times = np.ones(count) if batches is None else np.bincount(batches, minlength=count).astype(np.float64)
    return float((times @ np.diag(products) - times @ products @ times / count) / (count - 1))


def compare(study: VarianceStudy, one: str, other: str, *, tokens: str = "", seed: int = 0) -> Interval:
    """Variance under `one` over that under `other`, with its 95 % BCa bootstrap interval over batches.

    The games are the same for both. With `tokens`, variance times tokens is compared: at equal tokens a batch of a
    dearer estimator has fewer groups, and variance falls as one over their number, since groups are independent.

    Args:
        tokens: "sampled" or "read"; empty: at equal main lines.
    """

    def ratio(chosen: NDArray[np.int64]) -> float:
        picked = chosen.astype(np.int64)
        sides = [
            study.trace(name, picked) * (study.tokens(name, picked, read=tokens == "read") if tokens else 1.0)
            for name in (one, other)
        ]
        return sides[0] / sides[1] if sides[1] > 0 else float("nan")

    batches = np.arange(study.gram.shape[1])
    middle = ratio(batches)
    with warnings.catch_warnings():
        # Two estimators that are one and the same have a ratio of 1 in every resample.
        warnings.simplefilter("ignore")
        found = stats.bootstrap(
            (batches,),
            ratio,
            vectorized=False,
            n_resamples=RESAMPLES,
            rng=np.random.default_rng(seed),
        ).confidence_interval
    low, high = float(found.low), float(found.high)
    if not (np.isfinite(low) and np.isfinite(high)):
        low = high = middle
    return Interval(mean=middle, low=low, high=high)


def same_mean(study: VarianceStudy, one: str, other: str, *, seed: int = 0) -> MeanTest:
    """Sign-flip test on the paired differences of gradients, by the length of their sum."""
    a, b = ESTIMATORS.index(one), ESTIMATORS.index(other)
    products = study.gram[a, :, a] - study.gram[a, :, b] - study.gram[b, :, a] + study.gram[b, :, b]
    count = len(products)
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(RESAMPLES, count))
    lengths = np.einsum("ri,ij,rj->r", signs, products, signs, optimize=True)
    own = products.sum()
    squared = (own - np.trace(products)) / (count * (count - 1))
    mean = study.gram[b, :, b].sum() / count**2
    return MeanTest(
        difference=float(np.sqrt(max(squared, 0.0) / mean)) if mean > 0 else 0.0,
        p_value=float((1 + (lengths >= own * (1 - 1e-9)).sum()) / (1 + RESAMPLES)),
    )
