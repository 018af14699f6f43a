"""Who can be named on a command line: scripted and library agents, a human, and `RUN[@iteration][:player]`."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from coplay.agents.base import Desk
from coplay.agents.human import human_factory
from coplay.agents.named import is_named, named_agent
from coplay.agents.runs import find_run, parse_entrant, read_config
from coplay.agents.scripted import SCRIPTED
from coplay.games.names import nearest
from coplay.training.evaluate import Contestant
from coplay.training.messages import ConfigError
from coplay.training.seats import check_plays

HUMAN = "human"


def contestant(
    text: str,
    *,
    game: str,
    player: str,
    run_seed: int,
    temperature: float | None = None,
    tools: Desk | None = None,
) -> Contestant:
    """Whoever a word names, for one seat of a game; a trained agent at the temperature of its training, or another.

    Args:
        text: the word.
        game: the kind of game.
        player: the seat.
        run_seed: all luck of a policy is a function of it.
        temperature: of a trained agent; None: that of its training.
        tools: who runs the tools that the game offers, for whoever is not out of a run: those bring their own.

    Raises:
        ConfigError: if it names nobody, or a scripted agent without a rule for the game.
    """
    if text == HUMAN:
        return Contestant(label=HUMAN, factory=human_factory(tools=tools))
    if is_named(text):
        check_plays(text, game, player)
        return Contestant(label=text, factory=named_agent(text, tools=tools))
    run, iteration, named = parse_entrant(text)
    if not is_run(run):
        known = (*SCRIPTED, HUMAN)
        raise ConfigError(
            f"{text!r} is no scripted agent and no run; expected RUN[@iteration][:player] or one of"
            f" {', '.join(known)}{nearest(text, known)}"
        )
    from coplay.agents.loading import load_agent

    agent = load_agent(run, named or player, iteration=iteration)
    return Contestant(label=agent.policy.label, factory=agent.factory(seed=run_seed, temperature=temperature))


def trained_game(entrants: Iterable[str], game: str) -> dict[str, Any]:
    """The parameters under which the first trained entrant learnt this game: its wording and rules; else none."""
    for text in entrants:
        run = parse_entrant(text)[0]
        if text != HUMAN and not is_named(text) and is_run(run):
            settings: dict[str, Any] = read_config(run)["game"]
            if settings["kind"] == game:
                return {name: value for name, value in settings.items() if name != "kind"}
    return {}


def is_run(text: str) -> bool:
    """True if a word names a run folder."""
    try:
        return find_run(text) is not None
    except ValueError:
        return False


def run_folder(text: str) -> Path:
    """The folder of a run, named by path or by its name in `runs/`."""
    return find_run(text)
