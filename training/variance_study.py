"""The variance of a policy's whole gradient, measured: one policy, many independent batches, three estimators.

The estimators see the same games: the main lines against the mean of all equally seated games (`ungrouped`), against
that of the games with the same luck (`groups`), and the main lines with their branches (`branches`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from coplay.rollout_tree import RolloutTree, Trajectory
from coplay.training.branching import BranchingSettings
from coplay.training.config import RunConfig
from coplay.training.covariance import ESTIMATORS, VarianceStudy, gram
from coplay.training.estimators import estimate
from coplay.training.extract import extract, ungrouped
from coplay.training.gradients import gradient
from coplay.training.messages import ConfigError
from coplay.training.packets import make_packets
from coplay.training.records import TickTable
from coplay.training.run import Run
from coplay.training.schedules import Constant
from coplay.training.schemes import BranchesEstimator, EstimatorSettings, Independent, ReturnsEstimator
from coplay.training.stages import collect_rollouts, lay_out
from coplay.training.trainer import Credit

MOST_NUMBERS = 1_000_000_000
"""Entries of all gradients together that are held until the end; 4 bytes each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Tokens of one batch under one estimator."""

    sampled: int
    """Drawn from policies while playing."""
    read: int
    """Gone through by the gradient's forward and backward pass; dialogues alike to the last token once."""


def study_config(config: RunConfig) -> RunConfig:
    """The configuration under which all three are measured: branches on, only the policy's own term in the gradient.

    Raises:
        ConfigError: if credit is shaped, nothing is grouped, or a policy does not sample.
    """
    if not isinstance(config.shaping, Independent):
        raise ConfigError(
            f"'shaping.kind' is {config.shaping.kind!r}, under which a baseline moves the gradient's mean too, so"
            " that variances say nothing; expected 'independent'"
        )
    if config.collect.group_size < 2:
        raise ConfigError(
            "'collect.group_size' is 1; expected at least 2: a game alone has no leave-one-out mean"
        )
    branching = config.collect.branching or BranchingSettings(share=0.25)
    if branching.horizon is not None:
        raise ConfigError(
            f"'collect.branching.horizon' is {branching.horizon}; expected none: branches are compared by returns"
        )
    own = config.estimator
    estimator = BranchesEstimator(discount=own.discount, reward_scale=own.reward_scale)
    objective = config.objective.model_copy(update={"entropy_coefficient": Constant(level=0.0), "kl": None})
    changed = config.model_copy(
        update={
            "collect": config.collect.model_copy(update={"branching": branching}),
            "estimator": estimator,
            "objective": objective,
        }
    )
    return RunConfig.model_validate(changed.model_dump(mode="json"))


def measure(
    config: RunConfig, *, num_batches: int, folder: Path, progress: Callable[[int], None] = lambda done: None
) -> VarianceStudy:
    """Draw batches with a run's first weights, and the gradient of each under all three estimators.

    Args:
        config: of `study_config`.
        num_batches: M, at least 3.
        folder: where a refused batch would be saved.
        progress: told how many batches are done.

    Raises:
        ConfigError: if there are too few batches, or their gradients would not fit.
    """
    if num_batches < 3:
        raise ConfigError(f"{num_batches} batches have no variance to speak of; expected at least 3")
    run = Run(config, folder=folder)
    size = sum(one.numel() for trainer in run.trainers for one in trainer.policy.named_parameters().values())
    if (numbers := size * num_batches * len(ESTIMATORS)) > MOST_NUMBERS:
        raise ConfigError(
            f"{num_batches} batches of {len(ESTIMATORS)} gradients of {size} weights are {numbers} numbers; expected at"
            f" most {MOST_NUMBERS}: fewer batches, or adapters of a lower rank"
        )
    gradients = torch.zeros(len(ESTIMATORS), num_batches, size)
    costs: list[tuple[Cost, ...]] = []
    for batch in range(num_batches):
        trees = collect_rollouts(run, batch)
        found = [one_gradient(run, trees, name) for name in ESTIMATORS]
        for place, (flat, _) in enumerate(found):
            gradients[place, batch] = flat
        costs.append(tuple(cost for _, cost in found))
        progress(batch + 1)
    return VarianceStudy(
        gram=gram(gradients.reshape(-1, size)).reshape(
            len(ESTIMATORS), num_batches, len(ESTIMATORS), num_batches
        ),
        sampled=np.array([[cost.sampled for cost in row] for row in costs], dtype=np.float64).T,
        read=np.array([[cost.read for cost in row] for row in costs], dtype=np.float64).T,
        games=config.collect.num_groups * config.collect.group_size,
    )


def one_gradient(run: Run, trees: Sequence[RolloutTree], name: str) -> tuple[Tensor, Cost]:
    """The gradient of all trained policies under one estimator, flat, and what its tokens cost."""
    with_branches = name == "branches"
    trajectories = extract(trees, branches=with_branches)
    table = lay_out(run, trajectories)
    if name == "ungrouped":
        table = ungrouped(table)
    credits = _credits(run, trajectories, table, _estimator(run.config, name))
    flat, read = [], 0
    for trainer in run.trainers:
        policy, credit = trainer.policy, credits.get(trainer.policy.name)
        if credit is None:
            flat.append(torch.zeros(sum(one.numel() for one in policy.named_parameters().values())))
            continue
        read += int(credit.batch.lengths.sum())
        found = gradient(policy, credit, run.config, 0, folder=run.folder)
        flat.append(torch.cat([found[key].float().flatten().cpu() for key in sorted(found)]))
    return torch.cat(flat), Cost(sampled=tokens_sampled(trees, branches=with_branches), read=read)


def _estimator(config: RunConfig, name: str) -> EstimatorSettings:
    own = config.estimator
    if name == "branches":
        return BranchesEstimator(discount=own.discount, reward_scale=own.reward_scale)
    return ReturnsEstimator(discount=own.discount, reward_scale=own.reward_scale)


def _credits(
    run: Run, trajectories: Sequence[Trajectory], table: TickTable, settings: EstimatorSettings
) -> Mapping[str, Credit]:
    found = estimate(settings, table, running_means={})
    packets = make_packets(table, found.advantages)
    credits = {
        trainer.policy.name: trainer.credit(trajectories, table, found, packets, update=0)
        for trainer in run.trainers
    }
    return {name: credit for name, credit in credits.items() if credit is not None}


def tokens_sampled(trees: Sequence[RolloutTree], *, branches: bool) -> int:
    """Tokens that policies drew, each once: a turn that a branch holds was drawn in the main line."""
    return sum(
        len(segment.ids)
        for tree in trees
        for step in tree.steps
        if branches or not step.branch
        for turn in step.turns
        if not turn.trains_once_for
        for segment in turn.segments
        if segment.sampled
    )
