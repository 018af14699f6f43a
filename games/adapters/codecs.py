"""How what environments of PettingZoo show becomes text, and labels become their actions."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from coplay.games.names import nearest

MARKS = ("you", "other")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextCodec:
    """Texts of an environment whose actions are numbered."""

    say: Callable[[Any], str]
    """An observation, without its mask of legal actions -> text."""
    moves: tuple[str, ...] | None = None
    """Labels of actions 0, 1, ...; None: the numbers themselves."""
    rules: str = ""
    """What a player should know, beyond that it is a game."""


def say_plainly(value: Any) -> str:
    """Arrays as nested lists, dictionaries a line for each key."""
    if isinstance(value, dict):
        return "\n".join(f"{key}: {say_plainly(item)}" for key, item in value.items())
    if hasattr(value, "tolist"):
        value = value.tolist()
    return str(value)


def say_board(own: str, other: str, *, transposed: bool = False) -> Callable[[Any], str]:
    """Two planes of a board, mine and the other's, as rows of signs; `.` is free."""

    def say(value: Any) -> str:
        board = value.tolist()
        rows = [list(row) for row in zip(*board, strict=True)] if transposed else board
        return "\n".join(
            " ".join(own if mine else other if theirs else "." for mine, theirs in row) for row in rows
        )

    return say


_ROCK = ("rock", "paper", "scissors", "nothing yet")
_CODECS: dict[str, TextCodec] = {
    "classic/rps-v2": TextCodec(
        say=lambda value: f"The other's last move: {_ROCK[int(value)]}.",
        moves=_ROCK[:3],
        rules="Rock beats scissors, scissors beat paper, paper beats rock.",
    ),
    "classic/tictactoe-v3": TextCodec(
        say=say_board("X", "O", transposed=True),
        moves=tuple(f"row {place % 3 + 1} column {place // 3 + 1}" for place in range(9)),
        rules="Three in a row win. Your marks are X, the other's O.",
    ),
    "classic/connect_four-v3": TextCodec(
        say=say_board("X", "O"),
        moves=tuple(f"column {place + 1}" for place in range(7)),
        rules="Pieces fall to the lowest free cell of a column; four in a row win. Your pieces are X, the other's O.",
    ),
}


def register_codec(env: str, codec: TextCodec) -> None:
    """Use a codec for the environment with this id of PettingZoo's registry.

    Raises:
        ValueError: if it has another one.
    """
    if _CODECS.get(env, codec) is not codec:
        raise ValueError(
            f"environment {env!r} has a codec already; expected an id without one{nearest(env, _CODECS)}"
        )
    _CODECS[env] = codec


def codec_of(env: str) -> TextCodec:
    """The registered codec, or one that shows numbers as they are."""
    return _CODECS.get(env, TextCodec(say=say_plainly))
