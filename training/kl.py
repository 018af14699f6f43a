"""KL in the rewards, and the controller of its coefficient: what a player pays for leaving a frozen policy.

A KL term in the loss is `terms.regularisers`; the estimators are in `losses`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from coplay.rollout_tree import Trajectory
from coplay.training.losses import KL_ESTIMATORS
from coplay.training.masked import masked_mean, segment_sum
from coplay.training.objectives import AdaptiveKl
from coplay.training.passes import all_log_probs, reading_of, token_passes
from coplay.training.records import TickTable, TokenBatch
from coplay.training.references import with_references
from coplay.training.trainer import Done, Trainer

LARGEST_STEP = 0.2
"""Share of the coefficient that one horizon of trajectories may move it by (Ziegler et al. 2019)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KlPenalty:
    """What an iteration's rewards are lowered by."""

    ticks: Tensor
    """(B, S) in scaled reward units: coefficient times the KL of the player's sampled tokens, summed by tick."""
    means: Mapping[str, float]
    """By policy: mean KL of a token."""
    metrics: Mapping[str, float]


def adapt_coefficient(coefficient: float, kl: float, *, target: float, horizon: float, count: float) -> float:
    """κ (1 + clip(KL / target − 1, −0.2, 0.2) min(n / horizon, 1)) (Ziegler et al. 2019, arXiv 1909.08593).

    Theirs has no minimum: from five horizons of trajectories on one update would turn the sign of κ.

    Args:
        coefficient: κ.
        kl: as measured.
        target: KL to steer towards.
        horizon: in what n counts.
        count: n, how many it was measured on.
    """
    error = max(-LARGEST_STEP, min(LARGEST_STEP, kl / target - 1))
    return coefficient * (1 + error * min(count / horizon, 1))


def penalise(
    trainers: Sequence[Trainer], trajectories: Sequence[Trajectory], table: TickTable
) -> KlPenalty | None:
    """Measure what rewards are lowered by, with the weights before the update; None where no reward is."""
    if not trainers or trainers[0].config.objective.kl_in_reward is None:
        return None
    ticks = torch.zeros_like(table.rewards)
    means: dict[str, float] = {}
    metrics: dict[str, float] = {}
    batches = {trainer.policy.name: trainer.batch(trajectories, table) for trainer in trainers}
    read = with_references(
        {name: batch for name, batch in batches.items() if batch is not None},
        {trainer.policy.name: trainer.policy for trainer in trainers},
        reading_of(trainers[0].config.update),
    )
    for trainer in trainers:
        name = trainer.policy.name
        if name not in read:
            continue
        kl, sampled = _token_kl(trainer, read[name]), ~torch.isnan(read[name].behaviour)
        cells = read[name].path * table.mask.shape[1] + read[name].tick
        sums = segment_sum(kl.double(), cells, ticks.numel(), sampled).reshape(ticks.shape)
        ticks = ticks + trainer.kl_coefficient * sums.to(ticks)
        means[name] = float(masked_mean(kl, sampled))
        metrics[f"policy/{name}/kl"] = means[name]
    return KlPenalty(ticks=ticks, means=means, metrics=metrics)


def _token_kl(trainer: Trainer, batch: TokenBatch) -> Tensor:
    """(N,) KL of a policy's action tokens from its reference, on the CPU."""
    kl, reading = trainer.config.objective.kl_in_reward, reading_of(trainer.config.update)
    assert kl is not None and batch.reference is not None
    passes = token_passes(batch, trainer.policy, reading)
    log_probs = all_log_probs(trainer.policy, passes, reading).cpu()
    return KL_ESTIMATORS[kl.kind](log_probs, batch.reference, drop_likelier=kl.drop_likelier)


def adapt(trainers: Sequence[Trainer], done: Mapping[str, Done], penalty: KlPenalty | None) -> None:
    """Let adaptive coefficients follow what was measured; a policy that did not move keeps its own."""
    for trainer in trainers:
        settings, name = trainer.config.objective.kl, trainer.policy.name
        if settings is None or not isinstance(settings.controller, AdaptiveKl) or name not in done:
            continue
        metrics = done[name].result.metrics
        if metrics.get("frozen"):
            continue
        trainer.kl_coefficient = adapt_coefficient(
            trainer.kl_coefficient,
            metrics["kl"] if penalty is None else penalty.means[name],
            target=settings.controller.target,
            horizon=settings.controller.horizon,
            count=metrics["trajectories"],
        )
