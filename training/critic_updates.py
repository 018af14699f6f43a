"""The shared critic: read all values, then one step on the reading points of all players (rule 8)."""

import math
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from coplay.agents.critic import Critic
from coplay.training.losses import huber, mse
from coplay.training.masked import keep, masked_sum
from coplay.training.metrics import fetch
from coplay.training.passes import ReadPlan, read_values, value_passes
from coplay.training.records import ValueBatch
from coplay.training.schemes import CriticEstimator
from coplay.training.updates import NonFiniteLossError, clip, save_refused


def critic_values(critic: Critic, batch: ValueBatch, reading: ReadPlan) -> Tensor:
    """(P,) values at all reading points, without gradient."""
    values = torch.zeros(len(batch.row), device=critic.device)
    with torch.no_grad():
        for one in value_passes(batch, critic, reading):
            values[one.places] = read_values(critic, one, reading.precision)
    return values.cpu()


def critic_step(
    critic: Critic,
    optimizer: torch.optim.Optimizer,
    batch: ValueBatch,
    targets: Tensor,
    mask: Tensor,
    settings: CriticEstimator,
    reading: ReadPlan,
    *,
    refused: Path | None = None,
) -> dict[str, float]:
    """One step on the pooled reading points of all players, mean loss over the P included ones (rule 8).

    Args:
        targets: (P,) A + V.
        mask: (P,) False at bootstrap points, which have no target.
        refused: where the batch is saved for inspection if the step has to be refused; None: nowhere.

    Raises:
        NonFiniteLossError: if the loss is not finite; no weight has moved then.
    """
    num_points = max(int(mask.sum()), 1)
    passes = value_passes(batch, critic, reading)
    batch, targets, mask = batch.to(critic.device), targets.to(critic.device), mask.to(critic.device)
    loss_of: Callable[[Tensor, Tensor], Tensor] = huber if settings.loss == "huber" else mse
    optimizer.zero_grad(set_to_none=True)
    total = torch.zeros((), device=critic.device)
    for one in passes:
        values = read_values(critic, one, reading.precision)
        # The derivative at a masked target would be 0 times not-a-number (law 3).
        aims = keep(targets[one.places].to(values), mask[one.places])
        loss = masked_sum(loss_of(values, aims), mask[one.places]) / num_points
        torch.autograd.backward(loss)
        total = total + loss.detach()
    norm = clip(critic.named_parameters(), settings.gradient_clip)
    numbers = fetch({"critic/loss": total, "critic/gradient_norm": norm})
    if not all(map(math.isfinite, numbers.values())):
        if refused is not None:
            names = ("ids", "lengths", "row", "column")
            save_refused(refused, {**{n: getattr(batch, n) for n in names}, "targets": targets, "mask": mask})
        raise NonFiniteLossError(
            f"the critic's step gives {numbers}; expected finite numbers; the step was refused and its batch saved to"
            f" {refused}: look at the targets there, or lower estimator.lr"
        )
    optimizer.step()
    return numbers
