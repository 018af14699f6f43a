"""What a policy's step tells: how far trainer, sampler and the policy before the update are apart, what was clipped."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from coplay.training.importance import clip_fraction, effective_sample_size
from coplay.training.losses import kl_k3
from coplay.training.masked import masked_mean, masked_sum
from coplay.training.metrics import fetch
from coplay.training.objectives import ObjectiveSettings, PpoObjective
from coplay.training.records import TokenBatch, UpdateResult
from coplay.training.terms import Before


def distance(batch: TokenBatch, log_probs: Tensor, before: Before | None) -> dict[str, Tensor]:
    """Mean k3 a token from the policy before the update to the policy as it is, whose tokens the former drew."""
    if before is None:
        return {}
    return {"approx_kl": _mean(batch, kl_k3(before.log_probs, log_probs))}


def step_metrics(
    numbers: Mapping[str, float],
    batch: TokenBatch,
    credits: Tensor,
    settings: ObjectiveSettings,
    log_probs: Tensor,
    weights: Tensor,
    ratios: Tensor,
) -> dict[str, float]:
    """A step's metrics; means are over tokens, each with its share where paths branch."""
    weight = max(batch.total_weight, 1)
    per_token = {name: numbers[name] / weight for name in ("entropy", "kl") if name in numbers}
    told = {name: numbers[name] for name in ("loss", "gradient_norm", "approx_kl") if name in numbers}
    extra = fetch(
        {
            **_against_sampler(batch, settings, log_probs, weights),
            **_clipping(batch, credits, settings, ratios),
        }
    )
    return {
        **told, **per_token, **extra,
        "tokens": float(batch.num_tokens), "trajectories": float(batch.num_trajectories),
    }  # fmt: skip


def update_metrics(
    steps: Sequence[UpdateResult], batch: TokenBatch, before: Before, settings: ObjectiveSettings
) -> dict[str, float]:
    """Metrics of an update of several steps: means over the tokens of the steps taken, the rest from before the first.

    `steps` counts the steps taken, `stopped` is 1 if the rest was left out.
    """
    extra = fetch(_against_sampler(batch, settings, before.log_probs, before.weights))
    taken = [step.metrics for step in steps if step.stepped]
    tokens = sum(step["tokens"] for step in taken)
    names = [name for name in taken[0] if name not in (*extra, "tokens", "trajectories")]
    means = {name: sum(step[name] * step["tokens"] for step in taken) / tokens for name in names}
    return {
        **means, **extra,
        "tokens": float(batch.num_tokens), "trajectories": float(batch.num_trajectories),
        "steps": float(len(taken)), "stopped": float(len(taken) < len(steps)),
    }  # fmt: skip


def _against_sampler(
    batch: TokenBatch, settings: ObjectiveSettings, log_probs: Tensor, weights: Tensor
) -> dict[str, Tensor | float]:
    """How far the trainer's log-probs are from the sampler's, and what importance weights did about it."""
    gap = (log_probs - batch.behaviour).abs()
    cap = settings.importance_cap
    return {
        "ratio_gap_mean": masked_mean(gap, None),
        "ratio_gap_max": gap.max(),
        "importance_clipped": clip_fraction(weights, None if cap is None else cap * (1 - 1e-6)),
        "importance_ess": effective_sample_size(weights) / max(batch.num_tokens, 1),
        "log_prob": masked_mean(log_probs, None),
    }


def _clipping(
    batch: TokenBatch, credits: Tensor, settings: ObjectiveSettings, ratios: Tensor
) -> dict[str, Tensor]:
    """Shares of tokens whose gradient a bound of PPO held back, and the mean ratio."""
    if not isinstance(settings, PpoObjective):
        return {}
    found = {
        "ratio": ratios,
        "clipped_low": (ratios < 1 - settings.clip_low) & (credits < 0),
        "clipped_high": (ratios > 1 + settings.clip_high) & (credits > 0),
    }
    if settings.dual_clip is not None:
        found["clipped_dual"] = (ratios > settings.dual_clip) & (credits < 0)
    return {name: _mean(batch, value.to(ratios)) for name, value in found.items()}


def _mean(batch: TokenBatch, x: Tensor) -> Tensor:
    if batch.weight is None:
        return masked_mean(x, None)
    return masked_sum(x * batch.weight.to(x), None) / max(batch.total_weight, 1)
