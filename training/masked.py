"""Every reduction over cells: sums, means, deviations, whitening, segments. In a mask True means included.

A masked cell is invisible (law 3): what it holds, even NaN or infinity, reaches neither value nor gradient.
Nothing else in `coplay.training` sums, averages or normalises over cells.
"""

from dataclasses import dataclass, fields

import torch
from torch import Tensor

# A deviation below this many rounding units of the largest entry is rounding, not spread.
_ROUNDING_UNITS = 16.0


def keep(x: Tensor, mask: Tensor | None) -> Tensor:
    """`x` where included, 0 elsewhere; never multiplies by the mask, since NaN times 0 is NaN.

    Args:
        x: any shape.
        mask: bool, broadcastable to `x`; None includes everything.

    Raises:
        TypeError: if the mask is not bool.
    """
    if mask is None:
        return x
    if mask.dtype != torch.bool:
        raise TypeError(
            f"mask has dtype {mask.dtype}; expected torch.bool (True = included): use `mask.bool()`"
        )
    return torch.where(mask, x, torch.zeros((), dtype=x.dtype, device=x.device))


def masked_count(x: Tensor, mask: Tensor | None, dim: int | None = None, *, keepdim: bool = False) -> Tensor:
    """Number of included cells, in the dtype of `x`; scalar, or reduced over `dim`."""
    return masked_sum(torch.ones_like(x), mask, dim, keepdim=keepdim)


def masked_sum(x: Tensor, mask: Tensor | None, dim: int | None = None, *, keepdim: bool = False) -> Tensor:
    """Sum of the included cells: Σ_{mask} x.

    Args:
        x: any shape.
        mask: bool, broadcastable to `x`; None includes everything.
        dim: dimension to reduce; None reduces all to a scalar.
        keepdim: keep the reduced dimension as length 1.
    """
    kept = keep(x, mask)
    return kept.sum() if dim is None else kept.sum(dim, keepdim=keepdim)


def masked_mean(x: Tensor, mask: Tensor | None, dim: int | None = None, *, keepdim: bool = False) -> Tensor:
    """Mean of the included cells, 0 (with gradient 0) where nothing is included.

    Args:
        x: any shape.
        mask: bool, broadcastable to `x`; None includes everything.
        dim: dimension to reduce; None reduces all to a scalar.
        keepdim: keep the reduced dimension as length 1.
    """
    count = masked_count(x, mask, dim, keepdim=keepdim)
    return masked_sum(x, mask, dim, keepdim=keepdim) / count.clamp(min=1)


def masked_std(x: Tensor, mask: Tensor | None, dim: int | None = None, *, keepdim: bool = False) -> Tensor:
    """Sample standard deviation of the included cells: sqrt(Σ (x − mean)² / (n − 1)), in two passes.

    0 for fewer than two cells and where the spread is only rounding; the gradient is finite there.

    Args:
        x: any shape.
        mask: bool, broadcastable to `x`; None includes everything.
        dim: dimension to reduce; None reduces all to a scalar.
        keepdim: keep the reduced dimension as length 1.
    """
    count = masked_count(x, mask, dim, keepdim=keepdim)
    centred = keep(x, mask) - masked_mean(x, mask, dim, keepdim=dim is not None)
    variance = masked_sum(centred.square(), mask, dim, keepdim=keepdim) / (count - 1).clamp(min=1)
    size = keep(x.detach(), mask).abs()
    largest = size.max() if dim is None else size.amax(dim, keepdim=keepdim)
    return spread(variance, largest)


def spread(variance: Tensor, largest: Tensor) -> Tensor:
    """sqrt(variance), exactly 0 where it is rounding beside entries as large as `largest`.

    Args:
        variance: any shape, ≥ 0.
        largest: same shape, the largest absolute entry the variance was taken over.
    """
    floor = (_ROUNDING_UNITS * torch.finfo(variance.dtype).eps * largest).square()
    real = (variance > floor) & (variance > 0)
    return keep(torch.where(real, variance, torch.ones_like(variance)).sqrt(), real)


def centre(x: Tensor, mask: Tensor | None, *, per_step: bool = False) -> Tensor:
    """Subtract the masked mean; masked cells give 0.

    Args:
        x: (B, S).
        mask: (B, S) bool, or None.
        per_step: one mean per column over the rows included there, instead of one over all cells.
    """
    dim = 0 if per_step else None
    return keep(x - masked_mean(x, mask, dim, keepdim=per_step), mask)


