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
from coplay.training.losses import huber, mse
from coplay.training.masked import keep, masked_sum
from coplay.training.metrics import fetch
from coplay.training.records import ValueBatch
from coplay.training.schemes import CriticLearning
from coplay.training.updates import NonFiniteLossError, clip, micro_batches, save_refused


def critic_values(critic: Critic, batch: ValueBatch, *, micro_batch_tokens: int) -> Tensor:
    """(P,) values at all reading points, without gradient."""
    batch = batch.to(critic.device)
    values = torch.zeros(len(batch.row), device=critic.device)
    with torch.no_grad():
        for rows in micro_batches(batch.lengths, max_tokens=micro_batch_tokens):
            points = torch.isin(batch.row, rows).nonzero().squeeze(1)
            values[points] = _read_values(critic, batch, rows, points)
    return values.cpu()


def read_rows(critic: Critic, rows: Sequence[ValueRow], *, micro_batch_tokens: int) -> list[list[float]]:
    """The values at the positions of single contexts."""
    ids, lengths = pad_rows([np.array(row.ids, dtype=np.int64) for row in rows])
    points = [(number, position) for number, row in enumerate(rows) for position in row.positions]
    row, column = torch.tensor(points, dtype=torch.long).reshape(-1, 2).unbind(1)
    nothing = torch.zeros_like(row)
    batch = ValueBatch(ids=ids, lengths=lengths, row=row, column=column, path=nothing, tick=nothing)
    values = iter(critic_values(critic, batch, micro_batch_tokens=micro_batch_tokens).tolist())
    return [[next(values) for _ in one.positions] for one in rows]


def critic_step(
    critic: Critic,
    optimizer: torch.optim.Optimizer,
    batch: ValueBatch,
    targets: Tensor,
    shares: Tensor,
    settings: CriticLearning,
    *,
    micro_batch_tokens: int,
    refused: Path | None = None,
) -> dict[str, float]:
    """One step on the pooled reading points of all players, mean loss over the P included ones (rule 8).

    Args:
        targets: (P,) A + V.
        shares: (P,) False at bootstrap points, which have no target; where paths branch, each point's share.
        refused: where the batch is saved for inspection if the step has to be refused; None: nowhere.

    Raises:
        NonFiniteLossError: if the loss is not finite; no weight has moved then.
    """
    batch, targets, shares = batch.to(critic.device), targets.to(critic.device), shares.to(critic.device)
    mask = shares > 0
    loss_of: Callable[[Tensor, Tensor], Tensor] = huber if settings.loss == "huber" else mse
    optimizer.zero_grad(set_to_none=True)
    total = torch.zeros(())
    num_points = float(masked_sum(shares.double(), None)) or 1.0
    for rows in micro_batches(batch.lengths, max_tokens=micro_batch_tokens):
        points = torch.isin(batch.row, rows).nonzero().squeeze(1)
        if not len(points):
            continue
        values = _read_values(critic, batch, rows, points)
        # The derivative at a masked target would be 0 times not-a-number (law 3).
        aims = keep(targets[points].to(values), mask[points])
        loss = masked_sum(loss_of(values, aims) * shares[points].to(values), mask[points]) / num_points
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


def _read_values(critic: Critic, batch: ValueBatch, rows: Tensor, points: Tensor) -> Tensor:
    width = int(batch.lengths[rows].max())
    local = torch.searchsorted(rows, batch.row[points])
    return critic.values(batch.ids[rows, :width], None, None, local, batch.column[points])
