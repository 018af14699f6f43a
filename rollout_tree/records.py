"""What happened, as flat records: a tree is a list of steps with parents; a turn stores what it adds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from coplay.agents.base import Finish, Sampling, Segment, ToolCall
from coplay.games import Action, Malformed, Observation

SCHEMA_VERSION = 1
SCORES = "reward_model"
"""In a step's info: player -> what a reward model adds to his reward of that step, in raw units."""

Status = Literal["running", "terminated", "truncated", "failed"]
"""How the game stands after a step; `failed` marks the step of a branch that could not be played."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One player's observation and reply."""

    player: str
    observation: Observation
    reply: str
    """The reply's text as played."""
    action: Action
    """The move understood, or why there was none."""
    segments: tuple[Segment, ...]
    """Only the tokens this turn adds to its player's context, observation first; empty without tokens."""
    policy: str
    """`name@version` that replied, or the name of an agent without weights."""
    finish: Finish
    attempt: int = 0
    """0 for the first reply of the step; a retry after a malformed reply is a further turn."""
    sampling: Sampling | None = None
    tokenizer: str = ""
    fresh_context: bool = False
    """True if the tokens start a new context (a new training row)."""
    penalty: float = 0.0
    """Raw reward units taken from this attempt's credit (declared by the game for malformed replies)."""
    trains_once_for: str = ""
    """In a branch, on turns held from the main line: the id of the step there, whose copy trains; else empty."""
    calls: tuple[ToolCall, ...] = ()
    """Tools called before the reply, in order; `sampling` is that of the reply, after the last of them."""

    @property
    def malformed(self) -> bool:
        """True if the reply was no move."""
        return isinstance(self.action, Malformed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One transition of the game with all its turns."""

    id: int
    """Unique in its tree; parents have smaller ids."""
    parent: int | None
    """None for the first step."""
    branch: str
    """Empty on the main line; else the branch's name, the same on all its steps."""
    index: int
    """Place along its path, from 0: the game's step number."""
    tick: int
    """The round where the game declares rounds, else `index`: the unit of reward, return and advantage."""
    turns: tuple[Turn, ...]
    """In the order of the game's players, attempts in order."""
    rewards: Mapping[str, float]
    """Raw, for every player; empty where `status` is `failed`."""
    status: Status = "running"
    info: Mapping[str, Any] = field(default_factory=dict)
    closing: tuple[Turn, ...] = ()
    """After a truncation: the next observation of each player with tokens, unanswered; V is read there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why an episode could not be played; such a tree is kept, counted and never trained on."""

    player: str
    """The player whose agent failed, or empty if the game did."""
    step: int
    reason: str
    """Exception type and message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutTree:
    """One episode: its main line and its branches, whose steps name branch and parent."""

    episode: str
    """Unique in the run: `iteration/index`, zero-padded so that text order is play order."""
    iteration: int
    game: str
    group: str
    """Episodes with the same luck share it."""
    group_seed: int
    seats: Mapping[str, str]
    """Player -> `name@version` or agent name, in the game's order of players."""
    steps: tuple[Step, ...]
    failure: Failure | None = None

    @property
    def players(self) -> tuple[str, ...]:
        """All players in the game's order."""
        return tuple(self.seats)

    @property
    def status(self) -> str:
        """`failed`, or the status of the main line's last step."""
        if self.failure is not None:
            return "failed"
        main = [step for step in self.steps if not step.branch]
        return max(main, key=lambda step: step.index).status if main else "running"
