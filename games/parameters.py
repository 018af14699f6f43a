"""The parameters that the built-in games share."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from coplay.games.answers import check_tag
from coplay.games.base import GameParameters


def _tag(tag: str | None) -> str | None:
    check_tag(tag)
    return tag


def check_players(players: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse names of seats that nobody could tell apart.

    Raises:
        ValueError: if so.
    """
    if len(set(players)) != len(players) or not all(
        name.strip() == name and name.isprintable() and name for name in players
    ):
        raise ValueError(f"players {players!r}; expected different, visible names without surrounding space")
    return players


Tag = Annotated[str | None, AfterValidator(_tag)]
"""Name of the tag an answer stands in, or None for untagged answers."""

Players = Annotated[tuple[str, ...], Field(min_length=2), AfterValidator(check_players)]
"""Seats in their fixed order."""

OnePlayer = Annotated[tuple[str, ...], Field(min_length=1, max_length=1), AfterValidator(check_players)]
"""The one seat of a game that a player plays alone."""

TwoPlayers = Annotated[tuple[str, ...], Field(min_length=2, max_length=2), AfterValidator(check_players)]
"""Two seats, the first to move first."""

Wording = Literal["full", "terse"]
"""`full` sentences for chat models, or `terse`: a handful of tokens a round for the embedded model."""


class SeatsParameters(GameParameters):
    """Seats, wording and the rule on malformed replies."""

    players: Players = ("Ada", "Bo")
    """Names of the seats in their fixed order."""
    wording: Wording = "full"
    """`full` sentences for chat models, `terse` tokens for the embedded model; both state the same facts."""
    retries: int = Field(0, ge=0, le=100)
    """How often a player whose reply is no move is asked again within the step."""
    penalty: float = Field(0.0, ge=0.0)
    """Taken from the credit of each malformed attempt, in raw reward units."""


class RoundsParameters(SeatsParameters):
    """The same, and rounds."""

    num_rounds: int = Field(10, ge=1, le=1_000_000)
    """Number of rounds (at most, where a game may stop earlier)."""


def join_names(names: tuple[str, ...]) -> str:
    """`Bo`, `Bo and Cy`, `Bo, Cy and Di`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
