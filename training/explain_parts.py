"""The parts of one cell's credit, (row, tick) of a tick table, each computed from what it is made of."""

import torch
from torch import Tensor

from coplay.training.estimators import mean_keys
from coplay.training.explanation import AlignmentWeight, Baseline, Normalising, Sibling, Surprise, Term
from coplay.training.masked import masked_mean, masked_std
from coplay.training.recredit import Recredited
from coplay.training.schemes import (
    AdvantageAlignment,
    CriticEstimator,
    GrpoEstimator,
    ReturnsEstimator,
    SharedReward,
    Whitening,
)
from coplay.training.shaping import alignment_weights


def rewards_of(result: Recredited, row: int, tick: int) -> tuple[Term, ...]:
    """The rewards of the tick and later, with GRPO of all ticks, with their discounts: they add up to the return."""
    table, discount = result.table, result.config.estimator.discount
    tick = 0 if isinstance(result.config.estimator, GrpoEstimator) else tick
    player, length = table.keys[row].player, int(table.mask[row].sum())
    return tuple(
        Term(player=player, tick=k, weight=discount ** (k - tick), amount=float(table.rewards[row, k]))
        for k in range(tick, length)
    )


def _reads_critic(result: Recredited, row: int) -> bool:
    return isinstance(result.config.estimator, CriticEstimator) and bool(result.table.acted[row].any())


def baseline_of(result: Recredited, row: int, tick: int) -> Baseline:
    """Whom the return was compared with: the critic, the others of the group, earlier iterations, or nobody."""
    table, settings = result.table, result.config.estimator
    if _reads_critic(result, row):
        assert result.values is not None
        return Baseline(kind="critic", amount=float(result.values.values[row, tick]))
    grpo = isinstance(settings, GrpoEstimator)
    tick = 0 if grpo else tick
    chosen = settings.baseline if isinstance(settings, ReturnsEstimator) else "leave_one_out"
    if chosen == "none":
        return Baseline(kind="none", amount=0.0)
    mates = (table.group_ids == table.group_ids[row]) & table.mask[:, tick]
    siblings = tuple(
        Sibling(
            episode=table.keys[mate].episode,
            branch=table.keys[mate].branch,
            returns=float(result.raw.returns[mate, tick]),
        )
        for mate in mates.nonzero().squeeze(1).tolist()
        if mate != row or grpo
    )
    if grpo and len(siblings) > 1:
        mean = sum(one.returns for one in siblings) / len(siblings)
        return Baseline(kind="group_mean", amount=mean, siblings=siblings)
    if grpo:
        return running_baseline(result, mean_keys(table)[row], tick)
    if chosen == "leave_one_out" and siblings:
        mean = sum(one.returns for one in siblings) / len(siblings)
        return Baseline(kind="leave_one_out", amount=mean, siblings=siblings)
    return running_baseline(result, mean_keys(table)[row], tick)


def running_baseline(result: Recredited, name: str, tick: int) -> Baseline:
    """The mean of what (player, opponents) of this name got in earlier iterations."""
    means, counts = result.running_means.get(name, ((), ()))
    known = tick < len(means)
    return Baseline(
        kind="running_mean", amount=means[tick] if known else 0.0, seen=counts[tick] if known else 0.0
    )


def surprises_of(result: Recredited, row: int, tick: int) -> tuple[Surprise, ...]:
    """The temporal differences of a path that a critic was read along."""
    settings, table, values = result.config.estimator, result.table, result.values
    if not isinstance(settings, CriticEstimator) or values is None or not _reads_critic(result, row):
        return ()
    decay = settings.discount * settings.gae_lambda.value(result.number)
    length = int(table.mask[row].sum())
    read = [*values.values[row, :length].tolist(), float(values.bootstrap[row])]
    return tuple(
        Surprise(
            tick=k,
            weight=decay ** (k - tick),
            reward=float(table.rewards[row, k]),
            following=settings.discount * read[k + 1],
            value=read[k],
        )
        for k in range(tick, length)
    )


def scaled_of(result: Recredited, row: int, tick: int) -> Normalising | None:
    """What GRPO's division by the group's deviation made of the advantage; None where nothing was divided."""
    settings, table = result.config.estimator, result.table
    mates = (table.group_ids == table.group_ids[row]) & table.mask[:, 0]
    if not isinstance(settings, GrpoEstimator) or not settings.divide_by_deviation or int(mates.sum()) < 2:
        return None
    outcomes = result.raw.returns[mates, 0]
    deviation = float(masked_std(outcomes, None))
    if settings.deviation == "population":
        deviation *= ((len(outcomes) - 1) / len(outcomes)) ** 0.5
    return Normalising(
        before=float(result.raw.returns[row, tick] - result.raw.baseline[row, tick]),
        after=float(result.raw.advantages[row, tick]),
        mean=float(masked_mean(outcomes, None)),
        deviation=deviation,
        over=f"the {len(outcomes)} games of its group",
    )


