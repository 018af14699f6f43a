"""Losses, divergences and entropy per token (or per value); nothing here reduces over tokens.

Reduction is `masked`'s, and normalisers are computed once per batch, so that cutting a batch into
micro-batches cannot change a gradient (law 4). What a `mask` excludes is replaced before it is computed with.
"""

from typing import Literal

import torch
from torch import Tensor

from coplay.training.masked import keep, masked_sum

Normaliser = Literal["trajectories", "tokens", "sequence", "constant"]

LARGEST_LOG_RATIO = 30.0
"""Beyond this a log-ratio is an accident. exp(30) squared, summed over a million tokens, still fits float32."""


def normaliser(
    kind: Normaliser, *, num_trajectories: int, num_tokens: float, constant_length: int | None = None
) -> float:
    """What the summed loss of a step's whole batch is divided by: its trajectories (rule 7) or its action tokens.

    With "sequence" the loss is one of means over each trajectory's tokens, which are averaged over trajectories (GRPO);
    "constant" takes every trajectory to have `constant_length` tokens (Dr. GRPO). At least 1, so that a batch without
    tokens gives loss 0.

    Raises:
        ValueError: if the kind is unknown, or "constant" without a length.
    """
    if kind == "constant" and constant_length is None:
        raise ValueError("normaliser 'constant' got no constant_length; expected tokens per trajectory")
    counts = {
        "trajectories": num_trajectories,
        "tokens": num_tokens,
        "sequence": num_trajectories,
        "constant": num_trajectories * (constant_length or 1),
    }
    if kind not in counts:
        raise ValueError(f"normaliser is {kind!r}; expected one of {sorted(counts)}")
    return float(max(counts[kind], 1))


def reinforce(
    log_probs: Tensor, credits: Tensor, weights: Tensor | None = None, *, mask: Tensor | None = None
) -> Tensor:
    """−w · c · log π(token): its gradient is the score-function estimate (Williams 1992).

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


def ppo_clip(
    log_probs: Tensor,
    ratios: Tensor,
    credits: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """−min(r c, clip(r, 1 − low, 1 + high) c), for c < 0 at most −dual · c (arXiv 1707.06347, 1912.09729).

    The gradient is −r c ∇log π, and 0 where a bound holds: c > 0 and r > 1 + high; c < 0 and r < 1 − low; c < 0 and
    r > dual. The ratio of a turn or sequence stands for each of its tokens, and each answers for its own credit
    (GSPO-token, arXiv 2507.18071): at r = 1 the gradient is that of `reinforce`.

    Args:
        log_probs: (N,) of the policy as it is.
        ratios: (N,) to the policy before the update, taken as constants (`mean_ratios`).
        credits: (N,), taken as constants.
        clip_low: in (0, 1].
        clip_high: above 0.
        dual_clip: above 1 + clip_high; None: off.
        mask: (N,) bool, or None.

    Returns:
        (N,), 0 at masked tokens.
    """
    kept, credit = keep(log_probs, mask), keep(credits.detach(), mask)
    ratio = keep(ratios.detach(), mask) * (kept - kept.detach()).exp()
    surrogate = torch.minimum(ratio * credit, ratio.clamp(1 - clip_low, 1 + clip_high) * credit)
    if dual_clip is not None:
        surrogate = torch.where(credit < 0, torch.maximum(surrogate, dual_clip * credit), surrogate)
    return -surrogate


def _log_ratio(
    log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor | None, drop_likelier: bool
) -> Tensor:
    """X = log π_ref − log π, bounded, 0 where masked or dropped: estimators and gradients are 0 there."""
    gap = keep(reference_log_probs.detach(), mask) - keep(log_probs, mask)
    bounded = gap.clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
    return keep(bounded, gap <= 0) if drop_likelier else bounded


def kl_k1(
    log_probs: Tensor, reference_log_probs: Tensor, *, mask: Tensor | None = None, drop_likelier: bool = False
) -> Tensor:
    """k1 = −x with x = log π_ref − log π: unbiased for KL(π‖ref), of either sign (Schulman).

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
    """k2 = x² / 2 with x = log π_ref − log π: biased, low variance (Schulman).

    Arguments and result are those of `kl_k1`.
    """
    return _log_ratio(log_probs, reference_log_probs, mask, drop_likelier).square() / 2


def kl_k3(
    log_probs: Tensor, reference_log_probs: Tensor, *, mask: Tensor | None = None, drop_likelier: bool = False
) -> Tensor:
    """k3 = e^x − 1 − x with x = log π_ref − log π: unbiased for KL(π‖ref) and ≥ 0 (Schulman).

    Arguments and result are those of `kl_k1`.
    """
    x = _log_ratio(log_probs, reference_log_probs, mask, drop_likelier)
    return torch.expm1(x) - x


KL_ESTIMATORS = {"k1": kl_k1, "k2": kl_k2, "k3": kl_k3}


def kl_loss(
    kind: Literal["k1", "k2", "k3"],
    log_probs: Tensor,
    reference_log_probs: Tensor,
    *,
    drop_likelier: bool = False,
) -> Tensor:
    """An estimator of the KL as a term of the loss: k2 and k3 as they are, k1 with the gradient of k2.

    k1's own gradient is −∇x = ∇log π, 0 in the mean over π; k2's is −x ∇log π, in the mean the KL's own.

    Args:
        log_probs: (N,).
        reference_log_probs: (N,), taken as constants.
        drop_likelier: as in `kl_k1`.

    Returns:
        (N,).
    """
    value = KL_ESTIMATORS[kind](log_probs, reference_log_probs, drop_likelier=drop_likelier)
    if kind != "k1":
        return value
    pull = kl_k2(log_probs, reference_log_probs, drop_likelier=drop_likelier)
    return value.detach() + pull - pull.detach()


def entropy(logits: Tensor, *, top_k: int | None = None, mask: Tensor | None = None) -> Tensor:
    """H = −Σ p log p over the vocabulary, or over the renormalised top k; gradient −p (log p + H).

    A forbidden token (logit −inf) counts 0 and has gradient 0. Computed in float32 at least.

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


def clipped_values(values: Tensor, old: Tensor, clip: float) -> Tensor:
    """V_old + clip(V − V_old, ±clip): the value loss is the larger of those of V and of this (as in PPO's code).

    Args:
        values: any shape.
        old: same shape, values before the update, taken as constants.
        clip: above 0.
    """
    return old.detach() + (values - old.detach()).clamp(-clip, clip)
