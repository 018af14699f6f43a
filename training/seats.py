"""Who may sit where, and who runs its tools: a configuration held against its game before anything is played."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from coplay.agents.base import Desk
from coplay.agents.named import is_named, library_of, named_agent, named_players, plays
from coplay.agents.scripted import SCRIPTED, UnknownAgentError
from coplay.agents.settings import check_name
from coplay.agents.tools import desk_for
from coplay.games import Chance, Game
from coplay.games.names import nearest
from coplay.games.optional import MissingLibraryError
from coplay.training.messages import ConfigError


def check_policy_names(names: Iterable[str]) -> None:
    """Refuse names that cannot stand in `name@version`, or that a scripted agent has."""
    for name in names:
        if check_name(name) in SCRIPTED:
            raise ConfigError(
                f"'agents.policies' names {name!r}, which is a scripted agent; expected another name"
            )


def check_seats(
    seats: Mapping[str, str],
    *,
    policies: Iterable[str],
    players: Iterable[str],
    game: str,
    where: str = "agents.seats",
) -> None:
    """Refuse players that the game does not have, and agents that are none or cannot play it."""
    policies, players = tuple(policies), tuple(players)
    known = (*policies, *SCRIPTED)
    no_policy = f"no policy ({', '.join(map(repr, policies))}) and " if policies else ""
    for player, agent in seats.items():
        if player not in players:
            raise ConfigError(
                f"{where!r} names player {player!r}, but the game's players are"
                f" {', '.join(map(repr, players))}{nearest(player, players)}"
            )
        if agent not in policies and not is_named(agent):
            raise ConfigError(
                f"'{where}.{player}' is {agent!r}, which is {no_policy}no scripted agent{nearest(agent, known)}"
            )
        if agent not in policies:
            check_plays(agent, game, f"{where}.{player}")


def check_held(seats: Mapping[str, str], *, trained: Sequence[str]) -> None:
    """Refuse a run in which a policy that is to be trained sits nowhere, or none is to be."""
    if not set(trained) & set(seats.values()):
        raise ConfigError(
            "no seat is held by a trained policy; give one to 'agents.seats' or drop that section"
        )
    for name in trained:
        if name not in seats.values():
            held = ", ".join(f"{player} = {agent!r}" for player, agent in seats.items())
            raise ConfigError(
                f"policy {name!r} of 'agents.policies' is to be trained and holds no seat ({held}); expected it in"
                f" 'agents.seats', or 'agents.policies.{name}.trained' = false"
            )


def check_anchors(anchors: Iterable[str], *, games: Sequence[str]) -> None:
    """Refuse anchors that are no scripted agents or can play none of the games."""
    for anchor in anchors:
        if not is_named(anchor):
            raise ConfigError(
                f"'evaluate.anchors' names {anchor!r}, no scripted agent{nearest(anchor, SCRIPTED)}"
            )
        able = next((game for game in games if plays(anchor, game)), games[0])
        check_plays(anchor, able, "evaluate.anchors")


def may_play(agent: str, game: str) -> bool:
    """True if an agent can play a game; only those without weights may lack a rule for it."""
    return not is_named(agent) or plays(agent, game)


def check_plays(agent: str, game: str, where: str) -> None:
    """Refuse an agent without weights that has no rule for the game, or that its library does not know."""
    if not plays(agent, game):
        raise ConfigError(
            f"{where!r} names {agent!r}, which has no rule for game {game!r}; expected one of"
            f" {', '.join(map(repr, named_players(game)))}"
        )
    if library_of(agent) is not None:
        try:
            named_agent(agent)
        except (UnknownAgentError, MissingLibraryError) as error:
            raise ConfigError(f"{where!r} names {agent!r}: {error}") from None


def check_tools(game: Game[Any], desk: Desk | None, *, append_only: bool) -> None:
    """See to it that somebody runs what a game offers, and that one turn can hold its results.

    Raises:
        ToolsNotConfiguredError: if nobody does.
        ConfigError: if the model's template rewrites history.
    """
    state = game.initial_state(Chance(0))
    for player in game.to_move(state):
        tools = game.observe(state, player).tools
        if tools is None:
            continue
        desk_for(desk, tools)
        if not append_only:
            raise ConfigError(
                f"game {game.name!r} offers tools, but the chat template of 'agents.model' rewrites history, so that a"
                " call and the reply after it would stand in different rows; expected an append-only template: take"
                " another model, or a game without tools"
            )