def before_of(result: Recredited, row: int, tick: int) -> Normalising | None:
    """What normalising before shaping made of the advantage."""
    shaping, table = result.config.shaping, result.table
    player = table.keys[row].player
    rows = torch.tensor([place for place, key in enumerate(table.keys) if key.player == player])
    return _normalising(
        before=result.raw.advantages[rows],
        after=result.estimate.advantages[rows],
        mask=table.mask[rows],
        place=(rows.tolist().index(row), tick),
        switches=(shaping.whiten_before, shaping.centre_before),
        over=f"all games of {player}",
    )


def after_of(result: Recredited, policy: str, row: int, tick: int) -> Normalising | None:
    """What normalising after shaping made of the credit."""
    shaping, ticks = result.config.shaping, result.ticks[policy]
    return _normalising(
        before=ticks.shaped,
        after=ticks.credits,
        mask=result.table.acted[ticks.rows],
        place=(ticks.rows.tolist().index(row), tick),
        switches=(shaping.whiten_after, shaping.centre_after),
        over=f"all ticks with tokens of {policy}",
    )


def _normalising(
    *,
    before: Tensor,
    after: Tensor,
    mask: Tensor,
    place: tuple[int, int],
    switches: tuple[Whitening, Whitening],
    over: str,
) -> Normalising | None:
    """One cell of (b, S) numbers before and after; None if both switches are off."""
    first = next((switch for switch in switches if switch != "off"), None)
    if first is None:
        return None
    column = (slice(None), slice(place[1], place[1] + 1) if first == "tick" else slice(None))
    cells, included = before[column], mask[column]
    return Normalising(
        before=float(before[place]),
        after=float(after[place]),
        mean=float(masked_mean(cells, included)),
        deviation=float(masked_std(cells, included)) if switches[0] != "off" else None,
        over=over + (f" at tick {place[1]}" if first == "tick" else ""),
    )


def shaping_of(result: Recredited, row: int, tick: int) -> tuple[AlignmentWeight | None, tuple[Term, ...]]:
    """What the opponents' advantages at the tick were multiplied by, and why."""
    shaping, table = result.config.shaping, result.table
    if isinstance(shaping, SharedReward):
        alignment, weight = None, 1.0
    elif isinstance(shaping, AdvantageAlignment):
        alignment = _alignment(result, shaping, row, tick)
        weight = alignment.beta * alignment.weight
    else:
        return None, ()
    own = table.keys[row]
    rows = {
        key.player: place
        for place, key in enumerate(table.keys)
        if key[:2] == own[:2] and key.player != own.player
    }
    others = (
        Term(player=player, tick=tick, weight=weight, amount=float(result.estimate.exchanged[place, tick]))
        for player, place in rows.items()
    )
    return alignment, tuple(others)


def _alignment(result: Recredited, shaping: AdvantageAlignment, row: int, tick: int) -> AlignmentWeight:
    """The weight in the conventions of `alignment_weights`, then the options of `advantage_alignment` in order."""
    discount = result.config.estimator.discount if shaping.discount is None else shaping.discount
    expected = result.estimate.past
    own = (result.estimate.exchanged if expected is None else expected.advantages)[row : row + 1]
    further = discount if shaping.extra_discount and not shaping.include_current else 1.0
    elapsed = {"none": 1, "t": max(tick, 1), "t+1": tick + 1}[shaping.normalise]
    rate = discount if shaping.normalise == "none" else 1.0
    past = tuple(
        Term(
            player=result.table.keys[row].player,
            tick=k,
            weight=rate ** (tick - k) * (further if shaping.normalise == "none" else 1 / elapsed),
            amount=float(own[0, k]),
        )
        for k in range(tick + shaping.include_current)
    )
    # Not the sum of the terms: `sign` of a sum that is only rounding must be the sign that was trained with.
    weights = alignment_weights(
        own,
        discount=discount,
        mask=result.table.mask[row : row + 1],
        include_current=shaping.include_current,
        normalise=shaping.normalise,
        extra_discount=shaping.extra_discount,
    )
    steps = [("sum", float(weights[0, tick]))]
    if shaping.sign:
        steps.append(("sign", float(torch.sign(weights[0, tick]))))
    if shaping.clip is not None:
        steps.append(("clip", max(-shaping.clip, min(shaping.clip, steps[-1][1]))))
    if shaping.divide_by_time:
        steps.append(("divide by time", steps[-1][1] / (tick + 1)))
    if shaping.force_first and tick == 0:
        steps.append(("first is 1", 1.0))
    return AlignmentWeight(beta=shaping.beta.value(result.number), past=past, steps=tuple(steps))
