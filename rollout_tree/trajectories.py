"""From a tree to what one player lived through: the tokens of his turns along one path, and his rewards per tick."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coplay.rollout_tree.records import RolloutTree, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The tokens of one uninterrupted context (one training row), S tokens long."""

    ids: NDArray[np.int64]  # (S,)
    sampled: NDArray[np.bool_]  # (S,) True on tokens the policy chose
    log_probs: NDArray[np.float32]  # (S,) behaviour log-probs, 0 where not sampled
    turn: NDArray[np.int32]  # (S,) index into `Trajectory.turns`
    tick: NDArray[np.int32]  # (S,) tick of the turn


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuePoint:
    """Where a value is read: the last context token before the first sampled one of a tick."""

    tick: int
    """Tick whose state it is; `num_ticks` for the state after a truncated game."""
    row: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One player's turns along one path of a tree."""

    episode: str
    branch: str
    group: str
    player: str
    policy: str
    """`name@version`, or the agent's name."""
    opponents: tuple[str, ...]
    """The others' policies in the order of players."""
    turns: tuple[Turn, ...]
    turn_ticks: tuple[int, ...]
    rows: tuple[Row, ...]
    """Empty for agents without tokens."""
    value_points: tuple[ValuePoint, ...]
    rewards: NDArray[np.float64]  # (num_ticks,) raw, summed inside a round
    acted: NDArray[np.bool_]  # (num_ticks,) True where the player has sampled tokens
    truncated: bool
    """True: values beyond the last tick count; False: 0 beyond the end."""

    @property
    def num_ticks(self) -> int:
        """Number of ticks of the path, the same for every player."""
        return len(self.rewards)
