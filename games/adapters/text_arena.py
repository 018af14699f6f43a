"""Games of TextArena (Guertler et al. 2025) in their own words: free text in, free text out.

The library plays on Python's and numpy's global random numbers. Every call of it is fenced in: it finds them seeded
from our luck of that step, and leaves them as they were. A state is the seeds and replies so far, and the library's
environment is made from it by replay, or taken over from the state before; so the luck of a step is a function of the
step, as elsewhere, and a branch can draw it afresh. Rewards are the library's, paid at the end: win 1, loss -1, draw 0,
ranks between.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from coplay.games.adapters.global_luck import fenced
from coplay.games.base import Game, GameSpec, MalformedRule, Observation, StepOutcome
from coplay.games.chance import Chance
from coplay.games.grammar import Action, FreeText
from coplay.games.messages import delivered
from coplay.games.names import nearest
from coplay.games.optional import optional_library
from coplay.games.parameters import SeatsParameters

FAMILIES = {
    "ColonelBlotto": 2,
    "IteratedMatchingPennies": 2,
    "IteratedPrisonersDilemma": 2,
    "IteratedUltimatumGame": 2,
    "KuhnPoker": 2,
    "LiarsDice": 15,
    "NewRecruit": 2,
    "PublicGoodsGame": 15,
    "SimpleBlindAuction": 2,
    "SimpleNegotiation": 2,
    "TicTacToe": 2,
    "TruthAndDeception": 2,
}
"""The families of games that need no download, key or missing file -> the most players. All take two."""
MAX_SEED = 2**31
MAX_KEPT = 4096


def _allowed(load: str) -> str:
    family = load.split("-v", maxsplit=1)[0]
    if family not in FAMILIES or family == load:
        raise ValueError(
            f"{load!r} is not among the games of TextArena that can be loaded; expected one of"
            f" {', '.join(FAMILIES)} and a version, as 'TicTacToe-v0'{nearest(family, FAMILIES)}"
        )
    return load


class TextArenaParameters(SeatsParameters):
    """Which game, and how long replies and games may be."""

    kind: Literal["text_arena"] = "text_arena"
    load: Annotated[str, AfterValidator(_allowed)] = "TicTacToe-v0"
    """The library's name of the game: `SimpleNegotiation-v0-short`. Its player 0 is the first of `players`."""
    max_characters: int = Field(2000, ge=1, le=100_000)
    """The longest reply."""
    max_turns: int = Field(200, ge=1, le=10_000)
    """Replies after which a game that goes on is cut off as truncated."""


@dataclass(frozen=True, slots=True)
class TextArenaState:
    """What happened so far."""

    seeds: tuple[int, ...] = ()
    """Of the start, and of each step."""
    replies: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What can be seen of the library's environment at a state."""

    mover: int | None
    """The player to move; None where the game is over."""
    prompts: tuple[str, ...]
    """The rules that each player was told at the start."""
    messages: tuple[tuple[tuple[str, str], ...], ...]
    """What each player has not read before: who says it, and what."""
    rewards: tuple[float, ...]
    """Of each player; empty before the end."""
    reason: str
    """Why it ended so, in the library's words."""


