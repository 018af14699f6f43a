"""One optimiser step: micro-batches forward and backward under one normaliser of the whole batch, clip, step."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from coplay.agents.policy import Policy
from coplay.training.alignment import check_gap
from coplay.training.log_probs import EntropyOf
from coplay.training.masked import masked_sum
from coplay.training.metrics import fetch
from coplay.training.objectives import ObjectiveSettings
from coplay.training.passes import ReadPlan, score_pass, token_passes
from coplay.training.records import TokenBatch, UpdateResult
from coplay.training.step_metrics import distance, step_metrics
from coplay.training.terms import (
    Before,
    loss_divisor,
    loss_shares,
    measure,
    policy_term,
    regularisers,
    shared,
    start,
)


class NonFiniteLossError(ArithmeticError):
    """A loss or gradient is NaN or infinite: the step was refused, weights are as before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """The numbers of one step of one policy."""

    lr: float
    entropy_coefficient: float
    gradient_clip: float | None
    reading: ReadPlan
    refused: Path
    """Where the batch is saved for inspection if the step has to be refused."""
    kl_coefficient: float = 0.0
    """Of the KL term in the loss, if there is one."""
    max_kl: float | None = None
    """Mean k3 a token from the policy before the update above which the step is left out; None: none."""
    frozen: bool = False
    """Compute everything and move nothing."""


def policy_step(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    batch: TokenBatch,
    credits: Tensor,
    settings: ObjectiveSettings,
    plan: StepPlan,
    *,
    before: Before | None = None,
) -> UpdateResult:
    """One optimiser step on a policy term with truncated importance weights, entropy and KL.

    L = 1/Z sum_n s_n [ P_n - alpha H_n + kappa KL_n ] over the whole batch, P_n of `reinforce` or `ppo_clip` times w_n;
    Z and s_n are the normaliser's: s_n is 1 unless paths branch or every trajectory is averaged over its own tokens.

    Args:
        credits: (N,) what multiplies each action token's log-prob.
        before: of an update's several steps, what was read before the first; None: this is the only one.

    Raises:
        NonFiniteLossError: if loss or gradient is not finite; no weight has moved then.
        RatioGapError: if the sampler drew from another distribution; no weight has moved then.
    """
    divisor = loss_divisor(batch, settings)
    passes = token_passes(batch, policy, plan.reading)
    batch, credits = batch.to(policy.device), credits.to(policy.device)
    before = None if before is None else before.to(policy.device)
    parameters = policy.named_parameters()
    set_lr(optimizer, plan.lr)
    optimizer.zero_grad(set_to_none=True)
    measured = start(policy, passes, batch, settings, plan.reading, before)
    sums: dict[str, Tensor] = {}
    wanted = EntropyOf(top_k=settings.entropy_top_k) if plan.entropy_coefficient else None
    shares = loss_shares(batch, settings)
    for one in passes:
        tokens = one.tokens
        scores = score_pass(policy, one, plan.reading.precision, entropy_of=wanted, measure=True)
        measure(measured, scores, tokens, batch, settings, before)
        terms = {"policy": policy_term(settings, scores.log_probs, credits[tokens], measured, tokens)}
        terms |= regularisers(batch, scores, tokens, settings, before)
        totals = {name: masked_sum(shared(shares, value, tokens), None) for name, value in terms.items()}
        loss = totals["policy"] - plan.entropy_coefficient * totals.get("entropy", 0.0)
        loss = (loss + plan.kl_coefficient * totals.get("kl", 0.0)) / divisor
        torch.autograd.backward(loss)
        told = totals
        if shares is not batch.weight:
            told = {name: masked_sum(shared(batch.weight, one, tokens), None) for name, one in terms.items()}
        for name, value in {**told, "loss": loss}.items():
            sums[name] = sums.get(name, torch.zeros((), device=value.device)) + value.detach()
    if before is None:
        check_gap(policy.label, batch.behaviour, measured.log_probs, settings.largest_gap)
    norm = clip(parameters, plan.gradient_clip)
    numbers = fetch({**sums, "gradient_norm": norm, **distance(batch, measured.log_probs, before)})
    _refuse_if_not_finite(numbers, batch, credits, measured.log_probs, plan.refused)
    stepped = plan.max_kl is None or numbers.get("approx_kl", 0.0) <= plan.max_kl
    if stepped and not plan.frozen:
        optimizer.step()
    return UpdateResult(
        metrics=step_metrics(
            numbers, batch, credits, settings, measured.log_probs, measured.weights, measured.ratios
        ),
        weights=measured.weights.cpu(),
        log_probs=measured.log_probs.cpu(),
        entropies=measured.entropies.cpu(),
        stepped=stepped,
    )


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """The learning rate of the next step."""
    for group in optimizer.param_groups:
        group["lr"] = lr


def clip(parameters: Mapping[str, torch.nn.Parameter], largest: float | None) -> Tensor:
    """Clip the gradient norm over one network's own parameters; returns the norm before."""
    return torch.nn.utils.clip_grad_norm_(
        list(parameters.values()), largest if largest is not None else math.inf
    )


def _refuse_if_not_finite(
    numbers: Mapping[str, float], batch: TokenBatch, credits: Tensor, log_probs: Tensor, refused: Path
) -> None:
    bad = [name for name, value in numbers.items() if not math.isfinite(value)]
    if not bad:
        return
    tensors = {
        "ids": batch.ids, "lengths": batch.lengths, "row": batch.row, "column": batch.column, "credits": credits,
        "behaviour": batch.behaviour, "log_probs": log_probs,
    }  # fmt: skip
    save_refused(refused, tensors)
    raise NonFiniteLossError(
        f"{bad[0]!r} of the policy's step is {numbers[bad[0]]}; expected a finite number; the step was refused and its"
        f" batch saved to {refused}: look at credits and log-probs there, or lower the learning rate"
    )


def save_refused(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Keep the batch of a refused step for inspection."""
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, path)
