"""From a tree to what a player lived through: the tokens of his turns along a path, his rewards per tick."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coplay.agents.base import Segment
from coplay.rollout_tree.paths import branch_steps, forks, main_line
from coplay.rollout_tree.records import SCORES, RolloutTree, Step, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The tokens of one uninterrupted context (one training row), S tokens long."""

    ids: NDArray[np.int64]  # (S,)
    sampled: NDArray[np.bool_]  # (S,) True on tokens the policy chose, and that train in this row
    log_probs: NDArray[np.float32]  # (S,) behaviour log-probs, 0 where not sampled
    turn: NDArray[np.int32]  # (S,) index into `Trajectory.turns`
    tick: NDArray[np.int32]  # (S,) tick of the turn; closing turns, which have none, carry the last one


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuePoint:
    """Where a value is read: the last context token before the first sampled one of a tick."""

    tick: int
    """Tick whose state it is; `num_ticks` for the state after a truncated game."""
    row: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Forked:
    """Where a branch leaves its line: the main line, or another branch."""

    step: int
    """Id of the step of that line beside which it starts."""
    player: str
    """Whose reply is another there."""
    first: int
    """Id of the branch's first step."""
    tick: int
    """Of both steps."""
    line: str = ""
    """Name of the branch that forks; empty for the main line."""
    last_tick: int | None = None
    """Tick after which every sibling is cut, the line itself too; None: never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One player's turns along one path of a tree."""

    episode: str
    branch: str
    """Empty on the main line."""
    game: str
    """What the tree is stored under: the game's name, or the label of a part of a mixture."""
    group: str
    player: str
    policy: str
    """`name@version`, or the agent's name."""
    opponents: tuple[str, ...]
    """The others' policies in the order of players."""
    turns: tuple[Turn, ...]
    """In order; the closing turn of a truncated game last."""
    turn_ticks: tuple[int, ...]
    turn_steps: tuple[int, ...]
    """Id of each turn's step."""
    rows: tuple[Row, ...]
    """Empty for agents without tokens."""
    value_points: tuple[ValuePoint, ...]
    rewards: NDArray[np.float64]  # (num_ticks,) raw, summed inside a round
    acted: NDArray[np.bool_]  # (num_ticks,) True where the player has sampled tokens that train here
    truncated: bool
    """True: values beyond the last tick count; False: 0 beyond the end."""
    fork: Forked | None = None
    """Where the path left its line last; None on the main line."""

    @property
    def num_ticks(self) -> int:
        """Number of ticks of the path, the same for every player."""
        return len(self.rewards)


def build_trajectories(tree: RolloutTree) -> tuple[Trajectory, ...]:
    """Extract what each player lived through along the main line, found by parent links, not list order.

    Rewards inside a tick are summed (rule 2). Linear in the length of the episode.

    Returns:
        One trajectory for each player, with or without tokens, in the game's order; none of a failed episode.

    Raises:
        ValueError: if a player's turns mix policies or tokenizers, or ids and log-probs do not fit.
    """
    if tree.failure is not None:
        return ()
    return _along(tree, main_line(tree))


def branch_trajectories(tree: RolloutTree) -> tuple[Trajectory, ...]:
    """Extract what each player lived through along each branch, from the episode's first step on.

    Every turn trains once (rule 11): tokens of turns before the fork, and of turns held from the main line, stand
    in these rows as context. Rewards are those of the whole path.

    Returns:
        For each branch that was played to its end, one trajectory for each player; none of a failed episode.

    Raises:
        ValueError: as `build_trajectories` does.
    """
    if tree.failure is not None:
        return ()
    paths, lines, all_forks = {"": main_line(tree)}, branch_steps(tree), forks(tree)
    forking = {fork.step.branch for fork in all_forks}
    found: list[Trajectory] = []
    for fork in all_forks:  # those of a line stand before those of its branches
        line = fork.step.branch
        for branch in fork.branches:
            first = lines[branch][0]
            where = Forked(
                step=fork.step.id,
                player=fork.player,
                first=first.id,
                tick=first.tick,
                line=line,
                last_tick=first.info.get("branch_fork", {}).get("last_tick"),
            )
            path = (*paths[line][: fork.step.index], *lines[branch])
            found += _along(tree, path, branch, where)
            if branch in forking:
                paths[branch] = path
    return tuple(found)


def _along(
    tree: RolloutTree, path: tuple[Step, ...], branch: str = "", fork: Forked | None = None
) -> tuple[Trajectory, ...]:
    """One trajectory for each player along a path; only turns of the branch itself train."""
    num_ticks = path[-1].tick + 1 if path else 0
    rewards = _rewards(tree, path, num_ticks)
    builders = {player: _Builder(tree, player, branch, fork) for player in tree.seats}
    for step in path:
        for turn in step.turns:
            trains = step.branch == branch and not turn.trains_once_for
            builders[turn.player].add(turn, step, trains=trains)
    truncated = bool(path) and path[-1].status == "truncated"
    for turn in path[-1].closing if truncated else ():
        builders[turn.player].add(turn, path[-1], closing=True)
    return tuple(
        builder.trajectory(rewards[:, place], truncated) for place, builder in enumerate(builders.values())
    )


