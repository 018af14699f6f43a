"""One trainer for each trained policy: credit from its own and the others' advantages, then one step."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from coplay.agents.policy import Policy
from coplay.rollout_tree import Trajectory
from coplay.training.checkpoint import optimizer_tensors, restore_optimizer
from coplay.training.config import RunConfig
from coplay.training.credit import token_credits
from coplay.training.epochs import policy_update
from coplay.training.extract import in_table_order, token_batch
from coplay.training.inner_expectation import expects_past
from coplay.training.masked import normalised
from coplay.training.mini_batches import dealing_of
from coplay.training.packets import AdvantagePacket, exchange
from coplay.training.passes import reading_of
from coplay.training.records import Estimate, TickTable, TokenBatch, UpdateResult
from coplay.training.schemes import AdvantageAlignment, ShapingSettings, SharedReward
from coplay.training.shaping import advantage_alignment, shared_reward, visitation_weights
from coplay.training.tool_tokens import with_own_behaviour
from coplay.training.updates import StepPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class TickCredit:
    """What shaping made of the advantages of one policy's b paths, by tick."""

    rows: Tensor
    """(b,) their rows in the tick table."""
    shaped: Tensor
    """(b, S) after shaping."""
    credits: Tensor
    """(b, S) after whitening or centring it."""
    turns: Tensor | None = None
    """(B, U) what is known of single turns beyond their tick's advantage, added to it; None: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credit:
    """The action tokens of one policy and what each is credited with."""

    batch: TokenBatch
    tokens: Tensor
    """(N,) what multiplies each action token's log-prob."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """One policy's iteration: its credit, and what its step did."""

    credit: Credit
    result: UpdateResult


def shape_credit(
    settings: ShapingSettings,
    own: Tensor,
    others: Tensor,
    mask: Tensor,
    *,
    discount: float,
    beta: float,
    past: Tensor | None = None,
) -> Tensor:
    """Credit (B, S) from own advantages (B, S) and the opponents' summed (B, S), in scaled units.

    Args:
        past: (B, S) own advantages as alignment weights take them; None: `own`.
    """
    if isinstance(settings, SharedReward):
        return shared_reward(own, others, mask=mask)
    if isinstance(settings, AdvantageAlignment):
        return advantage_alignment(
            own,
            others,
            beta=beta,
            past=past,
            discount=discount if settings.discount is None else settings.discount,
            mask=mask,
            include_current=settings.include_current,
            normalise=settings.normalise,
            sign=settings.sign,
            clip=settings.clip,
            divide_by_time=settings.divide_by_time,
            extra_discount=settings.extra_discount,
            force_first=settings.force_first,
        )
    return own


def shape_ticks(
    config: RunConfig,
    policy: str,
    players: Sequence[str],
    table: TickTable,
    estimate: Estimate,
    packets: Sequence[AdvantagePacket],
    *,
    update: int,
) -> TickCredit:
    """The credit by tick of all paths that `policy` (`name@version`) played, before penalties and gamma^t."""
    shaping = config.shaping
    rows = torch.tensor([row for row, name in enumerate(table.policies) if name == policy])
    mask = table.mask[rows]
    others = exchange([table.keys[int(row)] for row in rows], packets, players)
    beta = shaping.beta.value(update) if isinstance(shaping, AdvantageAlignment) else 0.0
    past = estimate.unpenalised
    if expects_past(shaping) is not None:
        assert estimate.past is not None
        past = estimate.past.advantages
    shaped = shape_credit(
        shaping,
        estimate.advantages[rows],
        _widened(others, mask),
        mask,
        discount=config.estimator.discount,
        beta=beta,
        past=None if past is None else past[rows],
    )
    credits = normalised(
        shaped, table.acted[rows], whitening=shaping.whiten_after, centring=shaping.centre_after
    )
    return TickCredit(rows=rows, shaped=shaped, credits=credits, turns=_beyond_ticks(table, estimate))


def _beyond_ticks(table: TickTable, estimate: Estimate) -> Tensor | None:
    if table.turns is None or estimate.turns is None:
        return None
    return estimate.turns.advantages - estimate.advantages.gather(1, table.turns.ticks)


def credit_tokens(config: RunConfig, table: TickTable, batch: TokenBatch, credit: TickCredit) -> Tensor:
    """(N,) what each action token is credited with: its tick's credit, less its penalty, times gamma^t if asked."""
    by_path = torch.zeros(table.mask.shape, dtype=credit.credits.dtype)
    by_path = by_path.index_copy(0, credit.rows, credit.credits)
    tokens = token_credits(by_path, batch.path, batch.tick)
    if credit.turns is not None:
        tokens = tokens + credit.turns[batch.path, batch.place[:, 1]]
    tokens = tokens - batch.penalty
    if config.objective.visitation:
        visited = visitation_weights(table.mask, config.estimator.discount, dtype=tokens.dtype)
        tokens = tokens * token_credits(visited, batch.path, batch.tick)
    return tokens