def whiten(x: Tensor, mask: Tensor | None, *, per_step: bool = False, epsilon: float = 1e-9) -> Tensor:
    """(x − mean) / (std + epsilon) with the masked sample deviation; masked cells give 0.

    Fewer than two included cells, or no spread beyond rounding, give the centred values undivided.

    Args:
        x: (B, S).
        mask: (B, S) bool, or None.
        per_step: statistics per column over the rows included there, instead of over all cells.
        epsilon: added to the deviation.
    """
    deviation = masked_std(x, mask, 0 if per_step else None, keepdim=per_step)
    divisor = torch.where(deviation > 0, deviation + epsilon, torch.ones_like(deviation))
    return centre(x, mask, per_step=per_step) / divisor


def normalised(x: Tensor, mask: Tensor | None, *, whitening: str = "off", centring: str = "off") -> Tensor:
    """Whiten, then centre, each "off", over the whole "batch", or over each "tick" apart (rule 6).

    Args:
        x: (B, S).
        mask: (B, S) bool.
    """
    if whitening != "off":
        x = whiten(x, mask, per_step=whitening == "tick")
    if centring != "off":
        x = centre(x, mask, per_step=centring == "tick")
    return x


def segment_sum(x: Tensor, segments: Tensor, num_segments: int, mask: Tensor | None = None) -> Tensor:
    """Sum of the included cells of each segment along the first dimension, by id and not by position (law 5).

    Args:
        x: (N, ...).
        segments: (N,) long, in [0, num_segments).
        num_segments: number of segments G.
        mask: bool, broadcastable to `x`; None includes everything.

    Returns:
        (G, ...).
    """
    zeros = torch.zeros((num_segments, *x.shape[1:]), dtype=x.dtype, device=x.device)
    return zeros.index_add(0, segments, keep(x, mask))


def segment_largest(x: Tensor, segments: Tensor, num_segments: int, mask: Tensor | None = None) -> Tensor:
    """Largest absolute included cell of each segment along the first dimension, 0 for an empty one.

    Args:
        x: (N, ...).
        segments: (N,) long, in [0, num_segments).
        num_segments: number of segments G.
        mask: bool, broadcastable to `x`; None includes everything.

    Returns:
        (G, ...).
    """
    zeros = torch.zeros((num_segments, *x.shape[1:]), dtype=x.dtype, device=x.device)
    sizes = keep(x, mask).abs()
    places = segments.reshape(-1, *(1,) * (x.dim() - 1)).expand_as(sizes)
    return zeros.scatter_reduce(0, places, sizes, "amax")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How the included cells of each of G segments lie; NaN where a segment has none, all (G,) float64."""

    mean: Tensor
    max: Tensor
    min: Tensor
    deviation: Tensor
    """Sample standard deviation; 0 for a single cell."""

    def told(self, place: int, prefix: str) -> dict[str, Tensor]:
        """The numbers of one segment, as `prefix` and `mean`, `max`, `min`, `deviation`."""
        return {f"{prefix}{one.name}": getattr(self, one.name)[place] for one in fields(self)}


def segment_spread(x: Tensor, segments: Tensor, num_segments: int, mask: Tensor | None = None) -> Spread:
    """Mean, largest, smallest and deviation of each segment's included cells, by id and not by position (law 5).

    Args:
        x: (N,).
        segments: (N,) long, in [0, num_segments).
        num_segments: number of segments G.
        mask: (N,) bool; None includes everything.
    """
    if mask is not None:
        x, segments = x[mask], segments[mask]
    x = x.double()
    counts = segment_sum(torch.ones_like(x), segments, num_segments)  # (G,)
    mean = segment_sum(x, segments, num_segments) / counts
    squares = segment_sum((x - mean[segments]).square(), segments, num_segments)
    deviation = spread(squares / (counts - 1).clamp(min=1), segment_largest(x, segments, num_segments))
    nothing = torch.full_like(mean, float("nan"))
    ends = {
        name: nothing.scatter_reduce(0, segments, x, name, include_self=False) for name in ("amax", "amin")
    }
    return Spread(
        mean=mean, max=ends["amax"], min=ends["amin"], deviation=torch.where(counts > 0, deviation, nothing)
    )
