"""Any environment of PettingZoo (Terry et al. 2021) with numbered actions, as a game.

Environments cannot be copied in mid-play (a deep copy silently loses the play), so a state is the seed and the actions
so far, and an environment is brought there by replay; one that already stands there is taken further instead. A codec
turns observations into text and labels into actions. Agents who are out of the game leave without a turn of their own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from coplay.games.adapters.codecs import codec_of
from coplay.games.adapters.seats import seat_names
from coplay.games.base import Game, GameSpec, MalformedRule, Observation, StepOutcome
from coplay.games.chance import Chance
from coplay.games.grammar import Action, Choice, Malformed
from coplay.games.names import nearest
from coplay.games.optional import optional_library
from coplay.games.parameters import SeatsParameters, Tag, check_players
from coplay.games.sentences import reply_with_a_legal_move

MAX_SEED = 2**31 - 1
MAX_LIVE = 512
"""Environments kept at the states they stand in."""


class PettingZooParameters(SeatsParameters):
    """Which environment, and what it does not declare itself."""

    kind: Literal["pettingzoo"] = "pettingzoo"
    env: str = Field("classic/rps-v2", min_length=1)
    """The id of an environment in PettingZoo's registry of AEC environments."""
    options: Mapping[str, bool | int | float | str | None] = {}
    """What the environment is made with."""
    players: Annotated[tuple[str, ...], AfterValidator(check_players)] = ()
    """Names of the seats in the order of its agents; as many as there are, or none for names of ours."""
    max_steps: int = Field(1000, ge=1, le=1_000_000)
    """Plays that have not ended by then are cut off (truncated)."""
    reward_range: tuple[float, float] = (-1.0, 1.0)
    """Least and greatest reward of one agent in one step."""
    zero_sum: bool = False
    """Whether the rewards of each step sum to zero."""
    tag: Tag = "move"
    """In the full wording, the tag that a move stands in; None for the move alone. Terse moves have no tag."""


@dataclass(frozen=True, slots=True)
class PettingZooState:
    """What happened so far."""

    seed: int
    """Of all luck of the environment."""
    actions: tuple[int, ...] = ()
    """Of the agents, in order."""


