"""The parts of a turn's return and baseline where games branch: the lines it was averaged over, and its siblings.

Along a line a return is followed tick by tick; at each fork the line splits into equal shares, and a branch brings its
whole return from there on (`branch_returns`). Where lines are cut at a horizon, a value stands for what lies beyond.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from coplay.training.branch_returns import Cut, Parting, earlier
from coplay.training.estimators import mean_keys
from coplay.training.explain_parts import running_baseline
from coplay.training.explanation import Baseline, Line, Sibling, Term
from coplay.training.records import ForkPlace, PathKey
from coplay.training.recredit import Recredited


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """A return, as the rewards of the own path, the branches that leave it, and what lies beyond its end."""

    rewards: tuple[Term, ...]
    lines: tuple[Line, ...]
    beyond: tuple[Term, ...] = ()

    @property
    def returns(self) -> float:
        """Their sum."""
        terms = [one.product for one in (*self.rewards, *self.beyond)]
        return sum(terms) + sum(one.product for one in self.lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchParts:
    """What a turn's advantage is made of where its game branches."""

    followed: Followed
    baseline: Baseline
    share: float
    """The turn's weight in losses and means (rule 11)."""


def branch_parts(result: Recredited, row: int, turn: int, tick: int) -> BranchParts:
    """The parts of the advantage of one turn, at its place among the turns of a path."""
    turns, known = result.table.turns, result.raw.turns
    if turns is None or known is None:
        followed = _follow(result, row, tick, after=-1)
        return BranchParts(followed=followed, baseline=by_games(result, row, tick), share=1.0)
    step, key = int(turns.steps[row, turn]), result.table.keys[row]
    own_fork = next(
        (
            fork
            for fork in turns.forks
            if fork.episode == key.episode
            and fork.player == key.player
            and step in (fork.step, *fork.first_steps)
        ),
        None,
    )
    followed = _from_turn(result, row, step, tick)
    baseline = by_games(result, row, tick) if own_fork is None else _by_replies(result, own_fork, key)
    return BranchParts(followed=followed, baseline=baseline, share=float(known.weights[row, turn]))


def _partings(result: Recredited, key: PathKey) -> list[Parting]:
    """The steps at which a line forks."""
    turns, by_step = result.table.turns, dict[int, list[ForkPlace]]()
    for fork in () if turns is None else turns.forks:
        if (fork.episode, fork.line) == (key.episode, key.branch):
            by_step.setdefault(fork.step, []).append(fork)
    return [
        Parting(step=step, tick=places[0].tick, cut=places[0].last_tick, places=tuple(places))
        for step, places in by_step.items()
    ]


def _from_turn(result: Recredited, row: int, step: int, tick: int) -> Followed:
    """What a player had from a reply on: of the lines at its step, only those that hold it count."""
    key = result.table.keys[row]
    here = next((parting for parting in _partings(result, key) if parting.step == step), None)
    if here is None:
        return _follow(result, row, tick, after=step)
    held_by = [branch for fork in here.places if fork.player != key.player for branch in fork.branches]
    share = 1 / (1 + len(held_by))
    rest = _follow(result, row, tick, after=step, share=share, cut=here.cut)
    lines = _lines(result, key, held_by, tick, share, here.cut)
    return Followed(rewards=rest.rewards, lines=lines + rest.lines, beyond=rest.beyond)


def _follow(
    result: Recredited, row: int, tick: int, *, after: int, share: float = 1.0, cut: Cut = None
) -> Followed:
    """The return of a path from a tick on up to a cut, averaged over its forks at later steps than `after`."""
    table, discount = result.table, result.config.estimator.discount
    key, rewards, lines = table.keys[row], list[Term](), list[Line]()
    leaving: dict[int, list[Parting]] = {}
    for parting in _partings(result, key):
        if parting.step > after:
            leaving.setdefault(parting.tick, []).append(parting)
    end, k = int(table.mask[row].sum()), tick
    while k < end and (cut is None or k <= cut):
        decay = discount ** (k - tick)
        for parting in leaving.get(k, ()):
            share /= 1 + len(parting.branches)
            cut = earlier(cut, parting.cut)
            lines += _lines(result, key, parting.branches, k, share * decay, cut)
        amount = float(table.rewards[row, k])
        rewards.append(Term(player=key.player, tick=k, weight=share * decay, amount=amount))
        k += 1
    value = _beyond(result, row, k)
    weight = share * discount ** (k - tick)
    beyond = (Term(player=key.player, tick=k, weight=weight, amount=value),) if value else ()
    return Followed(rewards=tuple(rewards), lines=tuple(lines), beyond=beyond)


def _beyond(result: Recredited, row: int, tick: int) -> float:
    """V of the state at a tick, 0 where the game is over or no critic says it."""
    if result.raw.values is None or result.values is None:
        return 0.0
    if tick < int(result.table.mask[row].sum()):
        return float(result.raw.values[row, tick])
    return float(result.values.bootstrap[row].nan_to_num())


def _lines(
    result: Recredited, key: PathKey, branches: Sequence[str], tick: int, weight: float, cut: Cut
) -> tuple[Line, ...]:
    """Whole branches, from the fork on and cut where the fork's lines are."""
    assert result.table.turns is not None
    first_of = {
        branch: first
        for fork in result.table.turns.forks
        if fork.episode == key.episode
        for branch, first in zip(fork.branches, fork.first_steps, strict=True)
    }
    return tuple(
        Line(
            branch=branch,
            tick=tick,
            weight=weight,
            returns=_follow(result, _row(result, key, branch), tick, after=-1, cut=cut).returns,
            step=first_of[branch],
        )
        for branch in branches
    )


def _row(result: Recredited, key: PathKey, branch: str) -> int:
    return result.table.keys.index(PathKey(key.episode, branch, key.player))


def _by_replies(result: Recredited, fork: ForkPlace, key: PathKey) -> Baseline:
    """The mean of the other replies of a fork; the taken one counts as the mean over the lines that hold it."""
    line = _row(result, key, fork.line)
    returns = {fork.line: (fork.step, _from_turn(result, line, fork.step, fork.tick).returns)}
    for one in _lines(result, key, fork.branches, fork.tick, 1.0, fork.last_tick):
        returns[one.branch] = (one.step, one.returns)
    siblings = tuple(
        Sibling(episode=key.episode, branch=branch, returns=value, step=step)
        for branch, (step, value) in returns.items()
        if branch != key.branch
    )
    return _mean_of(siblings, "replies")


def by_games(result: Recredited, row: int, tick: int) -> Baseline:
    """The mean of the other games of the group at the tick, their forks averaged, or the running mean."""
    table, key = result.table, result.table.keys[row]
    mates = (table.group_ids == table.group_ids[row]) & table.mask[:, tick]
    siblings = tuple(
        Sibling(
            episode=table.keys[mate].episode,
            branch="",
            returns=_follow(result, mate, tick, after=-1).returns,
        )
        for mate in mates.nonzero().squeeze(1).tolist()
        if not table.keys[mate].branch and table.keys[mate].episode != key.episode
    )
    if siblings:
        return _mean_of(siblings, "leave_one_out")
    return running_baseline(result, mean_keys(table)[row], tick)


def _mean_of(siblings: tuple[Sibling, ...], kind: Literal["replies", "leave_one_out"]) -> Baseline:
    mean = sum(one.returns for one in siblings) / len(siblings)
    return Baseline(kind=kind, amount=mean, siblings=siblings)
