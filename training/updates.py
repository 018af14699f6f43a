"""One optimiser step: micro-batches forward and backward under one normaliser of the whole batch, clip, step."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from coplay.agents.policy import Policy
from coplay.training.config import ObjectiveSettings
from coplay.training.importance import clip_fraction, effective_sample_size, importance_weights
from coplay.training.log_probs import EntropyOf, TokenScores
from coplay.training.losses import kl_k3, normaliser, reinforce
from coplay.training.masked import keep, masked_mean, masked_sum
from coplay.training.metrics import fetch
from coplay.training.passes import ReadPlan, all_log_probs, score_pass, token_passes
from coplay.training.records import TokenBatch, UpdateResult


class NonFiniteLossError(ArithmeticError):
    """A loss or gradient is NaN or infinite: the step was refused, weights are as before."""


class RatioGapError(ArithmeticError):
    """The sampler drew from another distribution than the trainer computes (law 2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """The numbers of one step of one policy."""

    lr: float
    entropy_coefficient: float
    gradient_clip: float | None
    reading: ReadPlan
    refused: Path
    """Where the batch is saved for inspection if the step has to be refused."""


def policy_step(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    batch: TokenBatch,
    credits: Tensor,
    settings: ObjectiveSettings,
    plan: StepPlan,
) -> UpdateResult:
    """Token-wise REINFORCE with truncated importance weights, entropy and KL, one optimiser step.

    L = 1/Z sum_n w_n [ -rho_n c_n log pi(a_n) - alpha H_n + kappa KL_n ], Z trajectories or tokens of the whole batch;
    w_n is 1 unless paths branch.

    Args:
        credits: (N,) what multiplies each action token's log-prob.

    Raises:
        NonFiniteLossError: if loss or gradient is not finite; no weight has moved then.
    """
    divisor = normaliser(
        settings.normaliser, num_trajectories=batch.num_trajectories, num_tokens=batch.total_weight
    )
    passes = token_passes(batch, policy, plan.reading)
    batch, credits = batch.to(policy.device), credits.to(policy.device)
    parameters = policy.named_parameters()
    set_lr(optimizer, plan.lr)
    optimizer.zero_grad(set_to_none=True)
    reference = None
    if settings.kl_coefficient:
        with policy.reference():
            reference = all_log_probs(policy, passes, plan.reading)
    log_probs, weights = torch.zeros_like(batch.behaviour), torch.ones_like(batch.behaviour)
    entropies = torch.zeros_like(batch.behaviour)
    sums: dict[str, Tensor] = {}
    if settings.importance == "sequence":
        log_probs = all_log_probs(policy, passes, plan.reading)
        weights = _weights(
            settings, batch, log_probs, torch.arange(batch.num_tokens, device=log_probs.device)
        )
    wanted = EntropyOf(top_k=settings.entropy_top_k) if plan.entropy_coefficient else None
    for one in passes:
        tokens = one.tokens
        scores = score_pass(policy, one, plan.reading.precision, entropy_of=wanted, measure=True)
        assert scores.measured is not None
        entropies[tokens] = scores.measured
        if settings.importance != "sequence":
            log_probs[tokens] = scores.log_probs.detach()
            weights[tokens] = _weights(settings, batch, log_probs[tokens], tokens)
        terms = {"policy": reinforce(scores.log_probs, credits[tokens].to(scores.log_probs), weights[tokens])}
        terms |= _regularisers(batch, scores, tokens, reference, settings)
        totals = {name: masked_sum(_weighted(batch, value, tokens), None) for name, value in terms.items()}
        loss = totals["policy"] - plan.entropy_coefficient * totals.get("entropy", 0.0)
        loss = (loss + settings.kl_coefficient * totals.get("kl", 0.0)) / divisor
        torch.autograd.backward(loss)
        for name, value in {**totals, "loss": loss}.items():
            sums[name] = sums.get(name, torch.zeros((), device=value.device)) + value.detach()
    _check_gap(policy, batch, log_probs, settings.largest_gap)
    norm = clip(parameters, plan.gradient_clip)
    numbers = fetch({**sums, "gradient_norm": norm})
    _refuse_if_not_finite(numbers, batch, credits, log_probs, plan.refused)
    optimizer.step()
    return UpdateResult(
        metrics=_policy_metrics(numbers, batch, log_probs, weights, settings),
        weights=weights.cpu(),
        log_probs=log_probs.cpu(),
        entropies=entropies.cpu(),
    )


def _regularisers(
    batch: TokenBatch,
    scores: TokenScores,
    tokens: Tensor,
    reference: Tensor | None,
    settings: ObjectiveSettings,
) -> dict[str, Tensor]:
    """Entropy and KL of some action tokens, each only where its coefficient asked for it."""
    terms: dict[str, Tensor] = {}
    if scores.entropies is not None:
        terms["entropy"] = keep(scores.entropies, batch.entropy_mask[tokens])
    if reference is not None:
        terms["kl"] = kl_k3(scores.log_probs, reference[tokens], drop_likelier=settings.kl_drop_likelier)
    return terms


def _weighted(batch: TokenBatch, terms: Tensor, tokens: Tensor) -> Tensor:
    """Each token's part times its share, where paths branch."""
    return terms if batch.weight is None else terms * batch.weight[tokens].to(terms)


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """The learning rate of the next step."""
    for group in optimizer.param_groups:
        group["lr"] = lr


def _weights(settings: ObjectiveSettings, batch: TokenBatch, log_probs: Tensor, tokens: Tensor) -> Tensor:
    return importance_weights(
        log_probs,
        batch.behaviour[tokens],
        strategy=settings.importance,
        cap=settings.importance_cap,
        turn_ids=batch.turn[tokens],
        row_ids=batch.path[tokens],
    )


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


def _check_gap(policy: Policy, batch: TokenBatch, log_probs: Tensor, largest: float | None) -> None:
    """Law 2: on average the trainer finds a token as likely as its sampler did, but for rounding."""
    gap = float(masked_mean((log_probs - batch.behaviour).abs(), None))
    if largest is not None and gap > largest:
        raise RatioGapError(
            f"policy {policy.label!r}: trainer and sampler disagree by {gap:.3f} per token in log-prob; expected at"
            f" most {largest} before an update; the step was refused: check that the engine samples from these"
            " weights, at this temperature and under this grammar"
        )


def _policy_metrics(
    numbers: Mapping[str, float],
    batch: TokenBatch,
    log_probs: Tensor,
    weights: Tensor,
    settings: ObjectiveSettings,
) -> dict[str, float]:
    gap = (log_probs - batch.behaviour).abs()
    count, weight = max(batch.num_tokens, 1), max(batch.total_weight, 1)
    cap = settings.importance_cap
    extra = fetch(
        {
            "ratio_gap_mean": masked_mean(gap, None),
            "ratio_gap_max": gap.max(),
            "importance_clipped": clip_fraction(weights, None if cap is None else cap * (1 - 1e-6)),
            "importance_ess": effective_sample_size(weights) / count,
            "log_prob": masked_mean(log_probs, None),
        }
    )
    per_token = {name: numbers[name] / weight for name in ("entropy", "kl") if name in numbers}
    return {
        "loss": numbers["loss"], "gradient_norm": numbers["gradient_norm"], **per_token, **extra,
        "tokens": float(batch.num_tokens), "trajectories": float(batch.num_trajectories),
    }  # fmt: skip
