"""The parts of a turn's return and baseline where games branch: the lines it was averaged over, and its siblings.

Along the main line a return is followed tick by tick; at each fork the line splits into equal shares, and a branch
brings its whole return from there on (`branch_estimates`).
"""

from dataclasses import dataclass
from typing import Literal

from coplay.training.estimators import mean_keys
from coplay.training.explain_parts import running_baseline
from coplay.training.explanation import Baseline, Line, Sibling, Term
from coplay.training.records import ForkPlace, PathKey
from coplay.training.recredit import Recredited


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """A return, as the rewards of the own path and the branches that leave it."""

    rewards: tuple[Term, ...]
    lines: tuple[Line, ...]

    @property
    def returns(self) -> float:
        """Their sum."""
        return sum(one.product for one in self.rewards) + sum(one.product for one in self.lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchParts:
    """What a turn's advantage is made of where its game branches."""

    followed: Followed
    baseline: Baseline
    share: float
    """The turn's weight in losses and means (rule 11)."""


def branch_parts(result: Recredited, row: int, turn: int) -> BranchParts:
    """The parts of the advantage of one turn, (row, turn) of a turn table."""
    turns, known = result.table.turns, result.raw.turns
    assert turns is not None and known is not None
    step, tick = int(turns.steps[row, turn]), int(turns.ticks[row, turn])
    key = result.table.keys[row]
    own_fork = next(
        (
            fork
            for fork in _forks(result, key.episode)
            if fork.player == key.player and step in (fork.step, *fork.first_steps)
        ),
        None,
    )
    followed = _from_turn(result, row, step, tick)
    baseline = by_games(result, row, tick) if own_fork is None else _by_replies(result, own_fork, key)
    return BranchParts(followed=followed, baseline=baseline, share=float(known.weights[row, turn]))


def _forks(result: Recredited, episode: str) -> list[ForkPlace]:
    """The forks of an episode by step."""
    turns = result.table.turns
    return [] if turns is None else [fork for fork in turns.forks if fork.episode == episode]


def _from_turn(result: Recredited, row: int, step: int, tick: int) -> Followed:
    """What a player had from a reply on: of the lines at its step, only those that hold it count."""
    key = result.table.keys[row]
    if key.branch:
        return _follow(result, row, tick, after=step)
    held_by = [
        branch
        for fork in _forks(result, key.episode)
        if fork.step == step and fork.player != key.player
        for branch in fork.branches
    ]
    share = 1 / (1 + len(held_by))
    rest = _follow(result, row, tick, after=step, share=share)
    lines = tuple(_line(result, key, branch, tick, share) for branch in held_by)
    return Followed(rewards=rest.rewards, lines=lines + rest.lines)


def _follow(result: Recredited, row: int, tick: int, *, after: int, share: float = 1.0) -> Followed:
    """The return of a path from a tick on, averaged over its forks at later steps than `after`."""
    table, discount = result.table, result.config.estimator.discount
    key, rewards, lines = table.keys[row], [], []
    leaving: dict[int, dict[int, list[str]]] = {}
    for fork in [] if key.branch else _forks(result, key.episode):
        if fork.step > after:
            leaving.setdefault(fork.tick, {}).setdefault(fork.step, []).extend(fork.branches)
    for k in range(tick, int(table.mask[row].sum())):
        decay = discount ** (k - tick)
        for branches in leaving.get(k, {}).values():
            share /= 1 + len(branches)
            lines += [_line(result, key, branch, k, share * decay) for branch in branches]
        amount = float(table.rewards[row, k])
        rewards.append(Term(player=key.player, tick=k, weight=share * decay, amount=amount))
    return Followed(rewards=tuple(rewards), lines=tuple(lines))


def _line(result: Recredited, key: PathKey, branch: str, tick: int, weight: float) -> Line:
    row = result.table.keys.index(PathKey(key.episode, branch, key.player))
    returns = _follow(result, row, tick, after=-1).returns
    step = next(
        first
        for fork in _forks(result, key.episode)
        for name, first in zip(fork.branches, fork.first_steps, strict=True)
        if name == branch
    )
    return Line(branch=branch, tick=tick, weight=weight, returns=returns, step=step)


def _by_replies(result: Recredited, fork: ForkPlace, key: PathKey) -> Baseline:
    """The mean of the other replies of a fork; the taken one counts as the mean over the lines that hold it."""
    keys = result.table.keys
    main = keys.index(PathKey(key.episode, "", key.player))
    returns = {"": (fork.step, _from_turn(result, main, fork.step, fork.tick).returns)}
    for branch, first in zip(fork.branches, fork.first_steps, strict=True):
        row = keys.index(PathKey(key.episode, branch, key.player))
        returns[branch] = (first, _follow(result, row, fork.tick, after=-1).returns)
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
