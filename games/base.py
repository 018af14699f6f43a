"""The contract of a game: rules over an immutable state, so that forking one is free."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict

from coplay.games.chance import Chance
from coplay.games.encoding import decode_fields, encode_fields
from coplay.games.grammar import Action, Grammar
from coplay.games.tools import Tools

State = TypeVar("State")


class GameParameters(BaseModel):
    """What a game can be told; every field documented, bounded and never unknown."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MalformedRule:
    """What a game does with a reply that is no move."""

    retries: int = 0
    """How often the player is asked again within the same step; every attempt is a visible turn."""
    penalty: float = 0.0
    """Taken from the credit of each malformed attempt, in raw reward units; it never touches the rewards."""
    consequence: str
    """What the last malformed attempt counts as, in words, e.g. "counts as the move 'B'"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GameSpec:
    """What a game declares about itself; the conformance kit holds it to this."""

    players: tuple[str, ...]
    """Seats in their fixed order; everything per player is iterated in it."""
    max_steps: int
    """No play lasts longer; reaching it without an end is a fault of the game."""
    has_chance: bool
    has_rounds: bool
    """True where several steps belong to one tick (unit of reward and return); `StepOutcome.round_ended`
    tells."""
    zero_sum: bool
    symmetric: bool
    """True if renaming the players changes nothing but the names."""
    reward_range: tuple[float, float]
    """Least and greatest raw reward of one player in one step."""
    malformed_rule: MalformedRule
    in_order: bool = False
    """True if it draws by `Chance.dealt`: the groups of a run then have numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GameData:
    """What a game was made from besides its parameters."""

    name: str
    """Of the file or folder."""
    digest: str
    """Of all that play depends on: a run that goes on must find it the same."""
    counts: Mapping[str, int]
    """How many things there are, and how many were left out for which reason."""
    parts: frozenset[int] = frozenset()
    """What it is made of, hashed, so that what is held out can be looked for in what is trained on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What is new to one player since his last turn, and what he may reply."""

    text: str
    grammar: Grammar
    system: str = ""
    """The rules, the same at every turn; an agent puts them once at the head of each context."""
    fresh_context: bool = False
    """True: what was said before is to be forgotten; a new context starts here."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What the text says, machine-readable, for scripted agents; JSON values only, never more than the
    text."""
    tools: Tools | None = None
    """What the player may call before he moves; None: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """What one step brought."""

    rewards: Mapping[str, float]
    """Raw reward of this step for every player of the game, zeros included."""
    terminated: bool = False
    """The game is over by its rules: nothing follows."""
    truncated: bool = False
    """Play stops here though the game would go on: values beyond count (bootstrap)."""
    round_ended: bool = True
    """The tick ends with this step; a game without rounds leaves it True."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """Facts for statistics; JSON values only."""


class Game(ABC, Generic[State]):
    """Rules over an immutable, hashable-by-value state. One instance serves any number of plays at once.

    A subclass names its `Parameters` and, as `Game[MyState]`, its state; every method is pure: the same arguments
    give the same result.
    """

    Parameters: ClassVar[type[GameParameters]]
    name: ClassVar[str]
    _state_type: ClassVar[type[Any] | None] = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for base in cls.__dict__.get("__orig_bases__", ()):
            origin = get_origin(base)
            if isinstance(origin, type) and issubclass(origin, Game) and isinstance(get_args(base)[0], type):
                cls._state_type = get_args(base)[0]

    def __init__(self, parameters: Any) -> None:
        self.parameters = parameters

    @property
    @abstractmethod
    def spec(self) -> GameSpec:
        """What this game, with these parameters, declares about itself."""

    @property
    def data(self) -> GameData | None:
        """What was read from files; None for rules alone."""
        return None

    def fitted(self, num_tokens: Callable[[Observation], int]) -> "Game[State]":
        """The game without what its parameters find too long once a tokenizer is known; itself if they say nothing."""
        return self

    @abstractmethod
    def initial_state(self, chance: Chance) -> State:
        """The state before the first step, from the luck of step 0. Call k of `step` has that of step k."""

    @abstractmethod
    def to_move(self, state: State) -> tuple[str, ...]:
        """Who replies now: one player, several (simultaneous), or none if and only if the game is over."""

    @abstractmethod
    def observe(self, state: State, player: str) -> Observation:
        """What is new to `player` since his last turn. Asked of players to move; pure, may be read twice."""

    @abstractmethod
    def step(self, state: State, actions: Mapping[str, Action], chance: Chance) -> tuple[State, StepOutcome]:
        """Apply one action for each player to move; a `Malformed` one under the declared rule."""

    def private(self, state: State, player: str) -> Mapping[str, Any]:
        """Values only `player` may know now, by name; none of them may stand in another's observation.

        None, unless a game says otherwise.
        """
        return {}

    def encode(self, state: State) -> Any:
        """The state as a JSON value: of a dataclass of numbers, texts and tuples, its fields by name."""
        return encode_fields(state)

    def decode(self, data: Any) -> State:
        """The inverse of `encode`.

        Raises:
            TypeError: if the class does not say what its state is.
        """
        if self._state_type is None:
            raise TypeError(
                f"{type(self).__name__} does not say what its states are; expected `class"
                f" {type(self).__name__}(Game[MyState])`, or its own `encode` and `decode`"
            )
        state: State = decode_fields(self._state_type, data)
        return state
