"""Advantages from branches: a reply against its siblings, everything before it against the mean over the fork.

Along the main line, backwards, R is what a player has from a tick on given all that was chosen so far. At a fork
with the alternatives B, all players' together, the mean over the fork is

    W = (R + sum_{b in B} G_b) / (1 + |B|),

which takes the place of R for every earlier turn, recursively (DESIGN rule 11). A player's own reply there, taken
or alternative, is set against the mean of its siblings, the replies that differ from it in nothing but this player's
choice; the taken one counts as the mean of R over the other players' alternatives, which hold it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, groupby
from operator import mul

import torch
from torch import Tensor

from coplay.training.baselines import RunningMeans, leave_one_out, running_mean_baseline
from coplay.training.credit import discounted_returns
from coplay.training.masked import keep, masked_mean, segment_sum
from coplay.training.records import Estimate, ForkPlace, PathKey, TickTable, TurnEstimate, TurnTable
from coplay.training.schemes import BranchesEstimator


def branches_estimate(
    settings: BranchesEstimator, table: TickTable, names: Sequence[str], *, running_means: RunningMeans
) -> Estimate:
    """Advantages by tick (what packets carry) and by turn (what tokens are credited with).

    By tick every path has its return, later forks averaged, minus the mean of the other games of its group; a path
    whose group has no other game takes the running mean. By turn, replies at forks are set against their siblings.

    Args:
        names: key of each row's running mean.
    """
    own = discounted_returns(table.rewards, discount=settings.discount, mask=table.mask)
    forks = () if table.turns is None else table.turns.forks
    walk = _Walk(table, own, settings.discount)
    for _, places in groupby(forks, key=lambda fork: fork.episode):
        walk.episode(tuple(places))
    is_main = torch.tensor([not key.branch for key in table.keys], dtype=torch.bool)
    main = is_main.nonzero().squeeze(1)
    running = running_mean_baseline(running_means, names, own, mask=table.mask)
    state = running_mean_baseline(
        running_means, [names[row] for row in main.tolist()], walk.means[main], mask=table.mask[main]
    ).state
    others, alone = mean_of_others(table, walk.means, table.mask & is_main[:, None])
    baseline = keep(torch.where(alone, running.baselines, others), table.mask)
    returns = keep(walk.returns, table.mask)
    turns = None if table.turns is None else walk.turns(table.turns, baseline)
    return Estimate(
        returns=returns,
        baseline=baseline,
        advantages=returns - baseline,
        targets=None,
        running_means=state,
        metrics={
            "credit/groups_of_one": float((alone & table.mask)[main, :1].sum()),
            "credit/forks": float(len(forks)),
        },
        turns=turns,
    )


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


class _Walk:
    """Goes through the forks of each episode, last to first."""

    def __init__(self, table: TickTable, own: Tensor, discount: float) -> None:
        self.returns = own.clone()
        """(B, S) by tick: of the main line with later ticks' forks averaged, of a branch before its fork the same."""
        self.means = own.clone()
        """(B, S) of the main line: with the tick's own forks averaged too."""
        self._table, self._own, self._discount = table, own, discount
        self._rows: dict[PathKey, int] = {key: row for row, key in enumerate(table.keys)}
        self._at_fork: dict[tuple[int, int], tuple[float, float | None]] = {}
        """(row, step) -> return, and siblings' mean where the player himself was resampled there."""
        self._after: dict[tuple[int, int], list[tuple[int, float]]] = {}
        """(row, tick) -> by falling step of the tick's forks, the mean over that fork and all later ones."""
        self._lines: dict[str, tuple[list[int], list[int]]] = {}
        """Episode -> steps with forks, and the product of the numbers of lines that leave the first 0, 1, ..."""
        self._siblings: dict[tuple[int, int], int] = {}
        """(row, step) -> number of replies the player has there."""

    def episode(self, forks: tuple[ForkPlace, ...]) -> None:
        """Average one episode's forks into its main line."""
        episode = forks[0].episode
        players = [key.player for key in self._rows if key.episode == episode and not key.branch]
        main = [self._rows[PathKey(episode, "", player)] for player in players]
        at_step = {step: tuple(places) for step, places in groupby(forks, key=lambda fork: fork.step)}
        leaving = [1 + sum(len(fork.branches) for fork in places) for places in at_step.values()]
        self._lines[episode] = (list(at_step), list(accumulate(leaving, mul, initial=1)))
        by_tick: dict[int, list[int]] = {}
        for step, places in at_step.items():
            by_tick.setdefault(places[0].tick, []).append(step)
        later = torch.zeros(len(main), dtype=self._own.dtype)
        for tick in range(int(self._table.mask[main[0]].sum()) - 1, -1, -1):
            value = self._table.rewards[main, tick] + self._discount * later
            self.returns[main, tick] = value
            for step in sorted(by_tick.get(tick, ()), reverse=True):
                value = self._fork(at_step[step], players, main, value)
            self.means[main, tick] = later = value
        for fork in forks:
            for row in (self._rows[PathKey(episode, b, p)] for b in fork.branches for p in players):
                home = self._rows[PathKey(episode, "", self._table.keys[row].player)]
                self.returns[row, : fork.tick] = self.returns[home, : fork.tick]

    def _fork(
        self, forks: Sequence[ForkPlace], players: Sequence[str], main: Sequence[int], taken: Tensor
    ) -> Tensor:
        """The mean over the fork by player, and what each reply at the step stands against."""
        episode, step, tick = forks[0].episode, forks[0].step, forks[0].tick
        found: dict[str, Tensor] = {}
        for fork in forks:
            rows = [[self._rows[PathKey(episode, b, p)] for p in players] for b in fork.branches]
            found[fork.player] = self._own[torch.tensor(rows), tick]  # (branches of this player, players)
        everything = torch.cat([taken[None], *found.values()])
        for place, player in enumerate(players):
            holding = [taken[None], *(gains for other, gains in found.items() if other != player)]
            kept = masked_mean(torch.cat(holding)[:, place], None)
            fork_here = next((fork for fork in forks if fork.player == player), None)
            if fork_here is None:
                self._at_fork[main[place], step] = (float(kept), None)
                continue
            replies = torch.cat([kept[None], found[player][:, place]])
            alike = torch.zeros(len(replies), dtype=torch.long)
            against = replies - leave_one_out(replies[:, None], alike)[:, 0]
            starts = [(main[place], step)] + [
                (self._rows[PathKey(episode, branch, player)], first)
                for branch, first in zip(fork_here.branches, fork_here.first_steps, strict=True)
            ]
            for start, reply, mean in zip(starts, replies.tolist(), against.tolist(), strict=True):
                self._at_fork[start] = (reply, mean)
                self._siblings[start] = len(replies)
        mean = masked_mean(everything, None, 0)
        for place in range(len(players)):
            self._after.setdefault((main[place], tick), []).append((step, float(mean[place])))
        return mean

    def turns(self, turns: TurnTable, baseline: Tensor) -> TurnEstimate:
        """What is known of every turn that trains; weight 0 elsewhere."""
        width = turns.steps.shape[1]
        starts = {
            (fork.episode, branch): (fork, first)
            for fork in turns.forks
            for branch, first in zip(fork.branches, fork.first_steps, strict=True)
        }
        places = zip(turns.steps.tolist(), turns.ticks.tolist(), strict=True)
        values = zip(self.returns.tolist(), baseline.tolist(), strict=True)
        cells: list[list[tuple[float, float, float]]] = []
        for row, (key, (steps, ticks), (returns, baselines)) in enumerate(
            zip(self._table.keys, places, values, strict=True)
        ):
            fork, first = starts.get((key.episode, key.branch), (None, 0))
            found = [(0.0, 0.0, 0.0)] * width
            for place, (step, tick) in enumerate(zip(steps, ticks, strict=True)):
                held = fork is not None and step == first and key.player != fork.player
                if step < 0 or step < first or held:
                    continue
                mean = returns[tick]
                for forked, value in self._after.get((row, tick), ()):
                    mean = value if step < forked else mean
                known, siblings = self._at_fork.get((row, step), (mean, None))
                weight = self._weight(row, key, step, fork)
                found[place] = (known, baselines[tick] if siblings is None else siblings, weight)
            cells.append(found)
        laid = torch.tensor(cells, dtype=baseline.dtype)  # (B, U, 3)
        known, subtracted, weights = laid.reshape(len(cells), width, 3).unbind(2)
        return TurnEstimate(
            returns=known, baseline=subtracted, advantages=known - subtracted, weights=weights
        )

    def _weight(self, row: int, key: PathKey, step: int, fork: ForkPlace | None) -> float:
        """1 over the product of all lines at earlier forks and of this player's replies at the turn's own."""
        forked, lines = self._lines.get(key.episode, ([], [1]))
        replies = self._siblings.get((row, step))
        if fork is None:
            passed = bisect_left(forked, step)
        elif replies is None:
            passed = bisect_right(forked, fork.step)
        else:
            passed = bisect_left(forked, fork.step)
        return 1.0 / (lines[passed] * (replies or 1))
