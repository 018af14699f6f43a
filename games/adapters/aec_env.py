"""Any game of ours as an environment of PettingZoo, in which agents move one after the other (AEC).

Actions are replies as text, read by the game's grammar; those of a simultaneous step are gathered in the order of
players, and nobody sees what others chose before him. An observation is a dictionary of the text, the rules, and the
text as UTF-8 bytes, for tools that want an array. An agent that is not to move sees what he saw last.
"""

from collections.abc import Callable, Mapping
from string import printable
from typing import Any

from coplay.games.base import Game, Observation
from coplay.games.chance import Chance, derive_seed
from coplay.games.grammar import Action, Malformed
from coplay.games.optional import optional_library

USE = "an environment of PettingZoo"


def aec_env(game: Game[Any], *, seed: int = 0, num_bytes: int = 2048, max_characters: int = 100_000) -> Any:
    """Make an `AECEnv` in which a game of ours is played.

    `reset(seed=n)` starts a play of that luck, `reset()` the next one. `infos` of an agent hold the `labels` of his
    moves where they are few, `malformed` with the reason where his last reply was none and he is asked again, and
    `info` of the game's last step. Penalties of malformed replies belong to credit, and are no rewards.

    Args:
        game: any game.
        seed: of the plays before the first `reset(seed=n)`.
        num_bytes: length of the array in observations; longer texts are cut there, never in `text`.
        max_characters: of texts and replies.

    Raises:
        MissingLibraryError: if PettingZoo is not installed.
        ValueError: if a length is not positive.
    """
    if num_bytes < 1 or max_characters < 1:
        raise ValueError(
            f"num_bytes {num_bytes} and max_characters {max_characters}; expected both to be at least 1"
        )
    base = optional_library("pettingzoo", extra="games", use=USE).AECEnv
    kind: Callable[..., Any] = type("CoplayEnv", (_GameAsEnv, base), {})
    return kind(game, seed, num_bytes, max_characters)


class _AnyText:
    """What turns a space of texts of certain characters into one of all texts."""

    max_length: int

    def contains(self, x: Any) -> bool:
        """Whether this is a text, and short enough."""
        return isinstance(x, str) and len(x) <= self.max_length


class _GameAsEnv:
    """The methods of an `AECEnv`; what is only declared here is inherited from that."""

    _was_dead_step: Callable[[str | None], None]
    _clear_rewards: Callable[[], None]
    _accumulate_rewards: Callable[[], None]
    _deads_step_first: Callable[[], str]

    def __init__(self, game: Game[Any], seed: int, num_bytes: int, max_characters: int) -> None:
        self.game = game
        self.metadata = {"name": game.name, "render_modes": [], "is_parallelizable": False}
        self.render_mode = None
        self.possible_agents = list(game.spec.players)
        self._seed, self._episode, self._num_bytes = seed, -1, num_bytes
        spaces = optional_library("gymnasium", extra="games", use=USE).spaces
        self._numpy = optional_library("numpy", extra="games", use=USE)
        kind: Callable[..., Any] = type("AnyText", (_AnyText, spaces.Text), {})

        def text() -> Any:
            return kind(max_length=max_characters, min_length=0, charset=printable)

        self.observation_spaces = {
            agent: spaces.Dict(
                {
                    "observation": spaces.Box(0, 255, (num_bytes,), self._numpy.uint8),
                    "text": text(),
                    "system": text(),
                }
            )
            for agent in self.possible_agents
        }
        self.action_spaces = {agent: text() for agent in self.possible_agents}

    def observation_space(self, agent: str) -> Any:
        """The same for every agent."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        """Any text."""
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Start a play: of the luck of `seed`, or the next one."""
        self._episode += 1
        if seed is not None:
            self._seed, self._episode = seed, 0
        self._chance = Chance(derive_seed("aec_env", self._seed, self._episode))
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}
        self._skip_agent_selection = None
        self._seen: dict[str, Observation] = {}
        self._state, self._step = self.game.initial_state(self._chance), 0
        self._ask({})

    def _ask(self, info: Mapping[str, Any]) -> None:
        """Show everybody who is to move what he is to see, and begin with the first."""
        self._actions: dict[str, Action] = {}
        self._attempts = 0
        self._movers = self.game.to_move(self._state)
        self.infos = {agent: {"info": dict(info)} for agent in self.agents}
        for agent in self._movers:
            self._seen[agent] = seen = self.game.observe(self._state, agent)
            labels = seen.grammar.labels()
            if labels is not None:
                self.infos[agent]["labels"] = list(labels)
        if self._movers:
            self.agent_selection = self._movers[0]

    def observe(self, agent: str) -> dict[str, Any]:
        """What the agent saw at his last turn; this one's, if he is to move."""
        seen = self._seen.get(agent)
        text, system = ("", "") if seen is None else (seen.text, seen.system)
        data = text.encode("utf-8", "surrogatepass")[: self._num_bytes]
        array = self._numpy.zeros(self._num_bytes, self._numpy.uint8)
        array[: len(data)] = self._numpy.frombuffer(data, self._numpy.uint8)
        return {"observation": array, "text": text, "system": system}

    def step(self, action: str | None) -> None:
        """Take the reply of the agent whose turn it is."""
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        if not isinstance(action, str):
            raise ValueError(f"action {action!r} of {agent!r}; expected a reply, as text")
        self._cumulative_rewards[agent] = 0.0
        self._clear_rewards()
        move = self._seen[agent].grammar.parse(action)
        if isinstance(move, Malformed) and self._attempts < self.game.spec.malformed_rule.retries:
            self._attempts += 1
            self.infos[agent] = {**self.infos[agent], "malformed": move.reason}
            return
        self._actions[agent], self._attempts = move, 0
        if len(self._actions) < len(self._movers):
            self.agent_selection = self._movers[len(self._actions)]
            return
        self._step += 1
        self._state, outcome = self.game.step(self._state, self._actions, self._chance.at(self._step))
        self.rewards = {agent: float(outcome.rewards[agent]) for agent in self.agents}
        self.terminations = dict.fromkeys(self.agents, outcome.terminated)
        self.truncations = dict.fromkeys(self.agents, outcome.truncated)
        if outcome.terminated or outcome.truncated:
            self.infos = {agent: {"info": dict(outcome.info)} for agent in self.agents}
        else:
            self._ask(outcome.info)
        self._accumulate_rewards()
        self._deads_step_first()

    def close(self) -> None:
        """Nothing is held open."""
