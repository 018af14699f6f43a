"""From rewards (and values) to advantages per tick, for every player at once."""

from dataclasses import replace

import torch
from torch import Tensor

from coplay.training.baselines import (
    RunningMeans,
    group_relative,
    leave_one_out,
    running_mean_baseline,
    running_mean_key,
)
from coplay.training.branch_estimates import branches_estimate
from coplay.training.credit import discounted_returns, generalized_advantages
from coplay.training.masked import masked_mean, masked_std, normalised, segment_sum
from coplay.training.records import Estimate, TickTable, TickValues, ValueBatch
from coplay.training.schemes import (
    BranchesEstimator,
    CriticEstimator,
    EstimatorSettings,
    GrpoEstimator,
    ReturnsEstimator,
    ShapingSettings,
)


class CriticNotApplicableError(ValueError):
    """A critic needs a value at every tick of every player with tokens."""


def estimate(
    settings: EstimatorSettings,
    table: TickTable,
    *,
    running_means: RunningMeans,
    values: TickValues | None = None,
    update: int = 0,
) -> Estimate:
    """Advantages of all players under the run's estimator.

    Players without tokens have no values: under a critic their advantages come from returns (rule 3).
    """
    if isinstance(settings, BranchesEstimator):
        known = None if settings.critic is None else values
        if known is not None:
            check_values(table, known)
        return branches_estimate(settings, table, mean_keys(table), running_means=running_means, values=known)
    if isinstance(settings, ReturnsEstimator):
        return returns_estimate(settings, table, running_means=running_means)
    if isinstance(settings, GrpoEstimator):
        return grpo_estimate(settings, table, running_means=running_means)
    assert values is not None
    return critic_estimate(settings, table, values, running_means=running_means, update=update)


def estimate_players(
    settings: EstimatorSettings,
    shaping: ShapingSettings,
    table: TickTable,
    *,
    running_means: RunningMeans,
    values: TickValues | None = None,
    update: int = 0,
    penalty: Tensor | None = None,
) -> Estimate:
    """Advantages of all players, normalised by player where asked for.

    With a penalty a player's own credit comes from his lowered rewards, and so do the critic's targets; what others
    are told, and running means, come from what the game paid.

    Args:
        penalty: (B, S) what rewards are lowered by, in scaled units; None: nothing.
    """

    def of(rewards: TickTable) -> Estimate:
        found = estimate(settings, rewards, running_means=running_means, values=values, update=update)
        return normalise_by_player(shaping, rewards, found)

    paid = of(table)
    if penalty is None:
        return paid
    own = of(lowered(table, penalty))
    return replace(own, running_means=paid.running_means, unpenalised=paid.advantages, penalty=penalty)


def lowered(table: TickTable, penalty: Tensor | None) -> TickTable:
    """The table with rewards less a penalty (B, S); None: the table."""
    return table if penalty is None else replace(table, rewards=table.rewards - penalty)


def normalise_by_player(settings: ShapingSettings, table: TickTable, estimate: Estimate) -> Estimate:
    """Whiten or centre the advantages of each seat over its own games, before packets carry them (rule 6)."""
    if settings.whiten_before == settings.centre_before == "off":
        return estimate
    advantages = estimate.advantages
    for player in dict.fromkeys(key.player for key in table.keys):
        rows = torch.tensor([row for row, key in enumerate(table.keys) if key.player == player])
        changed = normalised(
            advantages[rows],
            table.mask[rows],
            whitening=settings.whiten_before,
            centring=settings.centre_before,
        )
        advantages = advantages.index_copy(0, rows, changed)
    return replace(estimate, advantages=advantages)


