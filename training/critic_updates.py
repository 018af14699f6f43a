"""The shared critic: read all values, then one step on the reading points of all players (rule 8)."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from coplay.agents.critic import Critic
from coplay.rollout_tree import ValueRow
from coplay.training.extract import pad_rows
from coplay.training.losses import clipped_values, huber, mse
from coplay.training.masked import keep, masked_sum
from coplay.training.metrics import fetch
from coplay.training.mini_batches import Dealing, deal
from coplay.training.passes import ReadPlan, read_values, value_passes
from coplay.training.records import ValueBatch
from coplay.training.schemes import CriticLearning
from coplay.training.updates import NonFiniteLossError, clip, save_refused


def critic_values(critic: Critic, batch: ValueBatch, reading: ReadPlan) -> Tensor:
    """(P,) values at all reading points, without gradient."""
    values = torch.zeros(len(batch.row), device=critic.device)
    with torch.no_grad():
        for one in value_passes(batch, critic, reading):
            values[one.places] = read_values(critic, one, reading.precision)
    return values.cpu()


def read_rows(critic: Critic, rows: Sequence[ValueRow], reading: ReadPlan) -> list[list[float]]:
    """The values at the positions of single contexts."""
    ids, lengths = pad_rows([np.array(row.ids, dtype=np.int64) for row in rows])
    points = [(number, position) for number, row in enumerate(rows) for position in row.positions]
    row, column = torch.tensor(points, dtype=torch.long).reshape(-1, 2).unbind(1)
    nothing = torch.zeros_like(row)
    batch = ValueBatch(ids=ids, lengths=lengths, row=row, column=column, path=nothing, tick=nothing)
    values = iter(critic_values(critic, batch, reading).tolist())
    return [[next(values) for _ in one.positions] for one in rows]


def critic_update(  # noqa: PLR0913 - a step's data, settings and dealing
    critic: Critic,
    optimizer: torch.optim.Optimizer,
    batch: ValueBatch,
    targets: Tensor,
    shares: Tensor,
    settings: CriticLearning,
    reading: ReadPlan,
    dealing: Dealing,
    *,
    refused: Path | None = None,
) -> dict[str, float]:
    """All steps of one update, each on the reading points of its trajectories; a single one is on all of them.

    Args:
        targets: (P,) A + V.
        shares: (P,) as `critic_step` takes them.

    Raises:
        NonFiniteLossError: if a step's loss is not finite; the steps before it have been taken.
    """
    old = None if settings.value_clip is None else critic_values(critic, batch, reading)
    if dealing.single:
        return critic_step(
            critic, optimizer, batch, targets, shares, settings, reading, old=old, refused=refused
        )
    found = [
        critic_step(
            critic,
            optimizer,
            batch.select(part.places),
            targets[part.places],
            shares[part.places],
            settings,
            reading,
            old=None if old is None else old[part.places],
            refused=refused,
        )
        for part in deal(dealing, batch.path, batch.owners)
    ]
    means = {name: sum(step[name] for step in found) / len(found) for name in found[0]}
    return means | {"critic/steps": float(len(found))}


def critic_step(  # noqa: PLR0913 - a step's data and settings
    critic: Critic,
    optimizer: torch.optim.Optimizer,
    batch: ValueBatch,
    targets: Tensor,
    shares: Tensor,
    settings: CriticLearning,
    reading: ReadPlan,
    *,
    old: Tensor | None = None,
    refused: Path | None = None,
) -> dict[str, float]:
    """One step on the pooled reading points of all players, mean loss over the P included ones (rule 8).

    Args:
        targets: (P,) A + V.
        shares: (P,) False at bootstrap points, which have no target; where paths branch, each point's share.
        old: (P,) values before the update, which `value_clip` measures from; None: it is off.
        refused: where the batch is saved for inspection if the step has to be refused; None: nowhere.

    Raises:
        NonFiniteLossError: if the loss is not finite; no weight has moved then.
    """
    passes = value_passes(batch, critic, reading)
    batch, targets, shares = batch.to(critic.device), targets.to(critic.device), shares.to(critic.device)
    mask = shares > 0
    loss_of: Callable[[Tensor, Tensor], Tensor] = huber if settings.loss == "huber" else mse
    optimizer.zero_grad(set_to_none=True)
    total = torch.zeros((), device=critic.device)
    num_points = float(masked_sum(shares.double(), None)) or 1.0
    for one in passes:
        values, weights = read_values(critic, one, reading.precision), shares[one.places]
        # The derivative at a masked target would be 0 times not-a-number (law 3).
        aims = keep(targets[one.places].to(values), mask[one.places])
        losses = loss_of(values, aims)
        if old is not None and settings.value_clip is not None:
            clipped = clipped_values(values, old.to(values)[one.places], settings.value_clip)
            losses = torch.maximum(losses, loss_of(clipped, aims))
        loss = masked_sum(losses * weights.to(values), mask[one.places]) / num_points
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
