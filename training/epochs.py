"""An update of a policy: one step on its whole batch, or several, over epochs and mini-batches."""

from dataclasses import replace

import torch
from torch import Tensor

from coplay.agents.policy import Policy
from coplay.training.alignment import check_gap
from coplay.training.mini_batches import Dealing, deal
from coplay.training.objectives import ObjectiveSettings
from coplay.training.passes import score_pass, token_passes
from coplay.training.records import TokenBatch, UpdateResult
from coplay.training.step_metrics import update_metrics
from coplay.training.terms import Before, weights_of
from coplay.training.updates import StepPlan, policy_step


def policy_update(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    batch: TokenBatch,
    credits: Tensor,
    settings: ObjectiveSettings,
    plan: StepPlan,
    dealing: Dealing,
) -> UpdateResult:
    """All steps of one update; a single one, or one that moves nothing, is `policy_step` on the whole batch.

    Old log-probs and importance weights are read once, from the weights before the first step. A step's loss is divided
    by the normaliser of its own mini-batch.

    Args:
        credits: (N,) what multiplies each action token's log-prob.

    Raises:
        NonFiniteLossError: if loss or gradient of a step is not finite; the steps before it have been taken.
        RatioGapError: if the sampler drew from another distribution; no weight has moved then.
    """
    if dealing.single or plan.frozen:
        return policy_step(policy, optimizer, batch, credits, settings, plan)
    before = read_before(policy, batch, settings, plan)
    check_gap(policy.label, batch.behaviour, before.log_probs, settings.largest_gap)
    steps: list[UpdateResult] = []
    for part in deal(dealing, batch.path, batch.owners):
        chosen = part.places
        bound = plan.max_kl if steps else None  # the first step's policy is the one before the update
        step = policy_step(
            policy,
            optimizer,
            batch.select(chosen, num_trajectories=part.num_trajectories),
            credits[chosen],
            settings,
            replace(plan, max_kl=bound),
            before=before.select(chosen),
        )
        steps.append(step)
        if not step.stepped:
            break
    return UpdateResult(
        metrics=update_metrics(steps, batch, before, settings),
        weights=before.weights,
        log_probs=before.log_probs,
        entropies=before.entropies,
    )


def read_before(policy: Policy, batch: TokenBatch, settings: ObjectiveSettings, plan: StepPlan) -> Before:
    """Read a batch (on the CPU) with the weights as they are, without gradient; given on the CPU."""
    passes = token_passes(batch, policy, plan.reading)
    moved = batch.to(policy.device)
    log_probs, entropies = torch.zeros_like(moved.behaviour), torch.zeros_like(moved.behaviour)
    with torch.no_grad():
        for one in passes:
            scores = score_pass(policy, one, plan.reading.precision, measure=True)
            assert scores.measured is not None
            log_probs[one.tokens], entropies[one.tokens] = scores.log_probs, scores.measured
    everything = torch.arange(batch.num_tokens, device=log_probs.device)
    found = Before(
        log_probs=log_probs,
        entropies=entropies,
        weights=weights_of(settings, moved, log_probs, everything),
    )
    return found.to(torch.device("cpu"))