def returns_estimate(
    settings: ReturnsEstimator,
    table: TickTable,
    *,
    running_means: RunningMeans,
    bootstrap: Tensor | None = None,
) -> Estimate:
    """A_t = G_t - b_t with b_t the mean of the others in the group at tick t (RLOO), or a running mean.

    A row that is alone in its group at tick t takes the running mean of (player, opponents) as baseline, read before
    it is updated (rule 1).
    """
    returns = discounted_returns(
        table.rewards, discount=settings.discount, mask=table.mask, bootstrap=bootstrap
    )
    alone = _alone(table)
    running = running_mean_baseline(running_means, mean_keys(table), returns, mask=table.mask)
    if settings.baseline == "leave_one_out":
        advantages = torch.where(
            alone, returns - running.baselines, leave_one_out(returns, table.group_ids, mask=table.mask)
        )
    elif settings.baseline == "running_mean":
        advantages = returns - running.baselines
    else:
        advantages = returns
    advantages = torch.where(table.mask, advantages, 0.0)
    num_alone = int((alone & table.mask)[:, 0].sum()) if table.mask.numel() else 0
    return Estimate(
        returns=returns,
        baseline=torch.where(table.mask, returns - advantages, 0.0),
        advantages=advantages,
        targets=None,
        running_means=running.state,
        metrics={"credit/groups_of_one": float(num_alone)},
    )


def grpo_estimate(settings: GrpoEstimator, table: TickTable, *, running_means: RunningMeans) -> Estimate:
    """A = (R - mean) / (deviation + epsilon) with R the whole game's return, mean and deviation the group's.

    Every tick of a game has its advantage (outcome supervision). A row alone in its group takes the running mean of
    (player, opponents) as mean, read before it is updated, and is not divided (rule 1).
    """
    returns = discounted_returns(table.rewards, discount=settings.discount, mask=table.mask)
    outcome, started = returns[:, :1], table.mask[:, :1]  # (B, 1)
    alone = _alone(table)[:, :1]
    running = running_mean_baseline(running_means, mean_keys(table), outcome, mask=started)
    centred = torch.where(
        alone, outcome - running.baselines, group_relative(outcome, table.group_ids, mask=started)
    )
    scaled = centred
    if settings.divide_by_deviation:
        scaled = group_relative(
            outcome, table.group_ids, mask=started, deviation=settings.deviation, epsilon=settings.epsilon
        )
    spread = [torch.where(table.mask, one, 0.0) for one in (outcome, outcome - centred)]
    return Estimate(
        returns=spread[0],
        baseline=spread[1],
        advantages=torch.where(table.mask, torch.where(alone, centred, scaled), 0.0),
        targets=None,
        running_means=running.state,
        metrics={
            "credit/groups_of_one": float((alone & started).sum()),
            "credit/no_signal": _without_signal(table, outcome, centred),
        },
    )


def _without_signal(table: TickTable, outcome: Tensor, centred: Tensor) -> float:
    """Share of the games with tokens that got what their group got on average, and so teach nothing."""
    nothing = centred.abs() <= 1e-9 * outcome.abs()
    return float(masked_mean(nothing.to(outcome), table.acted.any(dim=1, keepdim=True)))


def critic_estimate(
    settings: CriticEstimator,
    table: TickTable,
    values: TickValues,
    *,
    running_means: RunningMeans,
    update: int,
) -> Estimate:
    """GAE(lambda) where values were read; returns minus leave-one-out for players without tokens.

    Raises:
        CriticNotApplicableError: if a player with tokens has ticks without a value.
    """
    check_values(table, values)
    has_tokens = _with_tokens(table)
    lam = settings.gae_lambda.value(update)
    advantages = generalized_advantages(
        table.rewards, values.values, discount=settings.discount, gae_lambda=lam, mask=table.mask,
        bootstrap=values.bootstrap,
    )  # fmt: skip
    plain = ReturnsEstimator(discount=settings.discount, reward_scale=settings.reward_scale)
    by_return = returns_estimate(plain, table, running_means=running_means)
    known = has_tokens[:, None] & table.mask
    baseline = torch.where(known, torch.nan_to_num(values.values), by_return.baseline)
    advantages = torch.where(known, advantages, by_return.advantages)
    return Estimate(
        returns=by_return.returns,
        baseline=baseline,
        advantages=advantages,
        targets=torch.where(known, advantages + baseline, 0.0),
        values=baseline,
        running_means=by_return.running_means,
        metrics={
            **by_return.metrics,
            "critic/gae_lambda": lam,
            "critic/value": float(masked_mean(baseline, known)),
            "critic/explained_variance": explained_variance(baseline, advantages + baseline, known),
        },
    )


