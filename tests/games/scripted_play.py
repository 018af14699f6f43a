"""Play a game with scripted agents and nothing else; the luck of step k is `Chance(seed, k)`."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from coplay.agents.base import Agent, Seat, TurnKey
from coplay.agents.scripted import scripted_agent
from coplay.games import Chance, Game, Malformed, Observation, StepOutcome
from coplay.games.game_tree import Decision


@dataclass(frozen=True)
class Played:
    """One step as it was played."""

    observations: Mapping[str, Observation]
    replies: Mapping[str, str]
    outcome: StepOutcome


def answer(agent: Agent, observation: Observation, key: TurnKey) -> str:
    """The reply of an agent that waits for nothing."""
    try:
        agent.reply(observation, key).send(None)
    except StopIteration as stop:
        return str(stop.value.text)
    raise AssertionError("a scripted agent waited")


def seat_agents(game: Game[Any], agents: Mapping[str, str], seed: int) -> dict[str, Agent]:
    players = game.spec.players
    return {
        player: scripted_agent(agents[player])(
            Seat(game=game.name, player=player, players=players, episode=str(seed), seed=seed * 100 + place)
        )
        for place, player in enumerate(players)
    }


def play(game: Game[Any], agents: Mapping[str, str], *, seed: int = 0) -> Iterator[Played]:
    """Play one episode step by step."""
    seats = seat_agents(game, agents, seed)
    state, step = game.initial_state(Chance(seed)), 0
    while movers := game.to_move(state):
        step += 1
        observations, replies, actions = {}, {}, {}
        for player in movers:
            observations[player] = game.observe(state, player)
            key = TurnKey(episode=str(seed), branch="", player=player, step=step)
            replies[player] = answer(seats[player], observations[player], key)
            actions[player] = observations[player].grammar.parse(replies[player])
            assert not isinstance(actions[player], Malformed), (replies[player], actions[player])
        state, outcome = game.step(state, actions, Chance(seed, step))
        yield Played(observations, replies, outcome)


def totals(game: Game[Any], agents: Mapping[str, str], *, seed: int = 0) -> dict[str, float]:
    """Sum of the step rewards of each player over one episode."""
    sums = dict.fromkeys(game.spec.players, 0.0)
    for played in play(game, agents, seed=seed):
        assert list(played.outcome.rewards) == list(sums)
        for player, reward in played.outcome.rewards.items():
            sums[player] += reward
    return sums


def play_from(game: Game[Any], state: Any, agents: Mapping[str, str], *, seed: int = 0) -> dict[str, float]:
    """Sum of the step rewards of each player from a given state on."""
    seats, step = seat_agents(game, agents, seed), 0
    sums = dict.fromkeys(game.spec.players, 0.0)
    while movers := game.to_move(state):
        step += 1
        actions = {}
        for player in movers:
            seen = game.observe(state, player)
            key = TurnKey(episode=str(seed), branch="", player=player, step=step)
            actions[player] = seen.grammar.parse(answer(seats[player], seen, key))
            assert not isinstance(actions[player], Malformed), (player, seen, actions[player])
        state, outcome = game.step(state, actions, Chance(seed, step))
        for player, reward in outcome.rewards.items():
            sums[player] += reward
    return sums


def as_strategy(game: Game[Any], name: str) -> Callable[[Decision], dict[str, int]]:
    """A scripted agent that draws no lots and remembers nothing, as a strategy on a game's tree."""

    def strategy(decision: Decision) -> dict[str, int]:
        agent = seat_agents(game, dict.fromkeys(game.spec.players, name), 0)[decision.player]
        key = TurnKey(episode="0", branch="", player=decision.player, step=1)
        return {answer(agent, decision.observation, key): 1}

    return strategy
