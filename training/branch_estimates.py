"""Advantages from branches: a reply against its siblings, every other turn against the other games of its group.

A player's own reply at a fork, taken or alternative, is set against the mean of its siblings, the replies that differ
from it in nothing but this player's choice; the taken one counts as the mean over all lines that hold it. What lines
have is in `branch_returns`.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, groupby
from math import inf
from operator import mul

import torch
from torch import Tensor

from coplay.training.baselines import RunningMeans, running_mean_baseline
from coplay.training.branch_returns import GameForks, LineReturns
from coplay.training.credit import discounted_returns
from coplay.training.masked import keep, segment_sum
from coplay.training.records import Estimate, TickTable, TickValues, TurnEstimate, TurnTable
from coplay.training.schemes import BranchesEstimator


def branches_estimate(
    settings: BranchesEstimator,
    table: TickTable,
    names: Sequence[str],
    *,
    running_means: RunningMeans,
    values: TickValues | None = None,
) -> Estimate:
    """Advantages by tick (what packets carry) and by turn (what tokens are credited with).

    By tick every path has its return, later forks averaged, minus the mean of the other games of its group; a path
    whose group has no other game takes the running mean. By turn, replies at forks are set against their siblings.
    A critic says what lies beyond a horizon and beyond truncated games, and learns these returns.

    Args:
        names: key of each row's running mean.
        values: what a critic read; 0 is taken for players of whom it reads nothing.

    Raises:
        ValueError: if branches were cut at a horizon and there are no values.
    """
    forks = () if table.turns is None else table.turns.forks
    cut = next((fork for fork in forks if fork.last_tick is not None), None)
    if cut is not None and values is None:
        raise ValueError(
            f"branches of episode {cut.episode!r} are cut after tick {cut.last_tick} and no critic says what lies"
            " beyond; expected a section 'estimator.critic'"
        )
    if values is not None:
        values = TickValues(
            values=torch.nan_to_num(values.values), bootstrap=torch.nan_to_num(values.bootstrap)
        )
    own = discounted_returns(
        table.rewards,
        discount=settings.discount,
        mask=table.mask,
        bootstrap=None if values is None else values.bootstrap,
    )
    lines, games = LineReturns(table, own, settings.discount, values), dict[str, GameForks]()
    for episode, places in groupby(forks, key=lambda fork: fork.episode):
        games[episode] = GameForks(tuple(places))
        lines.game(episode, games[episode])
    is_main = torch.tensor([not key.branch for key in table.keys], dtype=torch.bool)
    main = is_main.nonzero().squeeze(1)
    running = running_mean_baseline(running_means, names, own, mask=table.mask)
    state = running_mean_baseline(
        running_means, [names[row] for row in main.tolist()], lines.means[main], mask=table.mask[main]
    ).state
    others, alone = mean_of_others(table, lines.means, table.mask & is_main[:, None])
    baseline = keep(torch.where(alone, running.baselines, others), table.mask)
    returns = keep(lines.returns, table.mask)
    found = Estimate(
        returns=returns,
        baseline=baseline,
        advantages=returns - baseline,
        targets=None if values is None else returns,
        values=None if values is None else values.values,
        running_means=state,
        metrics={
            "credit/groups_of_one": float((alone & table.mask)[main, :1].sum()),
            "credit/forks": float(len(forks)),
        },
    )
    return found if table.turns is None else _by_turn(found, lines, games, table, table.turns)


def mean_of_others(table: TickTable, means: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """Mean over the other games of a row's group at a tick; and where there is none.

    Args:
        means: (B, S).
        counted: (B, S) bool, which cells of main lines stand for their games.
    """
    main_of = {(key.episode, key.player): row for row, key in enumerate(table.keys) if not key.branch}
    home = torch.tensor([main_of[key.episode, key.player] for key in table.keys], dtype=torch.long)
    groups = int(table.group_ids.max()) + 1 if len(table.group_ids) else 0
    kept, ones = keep(means, counted), counted.to(means.dtype)
    total = segment_sum(kept, table.group_ids, groups)[table.group_ids] - kept[home]
    count = segment_sum(ones, table.group_ids, groups)[table.group_ids] - ones[home]
    return total / count.clamp(min=1), count == 0


def _by_turn(
    found: Estimate, lines: LineReturns, games: dict[str, GameForks], table: TickTable, turns: TurnTable
) -> Estimate:
    """Add what is known of every turn that trains; weight 0 elsewhere."""
    width = turns.steps.shape[1]
    states = torch.zeros_like(found.baseline)
    shares = {episode: _Shares(forks) for episode, forks in games.items()}
    placed = zip(turns.steps.tolist(), turns.ticks.tolist(), strict=True)
    known_of = zip(lines.returns.tolist(), found.baseline.tolist(), strict=True)
    cells: list[list[tuple[float, float, float]]] = []
    for row, (key, (steps, ticks), (returns, baselines)) in enumerate(
        zip(table.keys, placed, known_of, strict=True)
    ):
        forks, share = games.get(key.episode), shares.get(key.episode)
        first = -1 if forks is None else forks.first.get(key.branch, -1)
        cell, read = [(0.0, 0.0, 0.0)] * width, -1
        for place, (step, tick) in enumerate(zip(steps, ticks, strict=True)):
            if step < 0:
                continue
            is_first, read = tick != read, tick  # V is read before a tick's first reply
            if step < first or (step == first and (row, step) not in lines.num_replies):
                continue
            mean = returns[tick]
            for forked, value in lines.after.get((row, tick), ()):
                mean = value if step < forked else mean
            known, siblings = lines.at_fork.get((row, step), (mean, None))
            passed = 1 if share is None else share.lines(key.branch, step, tick)
            weight = 1.0 / (passed * lines.num_replies.get((row, step), 1))
            cell[place] = (known, baselines[tick] if siblings is None else siblings, weight)
            if is_first and step != first:  # before its first reply a branch is its line
                states[row, tick] = 1.0 / passed
        cells.append(cell)
    laid = torch.tensor(cells, dtype=found.baseline.dtype)  # (B, U, 3)
    known, subtracted, weights = laid.reshape(len(cells), width, 3).unbind(2)
    by_turn = TurnEstimate(returns=known, baseline=subtracted, advantages=known - subtracted, weights=weights)
    return replace(found, turns=by_turn, state_weights=states)


class _Shares:
    """How many lines of a game a turn shares its weight with."""

    def __init__(self, forks: GameForks) -> None:
        self._forks = forks
        self._steps: dict[str, list[int]] = {}
        self._ends: dict[str, list[float]] = {}
        """By line, of each fork's lines: the last tick that they reach unless the game ends; it never falls."""
        self._products: dict[str, list[int]] = {}
        """By line: of the numbers of lines that leave its first 0, 1, ... forks."""
        for line in forks.lines:
            partings = forks.partings.get(line, ())
            self._steps[line] = [parting.step for parting in partings]
            self._ends[line] = [inf if parting.cut is None else parting.cut for parting in partings]
            leaving = [1 + len(parting.branches) for parting in partings]
            self._products[line] = list(accumulate(leaving, mul, initial=1))

    def lines(self, line: str, step: int, tick: int) -> int:
        """The product of all lines at forks before a turn; for a reply that is itself an alternative, its line's.

        Only forks whose lines reach the turn's tick count: beyond a horizon a line has no siblings that stand for it.
        """
        found, home = 1, self._forks.home.get(line)
        if home is not None and step == self._forks.first[line]:
            line, step = home.line, home.step
        while True:
            products = self._products[line]
            end = bisect_left(self._steps[line], step)
            start = min(bisect_left(self._ends[line], tick), end)
            found *= products[end] // products[start]
            home = self._forks.home.get(line)
            if home is None:
                return found
            line, step = home.line, home.step + 1
