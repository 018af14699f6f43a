"""Returns and advantages of single trajectories over ticks, and how a token finds its credit.

Baselines over groups are in `baselines`, shaping by others' advantages in `shaping`.
"""

import torch
from torch import Tensor

from coplay.training.masked import keep


def discounted_sums(x: Tensor, discount: float) -> Tensor:
    """y_t = x_t + discount · y_{t+1}, that is Σ_{k≥t} discount^{k−t} x_k, along the last dimension.

    By doubling: after j passes y_t holds the terms of the next 2^j cells, so S cells take log₂ S tensor
    operations; powers of the discount only shrink, and zeros after a row's end change no bit before it.

    Args:
        x: (B, S), 0 at padded cells.
        discount: in [0, 1].

    Returns:
        (B, S).

    Raises:
        ValueError: if the discount is outside [0, 1].
    """
    if not 0.0 <= discount <= 1.0:
        raise ValueError(f"discount is {discount!r}; expected a number in [0, 1]")
    total, stride = x, 1
    while stride < x.shape[-1]:
        later = torch.nn.functional.pad(total[..., stride:], (0, stride))
        total = total + discount**stride * later
        stride *= 2
    return total


def check_right_padded(mask: Tensor) -> None:
    """Refuse a mask with a hole: a tick without tokens is still a tick, only the end may be padded.

    Args:
        mask: (B, S) bool.

    Raises:
        ValueError: if a row has True after False.
    """
    late = mask[:, 1:] & ~mask[:, :-1]
    if bool(late.any()):
        row, tick = (int(i) for i in late.nonzero()[0])
        raise ValueError(
            f"mask row {row} is True at tick {tick + 1} after False at tick {tick}; expected a right-padded"
            " mask, True on every tick of the game: pass those, and mask a player's own tokens in the loss"
        )


def _last_cells(mask: Tensor) -> Tensor:
    """True on the last included cell of each row; (B, S) bool."""
    return mask & ~torch.nn.functional.pad(mask[:, 1:], (0, 1))


def _checked(x: Tensor, mask: Tensor | None, bootstrap: Tensor | None) -> Tensor:
    """The mask to use, (B, S) bool, after checking every shape."""
    if x.dim() != 2:
        raise ValueError(f"rewards have shape {tuple(x.shape)}; expected (B, S), trajectories by ticks")
    included = torch.ones_like(x, dtype=torch.bool) if mask is None else mask
    if included.shape != x.shape or included.dtype != torch.bool:
        raise ValueError(
            f"mask is {included.dtype} {tuple(included.shape)}; expected torch.bool {tuple(x.shape)}"
        )
    if bootstrap is not None and bootstrap.shape != x.shape[:1]:
        raise ValueError(
            f"bootstrap has shape {tuple(bootstrap.shape)}; expected {tuple(x.shape[:1])}, one per row"
        )
    check_right_padded(included)
    return included


def discounted_returns(
    rewards: Tensor, *, discount: float, mask: Tensor | None = None, bootstrap: Tensor | None = None
) -> Tensor:
    """Rewards-to-go: G_t = Σ_{k≥t} γ^{k−t} r_k (+ γ^{T−t} V_T for a truncated game).

    Args:
        rewards: (B, S), right-padded.
        discount: γ in [0, 1], per tick.
        mask: (B, S) bool, True on real ticks; None: all are.
        bootstrap: (B,) value after the last tick, 0 where the game was over; None: 0 everywhere.

    Returns:
        (B, S), 0 at masked cells.

    Raises:
        ValueError: if a shape differs, the mask is not right-padded, or the discount is outside [0, 1].
    """
    included = _checked(rewards, mask, bootstrap)
    kept = keep(rewards, included)
    if bootstrap is not None:
        kept = kept + keep(discount * bootstrap[:, None], _last_cells(included))
    return discounted_sums(kept, discount)


def generalized_advantages(
    rewards: Tensor,
    values: Tensor,
    *,
    discount: float,
    gae_lambda: float,
    mask: Tensor | None = None,
    bootstrap: Tensor | None = None,
) -> Tensor:
    """GAE: δ_t = r_t + γ V_{t+1} − V_t, A_t = Σ_{k≥t} (γλ)^{k−t} δ_k (arXiv 1506.02438, eq. 16).

    Args:
        rewards: (B, S), right-padded.
        values: (B, S), V at each tick; whatever stands at masked cells is never read.
        discount: γ in [0, 1], per tick.
        gae_lambda: λ in [0, 1], per tick.
        mask: (B, S) bool, True on real ticks; None: all are.
        bootstrap: (B,) value after the last tick, 0 where the game was over; None: 0 everywhere.

    Returns:
        (B, S), 0 at masked cells.

    Raises:
        ValueError: if a shape differs, the mask is not right-padded, or γ or λ is outside [0, 1].
    """
    included = _checked(rewards, mask, bootstrap)
    if values.shape != rewards.shape:
        raise ValueError(
            f"values have shape {tuple(values.shape)}; expected that of rewards, {tuple(rewards.shape)}"
        )
    if not 0.0 <= gae_lambda <= 1.0:
        raise ValueError(f"gae_lambda is {gae_lambda!r}; expected a number in [0, 1]")
    kept = keep(values, included)
    following = torch.nn.functional.pad(kept[:, 1:], (0, 1))  # (B, S)
    if bootstrap is not None:
        following = torch.where(_last_cells(included), bootstrap[:, None], following)
    errors = keep(rewards + discount * following - kept, included)
    return discounted_sums(errors, discount * gae_lambda)


def token_credits(credits: Tensor, trajectories: Tensor, ticks: Tensor) -> Tensor:
    """The credit of each token: that of its trajectory's tick, shared by all tokens of the tick.

    Args:
        credits: (B, S).
        trajectories: (N,) long, row of each token.
        ticks: (N,) long, tick of each token.

    Returns:
        (N,).
    """
    return credits[trajectories, ticks]
