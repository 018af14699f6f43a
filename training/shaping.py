"""From own and others' advantages to credit: shared reward, Advantage Alignment, visitation weights.

Who the others are and how their advantages arrive is in `packets`; centring and whitening are in `masked`.
"""

from typing import Literal

import torch
from torch import Tensor

from coplay.training.credit import discounted_sums
from coplay.training.masked import keep

Normalise = Literal["none", "t", "t+1"]


def _check_shapes(own: Tensor, others: Tensor, mask: Tensor | None) -> None:
    for name, tensor in (("others", others), ("mask", mask)):
        if own.dim() != 2 or (tensor is not None and tensor.shape != own.shape):
            got = None if tensor is None else tuple(tensor.shape)
            raise ValueError(
                f"own is {tuple(own.shape)} and {name} is {got}; expected the same shape (B, S) for both"
            )


def shared_reward(own: Tensor, others: Tensor, *, mask: Tensor | None = None) -> Tensor:
    """Everyone's advantage counts as one's own: c = A_i + Σ_{j≠i} A_j.

    Args:
        own: (B, S).
        others: (B, S), the sum over opponents.
        mask: (B, S) bool, or None.

    Returns:
        (B, S), 0 at masked cells.

    Raises:
        ValueError: if the shapes differ.
    """
    _check_shapes(own, others, mask)
    return keep(own + others, mask)


def alignment_weights(
    own: Tensor,
    *,
    discount: float,
    mask: Tensor | None = None,
    include_current: bool = False,
    normalise: Normalise = "none",
    extra_discount: bool = True,
) -> Tensor:
    """What multiplies the others' advantage at t: the own past, in the conventions of training/README.md.

    P (default)                γ Σ_{k<t} γ^{t−k} A_k
    D (extra_discount=False)     Σ_{k<t} γ^{t−k} A_k
    I (include_current=True)     Σ_{k≤t} γ^{t−k} A_k
    N_t (normalise="t")          Σ_{k<t} A_k / t, 0 at t = 0
    N_{1+t} (normalise="t+1")    Σ_{k<t} A_k / (1 + t)

    N does not discount; P and D differ by one factor γ (D at β is P at β / γ). A linear recurrence: no
    negative power of γ, any γ in [0, 1], any length.

    Args:
        own: (B, S).
        discount: γ in [0, 1].
        mask: (B, S) bool, or None.
        include_current: the sum includes k = t (I).
        normalise: mean over the past instead of the discounted sum (N).
        extra_discount: the further factor γ of P.

    Returns:
        (B, S), 0 at masked cells.

    Raises:
        ValueError: if include_current and normalise are both set, or the discount is outside [0, 1].
    """
    if normalise not in ("none", "t", "t+1"):
        raise ValueError(f"normalise is {normalise!r}; expected 'none', 't' or 't+1'")
    if normalise != "none" and include_current:
        raise ValueError(
            f"include_current=True with normalise={normalise!r}: convention N sums k < t only; set one"
        )
    rate = discount if normalise == "none" else 1.0
    sums = discounted_sums(keep(own, mask).flip(-1), rate).flip(-1)  # (B, S), Σ_{k≤t} rate^{t−k} A_k
    if include_current:
        return keep(sums, mask)
    past = rate * torch.nn.functional.pad(sums[:, :-1], (1, 0))
    if normalise == "none":
        return keep(discount * past if extra_discount else past, mask)
    elapsed = torch.arange(own.shape[1], dtype=own.dtype, device=own.device)
    return keep(past / (elapsed.clamp(min=1) if normalise == "t" else elapsed + 1), mask)


def advantage_alignment(  # noqa: PLR0913 - one keyword per published option
    own: Tensor,
    others: Tensor,
    *,
    beta: float,
    discount: float,
    past: Tensor | None = None,
    mask: Tensor | None = None,
    include_current: bool = False,
    normalise: Normalise = "none",
    extra_discount: bool = True,
    sign: bool = False,
    clip: float | None = None,
    divide_by_time: bool = False,
    force_first: bool = False,
) -> Tensor:
    """c_t = A_i,t + β w_t Σ_{j≠i} A_j,t with w the own past (arXiv 2406.14662).

    The convention of w is that of `alignment_weights`, P by default. The published code's other options
    act on w in this order: sign, clip, divide by time, force the first.

    Args:
        own: (B, S), the player's advantages.
        others: (B, S), the opponents' advantages, summed over opponents.
        beta: strength β, in units of scaled rewards; 0 gives `own` back.
        discount: γ in [0, 1].
        past: (B, S), what w is made of in place of `own`, as `inner_expectation` has it; None: `own`.
        mask: (B, S) bool, True on real ticks, or None.
        include_current: convention I.
        normalise: "t" is convention N_t, "t+1" is N_{1+t}.
        extra_discount: False is convention D.
        sign: use the sign of w.
        clip: bound w to [−clip, clip].
        divide_by_time: divide w_t by 1 + t.
        force_first: w_0 = 1.

    Returns:
        (B, S), 0 at masked cells.

    Raises:
        ValueError: if the shapes differ, options contradict each other, clip is not positive, or the discount
            is outside [0, 1].
    """
    _check_shapes(own, others, mask)
    if past is not None:
        _check_shapes(own, past, mask)
    if clip is not None and not clip > 0:
        raise ValueError(f"clip is {clip!r}; expected a positive number, or None for no clipping")
    weights = alignment_weights(
        own if past is None else past,
        discount=discount,
        mask=mask,
        include_current=include_current,
        normalise=normalise,
        extra_discount=extra_discount,
    )
    weights = torch.sign(weights) if sign else weights
    weights = weights if clip is None else weights.clamp(-clip, clip)
    ticks = torch.arange(own.shape[1], device=own.device)
    weights = weights / (ticks + 1).to(own.dtype) if divide_by_time else weights
    weights = torch.where(ticks == 0, torch.ones_like(weights), weights) if force_first else weights
    return keep(keep(own, mask) + beta * weights * keep(others, mask), mask)


def visitation_weights(mask: Tensor, discount: float, *, dtype: torch.dtype = torch.float32) -> Tensor:
    """γ^t: how much the discounted objective visits tick t; applied last (rule 7).

    Args:
        mask: (B, S) bool, True on real ticks.
        discount: γ in [0, 1].
        dtype: of the result.

    Returns:
        (B, S), 0 at masked cells.

    Raises:
        ValueError: if the discount is outside [0, 1].
    """
    if not 0.0 <= discount <= 1.0:
        raise ValueError(f"discount is {discount!r}; expected a number in [0, 1]")
    ticks = torch.arange(mask.shape[1], dtype=torch.float64, device=mask.device)
    return keep((discount**ticks).to(dtype).expand(mask.shape), mask)
