"""The protocol of whoever plays a seat, and the record of what one reply was made of."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from coplay.games import GameParameters, Observation, Tools
from coplay.games.tools import Call

Finish = Literal["stop", "length", "grammar", "none"]
"""Why a reply ended: end token or plain text (`stop`), token limit (`length`), the grammar's last token (`grammar`);
`none` marks the closing observation of a truncated game, which nobody answers."""

CallOutcome = Literal["ok", "malformed", "unknown", "over_budget", "timeout", "failed", "too_long"]
"""What came of a tool call: a result; no call at all; no such tool; none left; no answer in time; an error of the tool;
or a result that the context could not hold."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of tokens a turn adds to its player's context: given (observation, forced) or sampled."""

    ids: tuple[int, ...]
    sampled: bool = False
    log_probs: tuple[float, ...] = ()
    """Log-prob of each sampled token under the distribution it was really drawn from; empty if not sampled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the tokens of a reply were drawn; what a trainer needs to compute their log-probs again."""

    temperature: float
    """Divides the logits; 0: the likeliest token was taken, which no trainer learns from."""
    max_new_tokens: int
    seed: int
    constrained: bool
    """True: drawn from the tokens that continue a label of the grammar, renormalised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call inside a turn: what was said, and what the player was told."""

    text: str
    """The reply that was the call."""
    tool: str
    """Empty where a malformed call names none."""
    arguments: Mapping[str, Any]
    """JSON values by name; empty where the call was not understood."""
    result: str
    """As the player reads it: the result, or what was wrong."""
    outcome: CallOutcome
    constrained: bool = False
    """Whether the call's own tokens were drawn under the grammar of calls and moves."""
    place: int | None = None
    """Which of the turn's segments is the result; None without tokens, or where the context could not hold it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnKey:
    """Names one call of one agent; sampling seeds and the order inside a batch are functions of it."""

    episode: str
    branch: str
    player: str
    step: int
    attempt: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What an agent answered, and the tokens that this turn adds to its context."""

    text: str
    policy: str
    """`name@version` of a policy, or the name of an agent without weights."""
    finish: Finish = "stop"
    segments: tuple[Segment, ...] = ()
    """Observation first, then the reply; empty for agents without tokens."""
    fresh_context: bool = False
    """True if the tokens start a new context (a new training row)."""
    sampling: Sampling | None = None
    tokenizer: str = ""
    """Digest of the tokenizer that the ids belong to."""
    entropy: float | None = None
    """Nats of the distribution that the first chosen token was drawn from; None: not asked for, or not known."""
    calls: tuple[ToolCall, ...] = ()
    """Tools called before `text`; their tokens and results are among the segments, in order. `sampling` is that of the
    last sample."""


class ContextOverflowError(ValueError):
    """An agent's context cannot hold its next observation and a reply; the episode ends as truncated."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool gave."""

    text: str
    """The result, or what went wrong in words."""
    outcome: Literal["ok", "timeout", "failed"] = "ok"


class Desk(Protocol):
    """Whoever runs the tools that games offer."""

    def check(self, tools: Tools) -> None:
        """Refuse tools that nobody here runs, by a `ValueError`."""
        ...

    async def run(self, call: Call) -> ToolResult:
        """The result of a call."""
        ...


class Agent(Protocol):
    """Whatever chooses replies for one player of one episode: scripted, human, remote, language model."""

    @property
    def policy(self) -> str:
        """`name@version`, or the name of an agent without weights."""
        ...

    async def reply(self, observation: Observation, key: TurnKey) -> Reply:
        """Answer what is new. Called in the order of turns; the agent keeps its own memory of the episode.

        Raises:
            ContextOverflowError: if its context is full.
        """
        ...

    def close(self, observation: Observation) -> Reply | None:
        """Read the last observation of a truncated game without answering it; None for agents without tokens."""
        ...

    def fork(self) -> "Agent":
        """An independent copy in the same state of memory, for a branch."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """What an agent is told when it sits down."""

    game: str
    player: str
    players: tuple[str, ...]
    episode: str
    seed: int
    """For agents that draw lots without an engine; f(run, iteration, episode, player)."""
    parameters: GameParameters | None = None
    """What the game was told: its rules as everyone knows them; None where whoever seats the agent does not say."""
    tells_entropy: bool = False
    """True: replies of agents with tokens are to say their `entropy`."""
    tools: Desk | None = None
    """Who runs the tools that the game offers, for agents without weights; None: nobody."""


AgentFactory = Callable[[Seat], Agent]
"""Makes the agent of one player of one episode."""
