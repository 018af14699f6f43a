"""Agents without weights by name: the scripted ones, and `library:NAME` for those of other libraries.

A library is imported when one of its agents is first asked for.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module

from coplay.agents.base import AgentFactory, Desk
from coplay.agents.scripted import SCRIPTED, scripted_agent, scripted_players


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentLibrary:
    """Where agents called `library:NAME` come from."""

    module: str
    factory: str
    """The function of `module` from a name to an `AgentFactory`; it knows what is missing or wrong."""
    games: frozenset[str]
    """The games they play."""


LIBRARIES: dict[str, AgentLibrary] = {
    "axelrod": AgentLibrary(
        module="coplay.agents.axelrod_strategies",
        factory="axelrod_agent",
        games=frozenset({"iterated_matrix"}),
    ),
    "negmas": AgentLibrary(
        module="coplay.agents.negmas_negotiators",
        factory="negmas_agent",
        games=frozenset({"alternating_offers", "bargaining", "ultimatum"}),
    ),
}


def library_of(name: str) -> AgentLibrary | None:
    """The library that a name `library:NAME` is of, if any."""
    prefix, colon, _ = name.partition(":")
    return LIBRARIES.get(prefix) if colon else None


def is_named(name: str) -> bool:
    """True of scripted agents, and of all names of a library, right or wrong."""
    return name in SCRIPTED or library_of(name) is not None


def named_agent(name: str, *, tools: Desk | None = None) -> AgentFactory:
    """The factory of a scripted agent or of one of another library.

    Args:
        name: which.
        tools: who runs the tools that games offer.

    Raises:
        UnknownAgentError: if there is none of this name.
        MissingLibraryError: if its library is not installed.
    """
    library = library_of(name)
    if library is None:
        factory = scripted_agent(name)
    else:
        make: Callable[[str], AgentFactory] = getattr(import_module(library.module), library.factory)
        factory = make(name)
    return factory if tools is None else lambda seat: factory(replace(seat, tools=tools))


def plays(name: str, game: str) -> bool:
    """True if an agent of this name would have a rule for the game; names of a library are not looked up."""
    library = library_of(name)
    return game in library.games if library else name in scripted_players(game)


def named_players(game: str) -> list[str]:
    """Names of the agents that have a rule for a game; `library:NAME` stands for all of a library."""
    return scripted_players(game) + [
        f"{prefix}:NAME" for prefix, library in LIBRARIES.items() if game in library.games
    ]
