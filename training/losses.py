"""Losses, divergences and entropy per token (or per value); nothing here reduces over tokens.

Reduction is `masked`'s, and normalisers are computed once per batch, so that cutting a batch into
micro-batches cannot change a gradient (law 4). What a `mask` excludes is replaced before it is computed with.
"""

from typing import Literal

import torch
from torch import Tensor

from coplay.training.masked import keep, masked_sum

Normaliser = Literal["trajectories", "tokens"]

# Beyond this a log-ratio is an accident; exp of it still fits every float type but half.
_LARGEST_LOG_RATIO = 30.0


def normaliser(kind: Normaliser, *, num_trajectories: int, num_tokens: float) -> float:
    """What the summed loss of a whole batch is divided by: its trajectories (rule 7) or its action tokens.

    At least 1, so that a batch without tokens gives loss 0 (B25).

    Raises:
        ValueError: if the kind is unknown.
    """
    counts = {"trajectories": num_trajectories, "tokens": num_tokens}
    if kind not in counts:
        raise ValueError(f"normaliser is {kind!r}; expected one of {sorted(counts)}")
    return float(max(counts[kind], 1))


def reinforce(
    log_probs: Tensor, credits: Tensor, weights: Tensor | None = None, *, mask: Tensor | None = None
) -> Tensor:
    """−w · c · log π(token): its gradient is the score-function estimate (Williams 1992; MATH.md 1.1).

    Args:
        log_probs: (N,).
        credits: (N,), taken as constants.
        weights: (N,) importance weights, taken as constants; None: 1.
        mask: (N,) bool, or None.

    Returns:
        (N,), 0 at masked tokens.
    """
    scale = credits.detach() if weights is None else weights.detach() * credits.detach()
    return -keep(scale, mask) * keep(log_probs, mask)


def _log_ratio(
    log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor | None, drop_likelier: bool
) -> Tensor:
    """X = log π_ref − log π, bounded, 0 where masked or dropped: estimators and gradients are 0 there."""
    gap = keep(reference_log_probs.detach(), mask) - keep(log_probs, mask)
    bounded = gap.clamp(-_LARGEST_LOG_RATIO, _LARGEST_LOG_RATIO)
    return keep(bounded, gap <= 0) if drop_likelier else bounded


def kl_k1(
    log_probs: Tensor, reference_log_probs: Tensor, *, mask: Tensor | None = None, drop_likelier: bool = False
) -> Tensor:
    """k1 = −x with x = log π_ref − log π: unbiased for KL(π‖ref), of either sign (Schulman; MATH.md 1.9).

    Args:
        log_probs: (N,).
        reference_log_probs: (N,), taken as constants.
        mask: (N,) bool, or None.
        drop_likelier: 0 at tokens that the reference finds likelier than the policy does (x > 0).

    Returns:
        (N,), 0 at masked tokens.
    """
    return -_log_ratio(log_probs, reference_log_probs, mask, drop_likelier)


def kl_k2(
    log_probs: Tensor, reference_log_probs: Tensor, *, mask: Tensor | None = None, drop_likelier: bool = False
) -> Tensor:
    """k2 = x² / 2 with x = log π_ref − log π: biased, low variance (Schulman; MATH.md 1.9).

    Args:
        log_probs: (N,).
        reference_log_probs: (N,), taken as constants.
        mask: (N,) bool, or None.
        drop_likelier: 0 at tokens that the reference finds likelier than the policy does (x > 0).

    Returns:
        (N,), 0 at masked tokens.
    """
    return _log_ratio(log_probs, reference_log_probs, mask, drop_likelier).square() / 2


def kl_k3(
    log_probs: Tensor, reference_log_probs: Tensor, *, mask: Tensor | None = None, drop_likelier: bool = False
) -> Tensor:
    """k3 = e^x − 1 − x with x = log π_ref − log π: unbiased for KL(π‖ref) and ≥ 0 (Schulman; MATH.md 1.9).

    Args:
        log_probs: (N,).
        reference_log_probs: (N,), taken as constants.
        mask: (N,) bool, or None.
        drop_likelier: 0 at tokens that the reference finds likelier than the policy does (x > 0).

    Returns:
        (N,), 0 at masked tokens.
    """
    x = _log_ratio(log_probs, reference_log_probs, mask, drop_likelier)
    return torch.expm1(x) - x


def entropy(logits: Tensor, *, top_k: int | None = None, mask: Tensor | None = None) -> Tensor:
    """H = −Σ p log p over the vocabulary, or over the renormalised top k; gradient −p (log p + H).

    A forbidden token (logit −inf) counts 0 and has gradient 0 (B24). Computed in float32 at least.

    Args:
        logits: (N, V), −inf where forbidden; at least one finite per included row.
        top_k: keep the k largest logits, at least 1; None: all.
        mask: (N,) bool, or None.

    Returns:
        (N,), 0 at masked rows.

    Raises:
        ValueError: if top_k is below 1.
    """
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k is {top_k}; expected at least 1, or None for the whole vocabulary")
    visible = keep(at_least_float32(logits), None if mask is None else mask[:, None])
    if top_k is not None and top_k < visible.shape[-1]:
        visible = torch.topk(visible, top_k, dim=-1).values
    log_p = torch.log_softmax(visible, dim=-1)  # (N, K)
    # exp needs no guard at −inf; the factor beside it does, or its gradient would be 0 times infinity.
    finite = keep(log_p, log_p > -torch.inf)
    return keep(-masked_sum(log_p.exp() * finite, None, dim=-1), mask)


def at_least_float32(x: Tensor) -> Tensor:
    """Half types as float32; float32 and float64 as they are."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def mse(values: Tensor, targets: Tensor, *, mask: Tensor | None = None) -> Tensor:
    """(V − target)² per value.

    Args:
        values: any shape.
        targets: same shape, taken as constants.
        mask: same shape, bool, or None.

    Returns:
        Same shape, 0 where masked.
    """
    return (keep(values, mask) - keep(targets.detach(), mask)).square()


def huber(values: Tensor, targets: Tensor, *, delta: float = 1.0, mask: Tensor | None = None) -> Tensor:
    """d² / 2 for |d| ≤ δ, else δ (|d| − δ / 2), with d = V − target (Huber 1964).

    Args:
        values: any shape.
        targets: same shape, taken as constants.
        delta: δ > 0, where the square turns into a line.
        mask: same shape, bool, or None.

    Returns:
        Same shape, 0 where masked.
    """
    kept, aims = keep(values, mask), keep(targets.detach(), mask)
    return torch.nn.functional.huber_loss(kept, aims, reduction="none", delta=delta)
