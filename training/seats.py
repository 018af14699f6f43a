"""Who may sit where: the names in a configuration, held against its game before anything is loaded."""

from collections.abc import Iterable, Mapping, Sequence

from coplay.agents.scripted import SCRIPTED, scripted_players
from coplay.agents.settings import check_name
from coplay.games.names import nearest
from coplay.training.messages import ConfigError


def check_policy_names(names: Iterable[str]) -> None:
    """Refuse names that cannot stand in `name@version`, or that a scripted agent has."""
    for name in names:
        if check_name(name) in SCRIPTED:
            raise ConfigError(
                f"'agents.policies' names {name!r}, which is a scripted agent; expected another name"
            )


def check_seats(
    seats: Mapping[str, str], *, policies: Iterable[str], players: Iterable[str], game: str
) -> None:
    """Refuse players that the game does not have, and agents that are none or cannot play it."""
    policies, players = tuple(policies), tuple(players)
    known = (*policies, *SCRIPTED)
    for player, agent in seats.items():
        if player not in players:
            raise ConfigError(
                f"'agents.seats' names player {player!r}, but the game's players are"
                f" {', '.join(map(repr, players))}{nearest(player, players)}"
            )
        if agent not in known:
            raise ConfigError(
                f"'agents.seats.{player}' is {agent!r}, which is no policy"
                f" ({', '.join(map(repr, policies))}) and no scripted agent{nearest(agent, known)}"
            )
        if agent not in policies:
            check_plays(agent, game, f"agents.seats.{player}")


def check_anchors(anchors: Iterable[str], *, games: Sequence[str]) -> None:
    """Refuse anchors that are no scripted agents or can play none of the games."""
    for anchor in anchors:
        if anchor not in SCRIPTED:
            raise ConfigError(
                f"'evaluate.anchors' names {anchor!r}, no scripted agent{nearest(anchor, SCRIPTED)}"
            )
        if not any(plays(anchor, game) for game in games):
            check_plays(anchor, games[0], "evaluate.anchors")


def plays(agent: str, game: str) -> bool:
    """True if an agent can play a game; only scripted ones may lack a rule for it."""
    return agent not in SCRIPTED or agent in scripted_players(game)


def check_plays(agent: str, game: str, where: str) -> None:
    """Refuse a scripted agent that has no rule for the game."""
    able = scripted_players(game)
    if agent not in able:
        raise ConfigError(
            f"{where!r} names {agent!r}, which has no rule for game {game!r}; expected one of"
            f" {', '.join(map(repr, able))}"
        )
