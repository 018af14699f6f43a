"""The gradient that stored rollouts give under some settings, at the weights that sampled them; nothing moves."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from coplay.agents.policy import Policy
from coplay.rollout_tree.storage import parts
from coplay.training.checkpoint import complete_checkpoints
from coplay.training.config import RunConfig
from coplay.training.messages import ConfigError
from coplay.training.objectives import KlSettings
from coplay.training.passes import reading_of
from coplay.training.recredit import StoredIteration, recredit, trained_labels
from coplay.training.references import read_references
from coplay.training.run import Run
from coplay.training.starts import check_starts
from coplay.training.trainer import Credit
from coplay.training.updates import StepPlan, policy_step


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientDifference:
    """One policy's gradient under other settings beside that under the run's own, before clipping."""

    policy: str
    own_norm: float
    norm: float
    cosine: float | None
    """Of the angle between them; None if one is 0."""


def iterations_with_weights(folder: Path) -> list[int]:
    """The stored iterations whose weights are kept, ascending: those of checkpoints, and 0, made anew from the seed."""
    kept = {0, *complete_checkpoints(folder)}
    return sorted({number for number, _ in parts(folder, "episodes") if number in kept})


def sampling_run(stored: StoredIteration, folder: Path, *, with_reference: bool) -> Run:
    """The run with the weights that played a stored iteration: from its checkpoint, or fresh for iteration 0.

    Args:
        with_reference: keep the reference policy, which a KL term needs.

    Raises:
        ConfigError: if those weights are not kept, or starts are others now.
    """
    config, number = stored.config, stored.number
    if number not in (able := iterations_with_weights(folder)):
        raise ConfigError(
            f"the weights that played iteration {number} of '{folder}' are not kept; of the stored iterations, those"
            f" of {able} are: expected one of them, or a run with storage.checkpoint_every = 1 and a larger"
            " storage.keep"
        )
    objective = config.objective
    if with_reference and not objective.needs_reference:
        kl = (objective.kl or KlSettings()).model_copy(update={"against": "reference"})
        objective = objective.model_copy(update={"kl": kl})
    config = config.model_copy(update={"objective": objective})
    check_starts(folder, config, afresh=not number)
    run = Run(config, folder=folder)
    if number:
        run.restore(number)
    played = {label for tree in stored.trees for label in tree.seats.values()}
    missing = [run.label(name) for name in set(config.seats().values()) if run.label(name) not in played]
    if missing:
        raise ConfigError(
            f"iteration {number} was played by {sorted(played)}, and its weights are {sorted(missing)};"
            " expected the same: the checkpoint is of another run"
        )
    return run


def compare_gradients(
    stored: StoredIteration, config: RunConfig, folder: Path
) -> tuple[GradientDifference, ...]:
    """The gradient of each trained policy under other settings, beside that under the run's own.

    Raises:
        ConfigError: if the weights that played the iteration are not kept.
    """
    wants = config.objective.needs_reference or stored.config.objective.needs_reference
    run = sampling_run(stored, folder, with_reference=wants)
    tries = {name: policy.chat.trie for name, policy in run.policies.items()}
    own, new = (recredit(stored, settings, tries=tries) for settings in (stored.config, config))
    credits = [read_references(result.credits, run.policies, result.config) for result in (own, new)]
    found = []
    for name in trained_labels(config, own.table):
        if name not in own.credits:
            continue
        one, other = (
            gradient(
                run.policies[name],
                read[name],
                result.config,
                stored.number,
                folder=folder,
                kl_coefficient=_kl_coefficient(run, name, result.config, stored.config),
            )
            for result, read in zip((own, new), credits, strict=True)
        )
        found.append(gradient_difference(name, one, other))
    return tuple(found)


def _kl_coefficient(run: Run, policy: str, config: RunConfig, own: RunConfig) -> float:
    """As a controller had moved it where settings are the run's own, else as at the start."""
    if config.objective.kl is None:
        return 0.0
    if config.objective.kl != own.objective.kl:
        return config.objective.kl.coefficient
    return next(one.kl_coefficient for one in run.trainers if one.policy.name == policy)


def gradient(
    policy: Policy,
    credit: Credit,
    config: RunConfig,
    update: int,
    *,
    folder: Path,
    kl_coefficient: float = 0.0,
) -> dict[str, Tensor]:
    """The gradient of a policy's loss by parameter name, before clipping; the weights stay.

    Raises:
        NonFiniteLossError: if it is not finite.
        RatioGapError: if the policy is not the one that sampled the tokens.
    """
    parameters = policy.named_parameters()
    plan = StepPlan(
        lr=0.0,
        entropy_coefficient=config.objective.entropy_coefficient.value(update),
        kl_coefficient=kl_coefficient,
        gradient_clip=None,
        reading=reading_of(config.update),
        refused=folder / "refused" / f"recredit-{policy.name}-{update:06d}.safetensors",
    )
    still = torch.optim.SGD(list(parameters.values()), lr=0.0)
    policy_step(policy, still, credit.batch, credit.tokens, config.objective, plan)
    return {
        name: torch.zeros_like(one) if one.grad is None else one.grad.detach().clone()
        for name, one in parameters.items()
    }


def gradient_difference(
    policy: str, own: Mapping[str, Tensor], other: Mapping[str, Tensor]
) -> GradientDifference:
    """Norms and angle of two gradients, joined by parameter name."""
    flat = [torch.cat([tensors[name].double().flatten() for name in own]) for tensors in (own, other)]
    norms = [float(one.norm()) for one in flat]
    cosine = float(flat[0] @ flat[1]) / (norms[0] * norms[1]) if all(norms) else None
    return GradientDifference(policy=policy, own_norm=norms[0], norm=norms[1], cosine=cosine)
