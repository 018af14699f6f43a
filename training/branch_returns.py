"""Returns along the lines of a game that forks: what a player has from a tick on, later forks averaged.

Along a line, backwards, R is what a player has from a tick on given all that was chosen so far. At a fork of the line
with the alternatives B, all players' together, the mean over the fork is

    W = (R + sum_{b in B} G_b) / (1 + |B|),

which takes the place of R for every earlier turn of the line, recursively (rule 11); G_b is what the branch b
has, its own forks averaged. With a horizon all lines of a fork, the taken one too, are cut after the same tick T, and
what lies beyond is the critic's V at T + 1, or nothing if the game is over.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from coplay.training.baselines import leave_one_out
from coplay.training.masked import masked_mean
from coplay.training.records import ForkPlace, PathKey, TickTable, TickValues

Cut = int | None
"""The last tick that counts; None: none is cut off."""


def earlier(one: Cut, other: Cut) -> Cut:
    """The earlier of two cuts."""
    known = [cut for cut in (one, other) if cut is not None]
    return min(known) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """All forks of one step of a line."""

    step: int
    tick: int
    cut: Cut
    """Where all lines that part here are cut, the line itself too."""
    places: tuple[ForkPlace, ...]

    @property
    def branches(self) -> tuple[str, ...]:
        """All lines that leave here."""
        return tuple(branch for place in self.places for branch in place.branches)


class GameForks:
    """The forks of one game by line. Branches of a line have larger ids than the line."""

    def __init__(self, forks: Sequence[ForkPlace]) -> None:
        """Take the forks of a game by step."""
        self.partings: dict[str, list[Parting]] = {}
        self.home: dict[str, ForkPlace] = {}
        """Branch -> the fork that it leaves its line at."""
        first: dict[str, int] = {}
        for step, same_step in groupby(forks, key=lambda fork: fork.step):
            places = tuple(same_step)
            tick, cut = places[0].tick, places[0].last_tick
            parting = Parting(step=step, tick=tick, cut=cut, places=places)
            self.partings.setdefault(places[0].line, []).append(parting)
            for place in places:
                self.home |= dict.fromkeys(place.branches, place)
                first |= dict(zip(place.branches, place.first_steps, strict=True))
        self.first = first
        """Branch -> id of its first step."""
        self.lines = ("", *sorted(first, key=lambda branch: first[branch]))

    def cuts(self) -> dict[str, dict[Cut, int]]:
        """Line -> how its returns are asked for: cut where, and from which tick on."""
        asked: dict[str, dict[Cut, int]] = {"": {None: 0}}
        asked |= {branch: {None: place.tick} for branch, place in self.home.items()}
        for line in self.lines:
            partings, own = self.partings.get(line, []), asked[line]
            ticks = [parting.tick for parting in partings]
            for parting in partings:
                own[parting.cut] = min(own.get(parting.cut, parting.tick), parting.tick)
            for cut, start in own.items():
                end = len(ticks) if cut is None else bisect_right(ticks, cut)
                for parting in partings[bisect_left(ticks, start) : end]:
                    for branch in parting.branches:
                        asked[branch][earlier(cut, parting.cut)] = parting.tick
        return asked


class LineReturns:
    """What every line of every game has from each tick on, and what each reply at a fork stands against."""

    def __init__(self, table: TickTable, own: Tensor, discount: float, values: TickValues | None) -> None:
        """Start from (B, S) returns of each path for itself.

        Args:
            values: as a critic read them, 0 for players of whom it reads nothing; None: no critic.
        """
        self.returns = own.clone()
        """(B, S) by tick, later ticks' forks averaged; of a branch before its fork that of its line."""
        self.means = own.clone()
        """(B, S) with the tick's own forks averaged too; whole on main lines only."""
        self.at_fork: dict[tuple[int, int], tuple[float, float | None]] = {}
        """(row, step) -> return, and siblings' mean where the player himself was resampled there."""
        self.after: dict[tuple[int, int], list[tuple[int, float]]] = {}
        """(row, tick) -> by falling step of the tick's forks, the mean over that fork and all later ones."""
        self.num_replies: dict[tuple[int, int], int] = {}
        """(row, step) -> number of replies the player has there."""
        self._table, self._own, self._discount, self._values = table, own, discount, values
        self._rows: dict[tuple[str, str], list[int]] = {}
        for row, key in enumerate(table.keys):
            self._rows.setdefault((key.episode, key.branch), []).append(row)
        self._lengths = table.mask.sum(dim=1).tolist()

    def rows(self, key: PathKey) -> Mapping[str, int]:
        """Player -> row, of all players along a path."""
        return {self._table.keys[row].player: row for row in self._rows[key.episode, key.branch]}

    def game(self, episode: str, forks: GameForks) -> None:
        """Average one game's forks into its lines, from the last line to the first."""
        asked = forks.cuts()
        entry: dict[tuple[str, Cut], Tensor] = {}
        for line in reversed(forks.lines):
            walk = _Walk(self, episode, line, forks.partings.get(line, []), entry)
            known = sorted(cut for cut in asked[line] if cut is not None)
            for cut in (*known, None):
                entry[line, cut] = walk(cut, asked[line][cut])
        for line in forks.lines[1:]:
            place = forks.home[line]
            rows, homes = self._rows[episode, line], self._rows[episode, place.line]
            for row, home in zip(rows, homes, strict=True):
                self.returns[row, : place.tick] = self.returns[home, : place.tick]

    def _beyond(self, rows: Sequence[int], tick: int) -> Tensor:
        """(players,) what lies beyond: V of the state at `tick`, 0 if the game is over there or no critic reads it."""
        if self._values is None:
            return torch.zeros(len(rows), dtype=self._own.dtype)
        values = self._values
        if tick < self._lengths[rows[0]]:
            return values.values[rows, tick]
        return values.bootstrap[rows]


