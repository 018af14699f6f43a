"""What each action token adds to a step's loss, and the factors it is multiplied by."""

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from coplay.agents.policy import Policy
from coplay.training.draws import moved
from coplay.training.importance import importance_weights, mean_ratios, segment_sizes
from coplay.training.log_probs import TokenScores
from coplay.training.losses import LARGEST_LOG_RATIO, kl_loss, normaliser, ppo_clip, reinforce
from coplay.training.masked import keep
from coplay.training.objectives import ObjectiveSettings, PpoObjective
from coplay.training.passes import ReadPlan, TokenPass, all_log_probs
from coplay.training.records import TokenBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """What is read once, from the weights before the first of an update's several steps, all (N,)."""

    log_probs: Tensor
    """Log pi_old."""
    entropies: Tensor
    """Of the distributions the tokens were drawn from."""
    weights: Tensor
    """Truncated importance weights pi_old / sampler."""

    def to(self, device: torch.device) -> "Before":
        """The same on a device."""
        return moved(self, device)

    def select(self, tokens: Tensor) -> "Before":
        """Those of some tokens (n,)."""
        return Before(**{entry.name: getattr(self, entry.name)[tokens] for entry in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a step finds of a batch's tokens, filled pass by pass, all (N,)."""

    log_probs: Tensor
    weights: Tensor
    ratios: Tensor
    entropies: Tensor


def start(
    policy: Policy,
    passes: list[TokenPass],
    batch: TokenBatch,
    settings: ObjectiveSettings,
    reading: ReadPlan,
    before: Before | None,
) -> Measured:
    """Nothing measured yet, but for what spans several passes: factors over a whole sequence."""
    ones = torch.ones_like(batch.behaviour)
    measured = Measured(
        log_probs=torch.zeros_like(ones), weights=ones, ratios=ones.clone(), entropies=torch.zeros_like(ones)
    )
    if _spans_passes(settings, before):
        measured.log_probs.copy_(all_log_probs(policy, passes, reading))
        _factors(measured, torch.arange(batch.num_tokens, device=ones.device), batch, settings, before)
    return measured


def _spans_passes(settings: ObjectiveSettings, before: Before | None) -> bool:
    """Whether a factor is a product or mean over a whole sequence, which may be read in several passes."""
    if isinstance(settings, PpoObjective) and before is not None:
        return settings.ratio == "sequence"
    return settings.importance == "sequence"


def measure(
    measured: Measured,
    scores: TokenScores,
    tokens: Tensor,
    batch: TokenBatch,
    settings: ObjectiveSettings,
    before: Before | None,
) -> None:
    """Note what a pass says of its tokens."""
    assert scores.measured is not None
    measured.entropies[tokens] = scores.measured
    if not _spans_passes(settings, before):
        measured.log_probs[tokens] = scores.log_probs.detach()
        _factors(measured, tokens, batch, settings, before)


def _factors(
    measured: Measured,
    tokens: Tensor,
    batch: TokenBatch,
    settings: ObjectiveSettings,
    before: Before | None,
) -> None:
    """What multiplies the policy term of some tokens: importance weights, and ratios to the policy before."""
    log_probs = measured.log_probs[tokens]
    if before is None or not isinstance(settings, PpoObjective):
        measured.weights[tokens] = weights_of(settings, batch, log_probs, tokens)
        return
    measured.weights[tokens] = before.weights[tokens]
    measured.ratios[tokens] = mean_ratios(
        log_probs,
        before.log_probs[tokens],
        unit=settings.ratio,
        turn_ids=batch.turn[tokens],
        row_ids=batch.path[tokens],
    )


def policy_term(
    settings: ObjectiveSettings, log_probs: Tensor, credits: Tensor, measured: Measured, tokens: Tensor
) -> Tensor:
    """(n,) the loss of some tokens, regularisers aside."""
    weights = measured.weights[tokens]
    if not isinstance(settings, PpoObjective):
        return reinforce(log_probs, credits.to(log_probs), weights)
    surrogate = ppo_clip(
        log_probs,
        measured.ratios[tokens],
        credits.to(log_probs),
        clip_low=settings.clip_low,
        clip_high=settings.clip_high,
        dual_clip=settings.dual_clip,
    )
    return weights * surrogate


def regularisers(
    batch: TokenBatch,
    scores: TokenScores,
    tokens: Tensor,
    settings: ObjectiveSettings,
    before: Before | None,
) -> dict[str, Tensor]:
    """Entropy and KL of some action tokens, each only where its coefficient asked for it."""
    terms: dict[str, Tensor] = {}
    if scores.entropies is not None:
        terms["entropy"] = keep(scores.entropies, batch.entropy_mask[tokens])
    kl, log_probs = settings.kl_in_loss, scores.log_probs
    if kl is not None:
        other = batch.behaviour if kl.against == "behaviour" else batch.reference
        assert other is not None, "a KL from the reference, which was not read"
        terms["kl"] = kl_loss(kl.kind, log_probs, other[tokens], drop_likelier=kl.drop_likelier)
        if kl.corrected:
            old = log_probs.detach() if before is None else before.log_probs[tokens]
            terms["kl"] = terms["kl"] * (log_probs - old).clamp(max=LARGEST_LOG_RATIO).exp()
    return terms


def loss_divisor(batch: TokenBatch, settings: ObjectiveSettings) -> float:
    """What the summed loss of a step's batch is divided by."""
    return normaliser(
        settings.normaliser,
        num_trajectories=batch.num_trajectories,
        num_tokens=batch.total_weight,
        constant_length=settings.constant_length,
    )


def loss_shares(batch: TokenBatch, settings: ObjectiveSettings) -> Tensor | None:
    """(N,) what each token counts in the loss; None: 1."""
    if settings.normaliser != "sequence":
        return batch.weight
    return 1 / segment_sizes(batch.path).to(batch.behaviour)


def shared(shares: Tensor | None, terms: Tensor, tokens: Tensor) -> Tensor:
    """Each token's part times its share."""
    return terms if shares is None else terms * shares[tokens].to(terms)


def weights_of(settings: ObjectiveSettings, batch: TokenBatch, log_probs: Tensor, tokens: Tensor) -> Tensor:
    """(n,) truncated importance weights of some tokens, trainer / sampler."""
    return importance_weights(
        log_probs,
        batch.behaviour[tokens],
        strategy=settings.importance,
        cap=settings.importance_cap,
        turn_ids=batch.turn[tokens],
        row_ids=batch.path[tokens],
    )
