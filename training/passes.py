"""What a network reads in one forward pass of a step, planned for the whole batch before the first pass runs."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from coplay.agents.critic import Critic
from coplay.agents.policy import Policy
from coplay.agents.trunk import Trunk
from coplay.training.config import StepSettings
from coplay.training.draws import TokenDraws, prepare
from coplay.training.log_probs import CHUNK, EntropyOf, TokenScores, likeliest, score
from coplay.training.pack import Pack, costs_of, pack
from coplay.training.records import TokenRows, ValueBatch

Packing = Literal["trie", "flat"]
Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """How rows are read: the part of a step's settings that changes its cost and nothing else."""

    micro_batch_tokens: int
    packing: Packing = "trie"
    precision: Precision = "float32"


def reading_of(settings: StepSettings) -> ReadPlan:
    """What the settings of a run say about it."""
    return ReadPlan(
        micro_batch_tokens=settings.micro_batch_tokens,
        packing=settings.packing,
        precision=settings.precision,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPass:
    """A forward pass of a policy."""

    pack: Pack
    draws: TokenDraws

    @property
    def tokens(self) -> Tensor:
        """(n,) which action tokens are scored."""
        return self.pack.places


def token_passes(batch: TokenRows, policy: Policy, how: ReadPlan) -> list[TokenPass]:
    """Plan how the rows of a batch (on the CPU) are read; each log-prob is read one position before its token.

    Raises:
        ValueError: if a token was not allowed where it stands, or a temperature is not positive.
    """
    prepared = prepare(batch.targets, batch.temperature, batch.allowed)
    packs = _packs(batch, batch.column - 1, policy.trunk, how)
    return [
        TokenPass(
            pack=one.to(policy.device),
            draws=prepared.draws(one.places, one.slots, chunk=CHUNK, vocabulary=policy.vocabulary).to(
                policy.device
            ),
        )
        for one in packs
    ]


def value_passes(batch: ValueBatch, critic: Critic, how: ReadPlan) -> list[Pack]:
    """Plan how the critic reads the points of a batch (on the CPU)."""
    return [one.to(critic.device) for one in _packs(batch, batch.column, critic.trunk, how)]


def _packs(batch: TokenRows | ValueBatch, column: Tensor, trunk: Trunk, how: ReadPlan) -> Sequence[Pack]:
    return pack(
        batch.ids,
        batch.row,
        column,
        max_tokens=how.micro_batch_tokens,
        costs=costs_of(
            trunk.width,
            cuda=trunk.device.type == "cuda",
            blocks=trunk.reads_blocks and how.precision == "float32",
        ),
        trees=how.packing == "trie" and trunk.reads_trees,
    )


def score_pass(
    policy: Policy,
    one: TokenPass,
    precision: Precision,
    *,
    entropy_of: EntropyOf | None = None,
    measure: bool = False,
) -> TokenScores:
    """Log-probs, and entropies where asked for (see `score`), of the tokens of one pass."""
    with computing(precision, policy.device):
        hidden = policy.hidden(one.pack.ids, one.pack.positions, one.pack.mask())
        return score(one.draws, hidden.flatten(0, 1), policy.logits, entropy_of=entropy_of, measure=measure)


def right_guesses(policy: Policy, one: TokenPass, precision: Precision) -> Tensor:
    """(n,) True at the tokens of one pass that the policy finds likeliest where they stand, without gradient."""
    with torch.no_grad(), computing(precision, policy.device):
        hidden = policy.hidden(one.pack.ids, one.pack.positions, one.pack.mask())
        return likeliest(one.draws, hidden.flatten(0, 1), policy.logits)


def all_log_probs(policy: Policy, passes: Sequence[TokenPass], how: ReadPlan) -> Tensor:
    """(N,) of all action tokens of a batch, without gradient."""
    log_probs = torch.zeros(sum(len(one.tokens) for one in passes), device=policy.device)
    with torch.no_grad():
        for one in passes:
            log_probs[one.tokens] = score_pass(policy, one, how.precision).log_probs
    return log_probs


def read_values(critic: Critic, one: Pack, precision: Precision) -> Tensor:
    """(n,) values at the points of one pass."""
    width = one.ids.shape[1]
    with computing(precision, critic.device):
        return critic.values(one.ids, one.positions, one.mask(), one.slots // width, one.slots % width)


def computing(precision: Precision, device: torch.device) -> AbstractContextManager[None]:
    """Multiply matrices in half precision inside, if asked to; sums, softmax and weights stay float32."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bfloat16")
