"""`coplay check-game NAME|module:Class [--game.parameter value]`: hold a game to every rule of its contract."""

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from coplay.agents.base import Agent, Seat, ToolResult, TurnKey
from coplay.agents.scripted import scripted_agent, scripted_players
from coplay.games import Game, Observation, derive_seed
from coplay.games.conformance import RULES, check_game, load_game
from coplay.games.conformance_plays import Replier
from coplay.games.tools import Call, Tools
from coplay.scripts.own_games import modules_of_this_folder
from coplay.scripts.settings import parse_flags
from coplay.training.messages import ConfigError

USAGE = """coplay check-game NAME|module:Class [--game.parameter value]

Plays the game many times, with random, odd and hostile replies and by the scripted agents that know it, and prints one
line for each rule it breaks: the rule, what breaks it, and the shortest play found that shows it. A module is looked
for in this folder too. Exit code 0: all rules hold; 1: some do not.
Example: coplay check-game split --game.stock 4
"""


def main(arguments: Sequence[str]) -> int:
    """Check one game and print what it breaks."""
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.stdout.write(USAGE)
        return 0 if arguments else 2
    target, parameters = arguments[0], {}
    for path, value in parse_flags(arguments[1:]):
        if path[0] != "game" or len(path) != 2:
            raise ConfigError(f"unknown flag '--{'.'.join(path)}'; expected --game.parameter")
        parameters[path[1]] = value
    with modules_of_this_folder() if ":" in target else nullcontext():
        game = load_game(target, parameters)
        findings = check_game(game, repliers=scripted_repliers(game))
    for finding in findings:
        sys.stdout.write(finding.line() + "\n")
    if not findings:
        sys.stdout.write(f"{game.name}: all {len(RULES)} rules hold\n")
    return 1 if findings else 0


def scripted_repliers(game: Game[Any]) -> dict[str, Replier]:
    """The scripted agents that have rules for this very game, each in all seats."""
    names = [name for name in scripted_players(game.name) if name != "random"]
    return {name: _replier(game, name) for name in names}


def _replier(game: Game[Any], name: str) -> Replier:
    seated: dict[tuple[int, str], tuple[int, Agent]] = {}
    factory, players = scripted_agent(name), game.spec.players

    def reply(observation: Observation, player: str, seed: int, step: int) -> str:
        last, agent = seated.get((seed, player), (step, None))
        if agent is None or step <= last:
            lot = derive_seed("check-game", seed, player)
            agent = factory(
                Seat(
                    game=game.name,
                    player=player,
                    players=players,
                    episode=str(seed),
                    seed=lot,
                    tools=_NothingFound(),
                )
            )
        seated[seed, player] = (step, agent)
        return _answer(agent, observation, TurnKey(episode=str(seed), branch="", player=player, step=step))

    return reply


class _NothingFound:
    """Answers every call at once and with nothing: the game is looked at, and not its tools."""

    def check(self, tools: Tools) -> None:
        """Whatever is offered."""

    async def run(self, call: Call) -> ToolResult:
        """Nothing."""
        return ToolResult("nothing")


def _answer(agent: Agent, observation: Observation, key: TurnKey) -> str:
    """The reply of an agent that waits for nothing."""
    try:
        agent.reply(observation, key).send(None)
    except StopIteration as stop:
        return str(stop.value.text)
    raise AssertionError("a scripted agent waited")
