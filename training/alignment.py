"""Whether the engine sampled from the distribution that the trainer computes, token by token (law 2).

Every token's two log-probs stand side by side, in order: what is compared is never an average with an average. An
engine that reports no log-probs, but writes some number in their place, is told from one that was certain.
"""

import logging
from collections.abc import Mapping

import torch
from torch import Tensor

from coplay.training.masked import masked_mean, masked_sum, segment_sum
from coplay.training.objectives import ObjectiveSettings

_LOG = logging.getLogger(__name__)
NOTABLE = 0.1
"""Nats; a token this far off had its probability changed by a tenth."""
LARGE = 2.0
"""Nats; a token this far off was read in another context, or not at all."""
REPEATED = 8
"""So many tokens with one log-prob of the engine, and several of the trainer, are no chance."""


class RatioGapError(ArithmeticError):
    """The sampler drew from another distribution than the trainer computes (law 2)."""


def gap_measures(behaviour: Tensor, log_probs: Tensor) -> dict[str, Tensor]:
    """How |log pi - log mu| lies over a policy's N tokens, besides its mean and maximum.

    `ratio_gap_median` and `ratio_gap_p99` (the smallest gap that so many tokens do not exceed), and the shares
    `ratio_gap_above_0.1` and `ratio_gap_above_2`, in nats. What nobody sampled (NaN of the engine) has no gap.
    """
    known = ~torch.isnan(behaviour)
    gaps = (log_probs - behaviour)[known].abs().double().sort().values
    if not len(gaps):
        gaps = gaps.new_full((1,), float("nan"))
    last = len(gaps) - 1
    return {
        "ratio_gap_median": gaps[last // 2],
        "ratio_gap_p99": gaps[min(last, -(-99 * len(gaps) // 100) - 1)],
        "ratio_gap_above_0.1": masked_mean((gaps > NOTABLE).double(), None),
        "ratio_gap_above_2": masked_mean((gaps > LARGE).double(), None),
    }


def placeholders(behaviour: Tensor, log_probs: Tensor) -> Tensor:
    """(N,) True for tokens whose engine log-prob is no log-prob.

    That is one above 0; or one that at least REPEATED tokens have to the last bit while the trainer finds them apart by
    more than NOTABLE, and this one off by half of that. A token that was certain has 0 on both sides and is none.

    Args:
        behaviour: (N,) of the engine.
        log_probs: (N,) of the trainer.
    """
    values, places = torch.unique(behaviour, return_inverse=True)
    shape = (len(values),)
    nothing = log_probs.new_full(shape, float("nan"))
    highest = nothing.scatter_reduce(0, places, log_probs, "amax", include_self=False)
    lowest = nothing.scatter_reduce(0, places, log_probs, "amin", include_self=False)
    counts = segment_sum(torch.ones_like(log_probs), places, len(values))
    odd = (counts >= REPEATED) & (highest - lowest > NOTABLE)
    return (odd[places] & ((log_probs - behaviour).abs() > NOTABLE / 2)) | (behaviour > 1e-4)


def check_gap(policy: str, behaviour: Tensor, log_probs: Tensor, largest: float | None) -> None:
    """Law 2: on average the trainer finds a token as likely as its sampler did, but for rounding.

    Args:
        policy: `name@version`, for the message.
        behaviour: (N,) of the engine.
        log_probs: (N,) of the trainer, from before the update.
        largest: mean gap above which the step is refused; None: nothing is.

    Raises:
        RatioGapError: if it does not, or the engine's log-probs are none.
    """
    if largest is None:
        return
    gap = float(masked_mean((log_probs - behaviour).abs(), None))
    made_up = placeholders(behaviour, log_probs)
    count = int(masked_sum(made_up.long(), None))
    if count:
        example = float(behaviour[made_up][0])
        raise RatioGapError(
            f"policy {policy!r}: the engine reported {example:g} as the log-prob of tokens that the trainer finds"
            f" unequally likely, {count} of {len(behaviour)} in all; expected each token's own log-prob; the step was"
            " refused: let the engine report processed log-probs of the tokens it samples"
        )
    if gap > largest:
        raise RatioGapError(
            f"policy {policy!r}: trainer and sampler disagree by {gap:.3f} per token in log-prob; expected at"
            f" most {largest} before an update; the step was refused: check that the engine samples from these"
            " weights, at this temperature and under this grammar"
        )


def alarm(policy: str, behaviour: Tensor, log_probs: Tensor, settings: ObjectiveSettings) -> str | None:
    """One sentence if the gaps are notable though not refused: their mean, or more than one token in a hundred."""
    numbers = {name: float(value) for name, value in gap_measures(behaviour, log_probs).items()}
    gaps = (log_probs - behaviour).abs()
    mean, limit = float(masked_mean(gaps, ~torch.isnan(gaps))), settings.alarm_gap
    if limit is None or (mean <= limit and numbers["ratio_gap_p99"] <= max(limit, NOTABLE)):
        return None
    return (
        f"policy {policy!r}: trainer and sampler disagree by {mean:.4f} a token in log-prob at the start, median"
        f" {numbers['ratio_gap_median']:.4f}, 99th percentile {numbers['ratio_gap_p99']:.3f},"
        f" {numbers['ratio_gap_above_2']:.2%} of tokens by more than {LARGE:g}; expected at most {limit} on average and"
        f" {max(limit, NOTABLE)} for 99 tokens in 100; training goes on with importance weights: compare precision,"
        " temperature, grammar and context of both"
    )


def raise_alarms(found: Mapping[str, tuple[Tensor, Tensor]], settings: ObjectiveSettings) -> None:
    """Warn on the console of each policy that needs it; `found` holds log-probs of engine and trainer."""
    for policy, (behaviour, log_probs) in found.items():
        told = alarm(policy, behaviour, log_probs, settings)
        if told is not None:
            _LOG.warning("%s", told)
