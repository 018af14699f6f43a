"""Advantage Alignment's inner expectation: own past advantages over fresh replies, which branches hold.

In c_t = A_i,t + β w_t Σ_j A_j,t (arXiv 2406.14662) w_t is a discounted sum of own past advantages
A_i,k(h, a, b): h is all that was before player i's reply a, b what the others did beside it. w_t is to say how
others treated him; which a he happened to sample is noise in it, and w_t follows that noise. The inner expectation
takes it out, each A_i,k giving way to an estimate of E_{a' ~ π_i(·|h)}[A_i,k(h, a', b)] from the branches at tick k:

    Ā_i,k = mean over a' of R_i,k(h, a', b) − B_i,k,

R the return from k on as the estimator has it (with a critic the λ-return A + V, cut branches bootstrapped).
Alternatives are drawn as a was, with b held, and apart from a and from all that followed it: given the main line, Ā
over alternatives has that expectation, and so has every credit that is linear in w (no sign, no clip). Later luck in
common stays that of the game; with `fresh_luck` it is averaged too. With the taken reply among the siblings its noise
stays at a share of 1 / (1 + alternatives). B may not depend on a': the path's own baseline, or the mean of the other
games' expected returns. Where a tick holds several replies of the player, the last that was resampled counts: all
that others did before and beside it is held, what they answered later in the tick is drawn anew.

A path's own reply is another on every branch: siblings are exchangeable (rule 11), so where branches are
trained on, the alternatives to a branch's reply are its siblings, the main line's among them.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from coplay.rollout_tree import RolloutTree, Trajectory, branch_trajectories
from coplay.training.branch_estimates import mean_of_others
from coplay.training.credit import discounted_returns
from coplay.training.estimators import critic_estimate
from coplay.training.extract import in_table_order, path_key
from coplay.training.masked import keep, segment_sum
from coplay.training.records import Estimate, FreshReplies, PastEstimate, PathKey, TickTable, TickValues
from coplay.training.schemes import (
    AdvantageAlignment,
    CriticEstimator,
    EstimatorSettings,
    ExpectedPast,
    ShapingSettings,
)


class UnforkedTickError(ValueError):
    """An expected advantage was asked for where no reply of the player was resampled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """Branches that are not trained on, each as the player lived through it whose reply is another there."""

    trajectories: tuple[Trajectory, ...]
    table: TickTable
    values: TickValues | None = None
    """With a critic, read along them before its update."""


_Replies = dict[int, PathKey]
"""One player's at one fork, the taken one first: id of the step each stands in -> the path it was played on."""


def expects_past(shaping: ShapingSettings) -> ExpectedPast | None:
    """How the own past is expected, if it is."""
    past = shaping.past if isinstance(shaping, AdvantageAlignment) else None
    return past if isinstance(past, ExpectedPast) else None


def paths_beside(trees: Iterable[RolloutTree]) -> tuple[Trajectory, ...]:
    """The branches of all games, each as the player who was resampled there; ascending by key."""
    paths = (one for tree in trees for one in branch_trajectories(tree))
    return tuple(sorted([one for one in paths if _deviates(one)], key=path_key))


def expect_past(
    estimator: EstimatorSettings,
    past: ExpectedPast,
    trajectories: Iterable[Trajectory],
    table: TickTable,
    estimate: Estimate,
    beside: Beside | None,
    *,
    policies: Collection[str],
    update: int = 0,
) -> Estimate:
    """The estimate with the own past as alignment weights take it: Ā where a fork says so.

    Args:
        trajectories: those of the table, in any order.
        beside: the games' branches where only main lines are trained on; None: they are in the table.
        policies: `name@version` of those who learn; nobody else has a weight, so others keep their advantages.

    Raises:
        UnforkedTickError: if one of them replied at a tick without a fork of his, and that is to be refused.
    """
    ordered = in_table_order(trajectories, table)
    forks = _forks(ordered if beside is None else beside.trajectories)
    chosen: dict[tuple[int, int], _Replies] = {}
    unforked: list[tuple[int, int]] = []
    for row, path in enumerate(ordered):
        for tick, steps in _reply_steps(path).items() if path.policy in policies else ():
            places = [(path.episode, path.player, step) for step in reversed(steps)]
            place = next((one for one in places if one in forks), None)
            if place is None:
                unforked.append((row, tick))
                continue
            own = {place[2]: table.keys[row]} if past.replies == "siblings" else {}
            chosen[row, tick] = own | {s: line for s, line in forks[place].items() if s != place[2]}
    if unforked and past.unforked == "refuse":
        raise UnforkedTickError(_refusal(table, *unforked[0]))
    pool, rows = _pool(estimator, table, estimate, beside, update)
    found = _means(past, table, estimate, pool, rows, chosen, unforked)
    metrics = {"credit/past_expected": float(len(chosen)), "credit/past_unforked": float(len(unforked))}
    return replace(estimate, past=found, metrics={**estimate.metrics, **metrics})