def _rewards(tree: RolloutTree, path: tuple[Step, ...], num_ticks: int) -> NDArray[np.float64]:
    """Raw rewards per tick and player, with what a reward model added, (num_ticks, num_players)."""
    rewards = np.zeros((num_ticks, len(tree.seats)))
    if path:
        ticks = np.array([step.tick for step in path])
        if ticks[0] != 0 or not np.isin(np.diff(ticks), (0, 1)).all():
            raise ValueError(
                f"episode {tree.episode!r} has the ticks {ticks.tolist()}; expected 0, 1, ... in order"
            )
        raw = np.array([[step.rewards[player] for player in tree.seats] for step in path], dtype=np.float64)
        np.add.at(rewards, ticks, raw)
        for step in path:
            if SCORES in step.info:
                scores = step.info[SCORES]
                rewards[step.tick] += [scores.get(player, 0.0) for player in tree.seats]
    return rewards


class _RowBuilder:
    """The runs of one row while it grows; arrays are made once, at the end."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.log_probs: list[float] = []
        self.runs: list[tuple[int, bool, int, int]] = []
        """(length, sampled, turn, tick) of each segment."""

    def row(self) -> Row:
        lengths, sampled, turns, ticks = np.array(self.runs, dtype=np.int32).T
        mask = np.repeat(sampled.astype(np.bool_), lengths)
        log_probs = np.zeros(len(mask), dtype=np.float32)
        log_probs[mask] = self.log_probs
        return Row(
            ids=np.array(self.ids, dtype=np.int64),
            sampled=mask,
            log_probs=log_probs,
            turn=np.repeat(turns, lengths),
            tick=np.repeat(ticks, lengths),
        )


class _Builder:
    """One player's trajectory while its path is walked."""

    def __init__(self, tree: RolloutTree, player: str, branch: str, fork: Forked | None) -> None:
        self._tree, self._player, self._branch, self._fork = tree, player, branch, fork
        self._turns: list[Turn] = []
        self._steps: list[Step] = []
        self._acted: set[int] = set()
        self._rows: list[_RowBuilder] = []
        self._points: list[ValuePoint] = []
        self._tokenizer: str | None = None
        self._read = -1
        """Last tick that has a value point."""
        self._closed = False

    def add(self, turn: Turn, step: Step, *, trains: bool = True, closing: bool = False) -> None:
        """Append the tokens of the player's next turn."""
        tick = step.tick
        if turn.policy != self._tree.seats[self._player]:
            raise self._fault(f"has a turn of {turn.policy!r}", repr(self._tree.seats[self._player]))
        number = len(self._turns)
        self._turns.append(turn)
        self._steps.append(step)
        if not turn.segments:
            return
        if turn.tokenizer != self._tokenizer:
            if self._tokenizer is not None:
                raise self._fault(f"mixes tokenizers {self._tokenizer!r} and {turn.tokenizer!r}", "one")
            self._tokenizer = turn.tokenizer
        if not self._rows or (turn.fresh_context and self._rows[-1].runs):  # an empty row has no number
            self._rows.append(_RowBuilder())
        for segment in turn.segments:
            self._append(segment, number, tick, trains)
        if closing:
            self._value_point(tick + 1)
            self._closed = True

    def _append(self, segment: Segment, turn: int, tick: int, trains: bool) -> None:
        length, row = len(segment.ids), self._rows[-1]
        if len(segment.log_probs) != (length if segment.sampled else 0):
            got = f"{len(segment.log_probs)} log-probs for {length} ids (sampled: {segment.sampled})"
            raise self._fault(f"has {got} in turn {turn}", "one for each sampled id, no others")
        if not length:
            return
        if segment.sampled:
            if tick != self._read:
                self._value_point(tick)
            if trains:
                self._acted.add(tick)
                row.log_probs.extend(segment.log_probs)
        row.ids.extend(segment.ids)
        row.runs.append((length, segment.sampled and trains, turn, tick))

    def _value_point(self, tick: int) -> None:
        """Read V at the last token so far."""
        position = len(self._rows[-1].ids) - 1
        if position < 0:
            raise self._fault("has a reply without context", "an observation's tokens before it")
        self._points.append(ValuePoint(tick=tick, row=len(self._rows) - 1, position=position))
        self._read = tick

    def trajectory(self, rewards: NDArray[np.float64], truncated: bool) -> Trajectory:
        """Make the arrays."""
        num_ticks = len(rewards)
        acted = np.zeros(num_ticks, dtype=np.bool_)
        acted[list(self._acted)] = True
        if truncated and self._rows and not self._closed:
            self._value_point(num_ticks)
        rows = tuple([builder.row() for builder in self._rows if builder.runs])
        for row in rows:
            if not np.isfinite(row.log_probs).all():
                turn = int(row.turn[~np.isfinite(row.log_probs)][0])
                raise self._fault(f"has a log-prob that is no finite number in turn {turn}", "finite ones")
        seats = self._tree.seats
        return Trajectory(
            episode=self._tree.episode,
            branch=self._branch,
            game=self._tree.game,
            group=self._tree.group,
            player=self._player,
            policy=seats[self._player],
            opponents=tuple([name for player, name in seats.items() if player != self._player]),
            turns=tuple(self._turns),
            turn_ticks=tuple([step.tick for step in self._steps]),
            turn_steps=tuple([step.id for step in self._steps]),
            rows=rows,
            value_points=tuple(self._points),
            rewards=np.ascontiguousarray(rewards),
            acted=acted,
            truncated=truncated,
            fork=self._fork,
        )

    def _fault(self, got: str, expected: str) -> ValueError:
        where = f"player {self._player!r} of episode {self._tree.episode!r}"
        return ValueError(f"{where} {got}; expected {expected}")