class PettingZoo(Game[PettingZooState]):
    """An environment of PettingZoo. Nothing is `private`: environments do not say what is."""

    Parameters: ClassVar[type[PettingZooParameters]] = PettingZooParameters
    name: ClassVar[str] = "pettingzoo"

    def __init__(self, parameters: PettingZooParameters) -> None:
        super().__init__(parameters)
        self._library = optional_library("pettingzoo", extra="games", use=f"game {self.name!r}")
        self._codec = codec_of(parameters.env)
        self._agents = self._checked_agents()
        self._players = seat_names(parameters.players, len(self._agents), parameters.env)
        self._tag = parameters.tag if parameters.wording == "full" else None
        self._live: dict[PettingZooState, Any] = {}
        self._spec = GameSpec(
            players=self._players,
            max_steps=parameters.max_steps,
            has_chance=True,
            has_rounds=False,
            zero_sum=parameters.zero_sum,
            symmetric=False,
            reward_range=parameters.reward_range,
            malformed_rule=MalformedRule(
                retries=parameters.retries,
                penalty=parameters.penalty,
                consequence="counts as the first of the legal moves",
            ),
        )

    @property
    def spec(self) -> GameSpec:
        """What the parameters say about the environment."""
        return self._spec

    def initial_state(self, chance: Chance) -> PettingZooState:
        """A seed for the environment."""
        return PettingZooState(chance.integer("seed", MAX_SEED))

    def to_move(self, state: PettingZooState) -> tuple[str, ...]:
        """The selected agent."""
        env = self._at(state)
        if not env.agents or len(state.actions) >= self.parameters.max_steps:
            return ()
        return (self._player(env),)

    def observe(self, state: PettingZooState, player: str) -> Observation:
        """What the codec says, and the legal moves."""
        env = self._at(state)
        agent = self._agents[self._players.index(player)]
        shown = env.observe(agent)
        if isinstance(shown, dict):
            shown = {key: value for key, value in shown.items() if key != "action_mask"}
            if list(shown) == ["observation"]:
                shown = shown["observation"]
        text, moves = self._codec.say(shown), list(self._moves(env))
        full = self.parameters.wording == "full"
        return Observation(
            text="\n".join((text, f"Legal moves: {'; '.join(moves)}" if full else "; ".join(moves))),
            grammar=Choice(tuple(moves), self._tag),
            system=self._rules(player) if full else self.parameters.env,
            facts={"game": self.name, "env": self.parameters.env, "string": text, "moves": moves},
        )

    def step(
        self, state: PettingZooState, actions: Mapping[str, Action], chance: Chance
    ) -> tuple[PettingZooState, StepOutcome]:
        """The selected agent's action, and the leave of all who are out."""
        env = self._live.pop(state, None) or self._replayed(state)
        player, moves = self._player(env), self._moves(env)
        action = actions[player]
        label = next(iter(moves)) if isinstance(action, Malformed) else action.value
        env.step(moves[label])
        rewards = {
            name: float(env.rewards.get(agent, 0.0))
            for name, agent in zip(self._players, self._agents, strict=True)
        }
        cut_by_env = any(env.truncations.values()) and not any(env.terminations.values())
        self._dismiss(env)
        after = PettingZooState(state.seed, (*state.actions, moves[label]))
        self._keep(after, env)
        ended = not env.agents and not cut_by_env
        cut = not ended and (not env.agents or len(after.actions) >= self.parameters.max_steps)
        return after, StepOutcome(
            rewards=rewards, terminated=ended, truncated=cut, info={"moves": {player: label}}
        )

    def _rules(self, player: str) -> str:
        others = ", ".join(name for name in self._players if name != player)
        return "\n".join(
            filter(
                None,
                (
                    f"You are {player}. You play {self.parameters.env} with {others or 'nobody else'}.",
                    self._codec.rules,
                    "At each of your turns you are shown what you see and your legal moves."
                    " You want as high a total reward as you can get.",
                    reply_with_a_legal_move(self._tag),
                ),
            )
        )

    def _player(self, env: Any) -> str:
        return self._players[self._agents.index(env.agent_selection)]

    def _moves(self, env: Any) -> dict[str, int]:
        """Label -> action of the selected agent's legal moves."""
        agent = env.agent_selection
        space, shown = env.action_space(agent), env.observe(agent)
        mask = shown.get("action_mask") if isinstance(shown, dict) else None
        if mask is None:
            mask = env.infos[agent].get("action_mask")
        first, labels = int(space.start), self._codec.moves
        return {
            str(first + place) if labels is None else labels[place]: first + place
            for place in range(int(space.n))
            if mask is None or mask[place]
        }

    def _made(self) -> Any:
        return self._library.make("aec", self.parameters.env, **self.parameters.options)

    def _checked_agents(self) -> tuple[str, ...]:
        """The environment's agents, after a look at what it is."""
        name, known = self.parameters.env, sorted(self._library.aec_registry)
        if name not in known:
            raise ValueError(
                f"PettingZoo has no environment {name!r}; expected one of the {len(known)} in its registry, as"
                f" 'classic/rps-v2', or one of yours after pettingzoo.register{nearest(name, known)}"
            )
        try:
            env = self._made()
        except optional_library(
            "pettingzoo.env_registry.exceptions", extra="games", use=f"game {self.name!r}"
        ).PettingZooRegistryError as error:
            raise ValueError(f"environment {name!r} cannot be made: {error}") from error
        except TypeError as error:
            raise ValueError(
                f"environment {name!r} cannot be made with {dict(self.parameters.options)!r}: {error}; expected"
                " options that it knows"
            ) from error
        agents = tuple(env.possible_agents)
        for agent in agents:
            space = env.action_space(agent)
            if not hasattr(space, "n") or not hasattr(space, "start"):
                raise ValueError(
                    f"actions of environment {name!r} are of a space {type(space).__name__}; expected Discrete ones,"
                    " which can be listed"
                )
            if self._codec.moves is not None and len(self._codec.moves) != space.n:
                raise ValueError(
                    f"the codec of environment {name!r} has {len(self._codec.moves)} labels for {space.n} actions;"
                    " expected one for each: register another codec"
                )
        env.close()
        return agents

    def _at(self, state: PettingZooState) -> Any:
        """An environment that stands there, to be looked at only."""
        if state not in self._live:
            self._keep(state, self._replayed(state))
        return self._live[state]

    def _keep(self, state: PettingZooState, env: Any) -> None:
        self._live[state] = env
        if len(self._live) > MAX_LIVE:
            self._live.pop(next(iter(self._live))).close()

    def _replayed(self, state: PettingZooState) -> Any:
        env = self._made()
        env.reset(seed=state.seed)
        self._dismiss(env)
        for action in state.actions:
            env.step(action)
            self._dismiss(env)
        return env

    @staticmethod
    def _dismiss(env: Any) -> None:
        """Agents who are out take the empty step that the library wants of them."""
        while env.agents and (env.terminations[env.agent_selection] or env.truncations[env.agent_selection]):
            env.step(None)
