"""Chats from a file, in the `messages` convention, as the turns of the one who answers."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coplay.games import FreeText, Move, Observation
from coplay.rollout_tree.json_text import unshield
from coplay.rollout_tree.records import Turn

ASSISTANT = "assistant"
HEARD = ("user", "tool")
"""Roles whose messages the assistant answers; several in a row are one observation, a blank line between them."""
LONGEST = 1_000_000
"""Characters of a reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """A chat as its assistant lived through it."""

    line: int
    """Of the file, from 1."""
    turns: tuple[Turn, ...]
    """One for each message of the assistant; what nobody answered at the end is left out."""
    learnt: tuple[bool, ...]
    """False for messages with `weight` 0: said, and not to be learnt."""
    failed: bool
    """True where the file says that the game failed."""


def read_chats(path: str | os.PathLike[str]) -> Iterator[Chat]:
    """Read one JSON object a line, `{"messages": [{"role": ..., "content": ...}, ...]}`; empty lines are no chats.

    Roles are `system` (first), `user`, `tool` and `assistant`; a message of the assistant may say `"weight": 0`. Of
    what else stands in a line only `status` is read: `coplay export` tells by it which games failed.

    Raises:
        FileNotFoundError: at once, if there is no such file.
        ValueError: naming the line, if one is no such chat.
    """
    place = Path(path)
    if not place.is_file():
        raise FileNotFoundError(f"{str(path)!r} is no file; expected chats, one JSON object a line")
    return _read(place)


def _read(path: Path) -> Iterator[Chat]:
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                yield _chat(json.loads(line), number)
            except (ValueError, TypeError) as error:
                raise ValueError(f"line {number} of '{path}': {error}") from None


def _chat(data: Any, number: int) -> Chat:
    messages = data.get("messages") if isinstance(data, dict) else None
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise ValueError(
            f'it holds {str(data)[:60]!r}; expected {{"messages": [{{"role": ..., "content": ...}}, ...]}}'
        )
    turns: list[Turn] = []
    learnt: list[bool] = []
    heard: list[str] = []
    system = ""
    for place, message in enumerate(messages):
        role, content = message.get("role"), _content(message, place)
        if role == "system" and place == 0:
            system = content
        elif role in HEARD:
            heard.append(content)
        elif role == ASSISTANT and heard:
            turns.append(_turn(system, heard, content))
            learnt.append(_weight(message, place))
            heard = []
        else:
            raise ValueError(_misplaced(role, messages[:place], place))
    return Chat(line=number, turns=tuple(turns), learnt=tuple(learnt), failed=data.get("status") == "failed")


def _content(message: Mapping[str, Any], place: int) -> str:
    content = message.get("content")
    if not isinstance(content, str):
        raise ValueError(
            f"message {place} has {str(content)[:60]!r} as content; expected text (calls of tools and images that stand"
            " beside it in other fields cannot be read)"
        )
    return unshield(content)


def _weight(message: Mapping[str, Any], place: int) -> bool:
    weight = message.get("weight", 1)
    if weight not in (0, 1):
        raise ValueError(f"message {place} has weight {weight!r}; expected 0 or 1")
    return bool(weight)


def _turn(system: str, heard: Sequence[str], reply: str) -> Turn:
    return Turn(
        player=ASSISTANT,
        observation=Observation(text="\n\n".join(heard), grammar=FreeText(LONGEST), system=system),
        reply=reply,
        action=Move(value=reply, text=reply),
        segments=(),
        policy=ASSISTANT,
        finish="stop",
    )


def _misplaced(role: object, before: Sequence[Mapping[str, Any]], place: int) -> str:
    said = "nothing" if not before else f"a message of {before[-1].get('role')!r}"
    return (
        f"message {place} is of {role!r} after {said}; expected a system message at the head at most, and before each"
        f" message of 'assistant' one of {' or '.join(map(repr, HEARD))}"
    )