def make_credit(
    config: RunConfig, table: TickTable, estimate: Estimate, batch: TokenBatch, credit: TickCredit
) -> Credit:
    """A policy's action tokens with their credits, and their weights where paths branch."""
    if estimate.turns is not None:
        batch = replace(batch, weight=estimate.turns.weights[batch.path, batch.place[:, 1]])
    return Credit(batch=batch, tokens=credit_tokens(config, table, batch, credit))


class Trainer:
    """Trains one policy; owns its optimiser and the coefficient of its KL, and nothing else."""

    def __init__(self, policy: Policy, config: RunConfig, players: Sequence[str]) -> None:
        self.policy = policy
        self.config = config
        self.players = tuple(players)
        self.optimizer = torch.optim.Adam(list(policy.named_parameters().values()), lr=1.0)
        kl = config.objective.kl
        self.kl_coefficient = 0.0 if kl is None else kl.coefficient
        """As it is now: an adaptive controller moves it."""

    def batch(self, trajectories: Sequence[Trajectory], table: TickTable) -> TokenBatch | None:
        """The rows of this policy; None if it sampled no token."""
        return token_batch(
            in_table_order(trajectories, table),
            policy=self.policy.label,
            trie_of=self.policy.chat.trie,
            reward_scale=self.config.estimator.reward_scale,
            entropy_mask_regex=self.config.objective.entropy_mask_regex,
            tool_output=not self.config.objective.mask_tool_output,
        )

    def credit(
        self,
        trajectories: Sequence[Trajectory],
        table: TickTable,
        estimate: Estimate,
        packets: Sequence[AdvantagePacket],
        *,
        update: int,
    ) -> Credit | None:
        """The credit of every action token this policy sampled; None if it sampled none."""
        batch = self.batch(trajectories, table)
        if batch is None:
            return None
        shaped = shape_ticks(
            self.config, self.policy.label, self.players, table, estimate, packets, update=update
        )
        return make_credit(self.config, table, estimate, batch, shaped)

    def step(self, credit: Credit, *, update: int, folder: Path) -> UpdateResult:
        """Update the policy's weights and count its version up, unless the critic is still warming up."""
        settings, objective = self.config.update, self.config.objective
        plan = StepPlan(
            lr=settings.lr.value(update),
            entropy_coefficient=objective.entropy_coefficient.value(update),
            gradient_clip=settings.gradient_clip,
            reading=reading_of(settings),
            refused=folder / "refused" / f"{self.policy.name}-{update:06d}.safetensors",
            kl_coefficient=self.kl_coefficient,
            max_kl=settings.max_kl,
            frozen=update < settings.critic_warmup,
        )
        dealing = dealing_of(settings, self.config.seed, self.policy.name, update)
        batch = credit.batch
        if not objective.mask_tool_output:
            batch = with_own_behaviour(self.policy, batch, plan.reading)
        result = policy_update(self.policy, self.optimizer, batch, credit.tokens, objective, plan, dealing)
        # else as much as the weights is held while others learn and play
        self.optimizer.zero_grad(set_to_none=True)
        if not plan.frozen:
            self.policy.bump()
        metrics = {**result.metrics, "lr": plan.lr}
        if objective.kl is not None:
            metrics["kl_coefficient"] = self.kl_coefficient
        if settings.critic_warmup:
            metrics["frozen"] = float(plan.frozen)
        return replace(result, metrics=metrics)

    def optimizer_state(self) -> dict[str, Tensor]:
        """The optimiser's moments by parameter name."""
        return optimizer_tensors(self.optimizer, self.policy.named_parameters())

    def restore_optimizer(self, flat: dict[str, Tensor]) -> None:
        """Put saved moments back."""
        restore_optimizer(self.optimizer, self.policy.named_parameters(), flat)


def _widened(others: Tensor, mask: Tensor) -> Tensor:
    """Pad (B, S') with zeros to the table's S ticks."""
    return torch.nn.functional.pad(others, (0, mask.shape[1] - others.shape[1]))