class TextArena(Game[TextArenaState]):
    """A game of TextArena. Nothing is `private`: the library does not say which part of its texts is."""

    Parameters: ClassVar[type[TextArenaParameters]] = TextArenaParameters
    name: ClassVar[str] = "text_arena"

    def __init__(self, parameters: TextArenaParameters) -> None:
        super().__init__(parameters)
        with fenced(0):
            self._library = optional_library("textarena", extra="games", use=f"game {self.name!r}")
        self._players, self._id = parameters.players, f"{parameters.load}-raw"
        known = self._library.envs.registration.ENV_REGISTRY
        most = FAMILIES[parameters.load.split("-v", maxsplit=1)[0]]
        if self._id not in known:
            raise ValueError(
                f"TextArena has no game {parameters.load!r}; expected another version"
                f"{nearest(parameters.load, known)}"
            )
        if len(self._players) > most:
            raise ValueError(
                f"players {self._players!r} for {parameters.load!r}; expected 2 names"
                + (f" to {most}" if most > 2 else "")
            )
        self._grammar = FreeText(parameters.max_characters)
        self._views: dict[TextArenaState, View] = {}
        self._live: dict[TextArenaState, tuple[Any, tuple[str, ...]]] = {}
        """Environments at states that nobody has gone on from."""
        self._spec = GameSpec(
            players=self._players,
            max_steps=parameters.max_turns,
            has_chance=True,
            has_rounds=False,
            zero_sum=False,
            symmetric=False,
            reward_range=(-1.0, 1.0),
            malformed_rule=MalformedRule(
                retries=parameters.retries,
                penalty=parameters.penalty,
                consequence="is cut to the greatest length and handed on to the library, which judges it",
            ),
        )

    @property
    def spec(self) -> GameSpec:
        """What is known of this game."""
        return self._spec

    def initial_state(self, chance: Chance) -> TextArenaState:
        """The library's start."""
        return TextArenaState((chance.integer("library", MAX_SEED),))

    def to_move(self, state: TextArenaState) -> tuple[str, ...]:
        """One player at a time."""
        mover = self._view(state).mover
        return () if mover is None else (self._players[mover],)

    def observe(self, state: TextArenaState, player: str) -> Observation:
        """What the library has said to the player since his last turn, and its rules as the system text."""
        view, seat = self._view(state), self._players.index(player)
        system = view.prompts[seat]
        if self.parameters.wording == "full":
            system += (
                f"\n\nYou are {player}, Player {seat} of the above. Reply with {self._grammar.describe()};"
                " what is longer is cut."
            )
        return Observation(
            text="\n".join(f"[{sender}] {message}" for sender, message in view.messages[seat])
            or "Your turn.",
            grammar=self._grammar,
            system=system,
            facts={
                "game": self.name,
                "load": self.parameters.load,
                "messages": [list(message) for message in view.messages[seat]],
            },
        )

    def step(
        self, state: TextArenaState, actions: Mapping[str, Action], chance: Chance
    ) -> tuple[TextArenaState, StepOutcome]:
        """Hand one reply to the library."""
        (action,) = actions.values()
        text = delivered(action, self.parameters.max_characters, whole_reply=True)
        text = " ".join(text.split())  # one line, so that nobody can write lines of the library's
        seed = chance.integer("library", MAX_SEED)
        if state not in self._live:
            self._keep(state, *self._replayed(state))
        environment, prompts = self._live.pop(state)
        with fenced(seed):
            environment.step(text)
        after = TextArenaState((*state.seeds, seed), (*state.replies, text))
        view = self._keep(after, environment, prompts)
        rewards = view.rewards or (0.0,) * len(self._players)
        return after, StepOutcome(
            rewards=dict(zip(self._players, rewards, strict=True)),
            terminated=bool(view.rewards),
            truncated=view.mover is None and not view.rewards,
            info={"reason": view.reason} if view.rewards else {},
        )

    def _view(self, state: TextArenaState) -> View:
        if state not in self._views:
            self._keep(state, *self._replayed(state))
        return self._views[state]

    def _replayed(self, state: TextArenaState) -> tuple[Any, tuple[str, ...]]:
        """The library's environment at a state, and the rules that each player was told at its start."""
        start, *seeds = state.seeds
        with fenced(start):
            environment = self._library.make(self._id)
            environment.reset(num_players=len(self._players), seed=start)
        kind = self._library.ObservationType.PROMPT
        inboxes = environment.state.observations
        prompts = tuple(
            "\n".join(message for _, message, told in inboxes[seat] if told == kind)
            for seat in range(len(self._players))
        )
        for seat, inbox in inboxes.items():
            inboxes[seat] = [message for message in inbox if message[2] != kind]
        for seed, text in zip(seeds, state.replies, strict=True):
            environment.get_observation()  # read, as it was in play, before the reply
            with fenced(seed):
                environment.step(text)
        return environment, prompts

    def _keep(self, state: TextArenaState, environment: Any, prompts: tuple[str, ...]) -> View:
        """Read what is new, which empties the mover's inbox, and remember it."""
        inner = environment.state
        names = {self._library.GAME_ID: "GAME"}
        messages = tuple(
            tuple(
                (names.get(sender) or inner.role_mapping.get(sender, f"Player {sender}"), message)
                for sender, message, _ in inner.observations[seat]
            )
            for seat in range(len(self._players))
        )
        rewards: tuple[float, ...] = ()
        reason, mover = "", None
        if inner.done:
            paid, told = environment.close()
            rewards = tuple(float(paid.get(seat, 0.0)) for seat in range(len(self._players)))
            reason = str(told[0].get("reason", ""))
        elif len(state.replies) < self.parameters.max_turns:
            mover, _ = environment.get_observation()
            self._live[state] = environment, prompts
        view = View(mover=mover, prompts=prompts, messages=messages, rewards=rewards, reason=reason)
        self._views[state] = view
        for kept in (self._views, self._live):
            if len(kept) > MAX_KEPT:
                kept.pop(next(iter(kept)))
        return view