class _Walk:
    """Goes along one line from its last tick to its first, players together."""

    def __init__(
        self,
        found: LineReturns,
        episode: str,
        line: str,
        partings: Sequence[Parting],
        entry: Mapping[tuple[str, Cut], Tensor],
    ) -> None:
        self._found, self._entry = found, entry
        self._rows = found._rows[episode, line]
        self._row_of = {
            (branch, player): row
            for parting in partings
            for branch in parting.branches
            for player, row in found.rows(PathKey(episode, branch, "")).items()
        }
        self._players = [found._table.keys[row].player for row in self._rows]
        self._partings = partings
        self._by_tick: dict[int, list[Parting]] = {}
        for parting in partings:
            self._by_tick.setdefault(parting.tick, []).append(parting)
        self._means: dict[int, Tensor] = {}
        """Step -> mean over its forks, cut where they are."""

    def __call__(self, cut: Cut, start: int) -> Tensor:
        """(players,) what the line has from tick `start` on, forks of that tick averaged; notes all on the way."""
        found, rows = self._found, self._rows
        last = found._lengths[rows[0]] - 1
        if not self._partings and (cut is None or cut >= last):
            return found._own[rows, start]
        end = last if cut is None else min(cut, last)
        later = found._beyond(rows, end + 1)
        for tick in range(end, start - 1, -1):
            value = found._table.rewards[rows, tick] + found._discount * later
            if cut is None:
                found.returns[rows, tick] = value
            for parting in reversed(self._by_tick.get(tick, ())):
                if earlier(cut, parting.cut) != cut:
                    value = self._means[parting.step]
                    continue
                gains = [self._entry[branch, cut] for branch in parting.branches]
                mean = masked_mean(torch.stack([value, *gains]), None, 0)
                if cut == parting.cut:
                    self._note(parting, value, gains, mean)
                value = mean
            if cut is None:
                found.means[rows, tick] = value
            later = value
        return later

    def _note(self, parting: Parting, taken: Tensor, gains: Sequence[Tensor], mean: Tensor) -> None:
        """The mean over a fork by player, and what each reply at the step stands against."""
        found, step = self._found, parting.step
        gain_of = dict(zip(parting.branches, gains, strict=True))
        self._means[step] = mean
        for place, player in enumerate(self._players):
            row = self._rows[place]
            found.after.setdefault((row, parting.tick), []).append((step, float(mean[place])))
            holding = [
                taken,
                *(gain_of[b] for fork in parting.places if fork.player != player for b in fork.branches),
            ]
            kept = masked_mean(torch.stack(holding)[:, place], None)
            fork = next((fork for fork in parting.places if fork.player == player), None)
            if fork is None:
                found.at_fork[row, step] = (float(kept), None)
                continue
            replies = torch.stack([kept, *(gain_of[branch][place] for branch in fork.branches)])
            alike = torch.zeros(len(replies), dtype=torch.long)
            against = replies - leave_one_out(replies[:, None], alike)[:, 0]
            starts = [(row, step)] + [
                (self._row_of[branch, player], first)
                for branch, first in zip(fork.branches, fork.first_steps, strict=True)
            ]
            for start, reply, other in zip(starts, replies.tolist(), against.tolist(), strict=True):
                found.at_fork[start] = (reply, other)
                found.num_replies[start] = len(replies)