def explained_variance(values: Tensor, targets: Tensor, mask: Tensor) -> float:
    """1 - Var(target - V) / Var(target): 1 is a perfect critic, 0 one that always says the same; NaN without spread.

    Args:
        values: (B, S).
        targets: (B, S) what the critic learns, A + V.
        mask: (B, S) bool.
    """
    spread = float(masked_std(targets, mask)) ** 2 if targets.numel() else 0.0
    return 1 - float(masked_std(targets - values, mask)) ** 2 / spread if spread else float("nan")


def check_values(table: TickTable, values: TickValues) -> None:
    """Refuse readings with a gap.

    Raises:
        CriticNotApplicableError: if a player with tokens has ticks without a value.
    """
    missing = _with_tokens(table)[:, None] & table.mask & torch.isnan(values.values)
    if missing.any():
        row, tick = (int(part) for part in missing.nonzero()[0])
        raise CriticNotApplicableError(
            f"player {table.keys[row].player!r} of episode {table.keys[row].episode!r} has no reply at tick {tick}, so"
            " a critic has no value there; expected a reply of every player at every tick (declare rounds, or use"
            " estimator.kind = 'returns')"
        )


def _with_tokens(table: TickTable) -> Tensor:
    """(B,) True for paths of players who sampled tokens in the game: on a branch, all their turns may be held ones."""
    acting = {
        (key.episode, key.player)
        for key, acted in zip(table.keys, table.acted.any(dim=1).tolist(), strict=True)
        if acted
    }
    return torch.tensor([(key.episode, key.player) in acting for key in table.keys], dtype=torch.bool)


def values_per_tick(table: TickTable, batch: ValueBatch, values: Tensor) -> TickValues:
    """Lay the critic's P readings out by tick."""
    rows, ticks = table.mask.shape
    laid = torch.full((rows, ticks + 1), float("nan"), dtype=table.rewards.dtype)
    laid[batch.path, batch.tick] = values.to(laid.dtype)
    num_ticks = table.mask.sum(dim=1)
    beyond = laid.gather(1, num_ticks[:, None]).squeeze(1)
    has_tokens = _with_tokens(table)
    # A context that overflows inside a round leaves some without a reply in it: the tick's state is where they read on.
    last = (num_ticks - 1).clamp(min=0)[:, None]
    unread = (table.truncated & has_tokens)[:, None] & torch.isnan(laid.gather(1, last))
    laid = laid.scatter(1, last, torch.where(unread, beyond[:, None], laid.gather(1, last)))
    bootstrap = torch.where(table.truncated & has_tokens, beyond, 0.0)
    return TickValues(values=torch.where(table.mask, laid[:, :ticks], float("nan")), bootstrap=bootstrap)


def _alone(table: TickTable) -> Tensor:
    """(B, S) True where no other row of the group is alive at the tick."""
    groups = int(table.group_ids.max()) + 1 if len(table.group_ids) else 0
    return segment_sum(table.mask.double(), table.group_ids, groups)[table.group_ids] == 1


def mean_keys(table: TickTable) -> list[str]:
    """Key of each path's running mean: the player and the names of his opponents, versions left out.

    In a mixture, what he plays too.
    """
    games = (None,) * len(table.keys) if table.games is None else table.games
    return [
        running_mean_key(key.player, [policy.partition("@")[0] for policy in others.split("+")], game)
        for key, others, game in zip(table.keys, table.opponents, games, strict=True)
    ]