def _means(
    past: ExpectedPast,
    table: TickTable,
    estimate: Estimate,
    pool: Tensor,
    rows: Mapping[PathKey, int],
    chosen: Mapping[tuple[int, int], _Replies],
    unforked: Sequence[tuple[int, int]],
) -> PastEstimate:
    """Ā = mean over the chosen replies' returns - B, cell by cell."""
    sizes = [len(replies) for replies in chosen.values()]
    cells = torch.tensor(list(chosen), dtype=torch.long).reshape(-1, 2)  # (C, 2) row, tick
    owner = torch.repeat_interleave(torch.tensor(sizes, dtype=torch.long))  # (M,) cell of each reply
    sources = torch.tensor(
        [rows[line] for some in chosen.values() for line in some.values()], dtype=torch.long
    )
    gains = pool[sources, cells[owner, 1]]
    means = segment_sum(gains, owner, len(sizes)) / torch.tensor(sizes, dtype=gains.dtype)
    place = (cells[:, 0], cells[:, 1])
    expected = torch.zeros_like(estimate.advantages).index_put(place, means)
    known = torch.zeros_like(table.mask).index_put(place, torch.ones(len(sizes), dtype=torch.bool))
    baseline = estimate.baseline
    if past.baseline == "leave_one_out":
        main = torch.tensor([not key.branch for key in table.keys], dtype=torch.bool)
        others, alone = mean_of_others(table, expected, known & main[:, None])
        baseline = torch.where(alone, baseline, others)
    advantages = torch.where(known, expected - baseline, estimate.advantages)
    if past.unforked == "zero" and unforked:
        away = torch.tensor(unforked, dtype=torch.long)
        advantages = advantages.index_put((away[:, 0], away[:, 1]), torch.zeros((), dtype=advantages.dtype))
    ends = torch.tensor(sizes, dtype=torch.long).cumsum(0).tolist()
    returns = gains.tolist()
    return PastEstimate(
        advantages=keep(advantages, table.mask),
        expected=expected,
        replies={
            cell: FreshReplies(
                steps=tuple(some), lines=tuple(some.values()), returns=tuple(returns[end - len(some) : end])
            )
            for (cell, some), end in zip(chosen.items(), ends, strict=True)
        },
        unforked=frozenset(unforked),
    )


def _pool(
    estimator: EstimatorSettings, table: TickTable, estimate: Estimate, beside: Beside | None, update: int
) -> tuple[Tensor, dict[PathKey, int]]:
    """Returns by tick of all paths, those of the table first, and the row of each."""
    critic = isinstance(estimator, CriticEstimator)
    pool = estimate.advantages + estimate.baseline if critic else estimate.returns
    if beside is None:
        return pool, {key: row for row, key in enumerate(table.keys)}
    branches = beside.table
    if isinstance(estimator, CriticEstimator):
        assert beside.values is not None
        read = critic_estimate(estimator, branches, beside.values, running_means={}, update=update)
        more = read.advantages + read.baseline
    else:
        more = discounted_returns(branches.rewards, discount=estimator.discount, mask=branches.mask)
    width = max(pool.shape[1], more.shape[1])
    laid = [torch.nn.functional.pad(part, (0, width - part.shape[1])) for part in (pool, more)]
    return torch.cat(laid), {key: row for row, key in enumerate((*table.keys, *branches.keys))}


def _forks(paths: Iterable[Trajectory]) -> dict[tuple[str, str, int], _Replies]:
    """(episode, player, id of a step with one of his replies there) -> the fork; whatever the order of paths."""
    found: dict[tuple[str, str, int], _Replies] = {}
    for path in sorted([one for one in paths if _deviates(one)], key=path_key):
        assert path.fork is not None
        step, taken = path.fork.step, PathKey(path.episode, path.fork.line, path.player)
        replies = found.setdefault((path.episode, path.player, step), {step: taken})
        replies[path.fork.first] = path_key(path)
        found[path.episode, path.player, path.fork.first] = replies
    return found


def _deviates(path: Trajectory) -> bool:
    """Whether it is a branch seen by the player whose reply is another there."""
    return path.fork is not None and path.fork.player == path.player


def _reply_steps(path: Trajectory) -> dict[int, list[int]]:
    """Tick -> ids of the steps in which the player sampled a reply, in order."""
    found: dict[int, list[int]] = {}
    for turn, tick, step in zip(path.turns, path.turn_ticks, path.turn_steps, strict=True):
        if any(segment.sampled for segment in turn.segments):
            found.setdefault(tick, []).append(step)
    return found


def _refusal(table: TickTable, row: int, tick: int) -> str:
    key = table.keys[row]
    where = f", branch {key.branch!r}" if key.branch else ""
    return (
        f"player {key.player!r} of episode {key.episode!r}{where} replied at tick {tick} and no other reply of his was"
        " played on from there, so that his advantage has no expectation; expected a fork at each of his ticks, or"
        " shaping.past.unforked = 'taken' or 'zero'"
    )
