"""Truncated importance weights: how much likelier the trainer finds a reply than the engine did."""

import math
from typing import Literal

import torch
from torch import Tensor

from coplay.training.losses import LARGEST_LOG_RATIO
from coplay.training.masked import keep, masked_mean, masked_sum, segment_sum

Strategy = Literal["none", "token", "turn", "sequence"]


def importance_ratios(
    log_probs: Tensor,
    behaviour_log_probs: Tensor,
    *,
    strategy: Strategy = "token",
    turn_ids: Tensor | None = None,
    row_ids: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """ρ = exp(Σ (log π − log μ)), over the token, its turn or its row; every token carries its unit's ratio.

    Sums are by id. The exponent is bounded to ±30 after summing: a product over a long turn cannot overflow.

    Args:
        log_probs: (N,) of the trainer.
        behaviour_log_probs: (N,) as sampled.
        strategy: unit of the product; "none" gives 1 everywhere.
        turn_ids: (N,) long, unique per (row, turn); needed by "turn".
        row_ids: (N,) long; needed by "sequence".
        mask: (N,) bool, or None.

    Returns:
        (N,), detached, not capped; 0 at masked tokens.

    Raises:
        ValueError: if the strategy is unknown, its ids are missing, or the shapes differ.
    """
    units = {"none": None, "token": None, "turn": turn_ids, "sequence": row_ids}
    if strategy not in units:
        raise ValueError(f"strategy is {strategy!r}; expected one of {sorted(units)}")
    if strategy in ("turn", "sequence") and units[strategy] is None:
        needed = "turn_ids" if strategy == "turn" else "row_ids"
        raise ValueError(f"strategy {strategy!r} got {needed}=None; expected one id per token: pass {needed}")
    if log_probs.shape != behaviour_log_probs.shape:
        raise ValueError(
            f"log_probs are {tuple(log_probs.shape)}, behaviour_log_probs {tuple(behaviour_log_probs.shape)};"
            " expected the same shape (N,)"
        )
    if strategy == "none":
        return keep(torch.ones_like(log_probs).detach(), mask)
    gaps = keep((log_probs - behaviour_log_probs).detach(), mask)
    ids = units[strategy]
    if ids is not None:
        index = _numbered(ids)
        gaps = segment_sum(gaps, index, len(ids))[index]
    return keep(gaps.clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO).exp(), mask)


def mean_ratios(
    log_probs: Tensor,
    old_log_probs: Tensor,
    *,
    unit: Literal["token", "turn", "sequence"] = "token",
    turn_ids: Tensor | None = None,
    row_ids: Tensor | None = None,
) -> Tensor:
    """R = exp mean (log π − log π_old) over the token, its turn or its row: PPO's ratio, for a row that of GSPO.

    Args:
        log_probs: (N,) of the policy as it is.
        old_log_probs: (N,) of the policy before the update.
        unit: what the mean is over; every token carries its unit's.
        turn_ids: (N,) long; needed by "turn".
        row_ids: (N,) long; needed by "sequence".

    Returns:
        (N,), detached.
    """
    gaps = (log_probs - old_log_probs).detach()
    ids = {"token": None, "turn": turn_ids, "sequence": row_ids}[unit]
    if unit != "token":
        assert ids is not None
        gaps = segment_mean(gaps, ids)
    return gaps.clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO).exp()


def segment_mean(x: Tensor, ids: Tensor) -> Tensor:
    """(N,) the mean over those that share an id with each."""
    index = _numbered(ids)
    return segment_sum(x, index, len(ids))[index] / segment_sizes(ids)


def segment_sizes(ids: Tensor) -> Tensor:
    """(N,) how many share each one's id."""
    index = _numbered(ids)
    return segment_sum(torch.ones_like(ids), index, len(ids))[index]


def _numbered(ids: Tensor) -> Tensor:
    """(N,) ids as numbers below N; unlike `torch.unique` it lets an accelerator run on."""
    ascending, order = ids.sort(stable=True)
    changes = torch.zeros_like(ids)
    changes[1:] = ascending[1:] != ascending[:-1]
    return torch.empty_like(ids).scatter(0, order, changes.cumsum(0))


def truncate(ratios: Tensor, cap: float | None) -> Tensor:
    """min(ρ, cap): capped from above only; a cap of None or ≤ 0 is off.

    Args:
        ratios: (N,).
        cap: the largest weight.
    """
    return ratios if cap is None or cap <= 0 else ratios.clamp(max=cap)


def importance_weights(
    log_probs: Tensor,
    behaviour_log_probs: Tensor,
    *,
    strategy: Strategy = "token",
    cap: float | None = 2.0,
    turn_ids: Tensor | None = None,
    row_ids: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Truncated importance weights w = min(ρ, cap), detached: they have no gradient.

    Args:
        log_probs: (N,) of the trainer.
        behaviour_log_probs: (N,) as sampled.
        strategy: unit of the product: "token", "turn", "sequence", or "none" for 1 everywhere.
        cap: the largest weight; None or ≤ 0: off.
        turn_ids: (N,) long, unique per (row, turn); needed by "turn".
        row_ids: (N,) long; needed by "sequence".
        mask: (N,) bool, or None.

    Returns:
        (N,), detached; 0 at masked tokens.

    Raises:
        ValueError: if the strategy is unknown, its ids are missing, or the shapes differ.
    """
    ratios = importance_ratios(
        log_probs, behaviour_log_probs, strategy=strategy, turn_ids=turn_ids, row_ids=row_ids, mask=mask
    )
    return truncate(ratios, cap)


def effective_sample_size(ratios: Tensor, mask: Tensor | None = None) -> Tensor:
    """(Σ ρ)² / Σ ρ², a scalar between 1 and the number of included tokens; 0 where nothing is included.

    Args:
        ratios: (N,) ≥ 0.
        mask: (N,) bool, or None.
    """
    squares = masked_sum(ratios.square(), mask)
    return masked_sum(ratios, mask).square() / torch.where(squares > 0, squares, torch.ones_like(squares))


def clip_fraction(ratios: Tensor, cap: float | None, mask: Tensor | None = None) -> Tensor:
    """Share of the included tokens whose ratio stands above the cap, a scalar.

    Args:
        ratios: (N,), not capped.
        cap: the largest weight; None or ≤ 0: off.
        mask: (N,) bool, or None.
    """
    limit = math.inf if cap is None or cap <= 0 else cap
    return masked_mean((ratios > limit).to(ratios.dtype), mask)
