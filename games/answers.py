"""What all grammars share: how an answer stands in a reply, with or without a tag."""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Protocol

from coplay.games.moves import Action, Malformed
from coplay.games.replies import REASONING_TAG, strip_reasoning, tagged_answers

MAX_LABELS = 2000
"""A grammar with more canonical replies than this does not list them."""
MAX_CACHED_CHARACTERS = 64
"""Only replies this short are remembered with their move; long ones are rarely said twice."""
LARGEST = 10**15
_INTEGER = re.compile(r"[+-]?[0-9]+")


def check_tag(tag: str | None) -> None:
    """Refuse a tag that cannot stand in angle brackets or is the reasoning tag.

    Raises:
        ValueError: if so.
    """
    if tag is not None and (not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", tag) or tag.lower() == REASONING_TAG):
        raise ValueError(
            f"tag {tag!r} is not allowed; expected a letter, then letters, digits, '_' or '-',"
            f" and not {REASONING_TAG!r}, which marks private reasoning"
        )


def wrap_answer(tag: str | None, content: str) -> str:
    """The canonical reply around an answer."""
    return content if tag is None else f"<{tag}>{content}</{tag}>"


def read_answer(text: str, tag: str | None, understand: Callable[[str], Action]) -> Action:
    """Find the answer in a reply by the declared rule, and let `understand` judge it."""
    spoken = strip_reasoning(text).strip()
    if not spoken:
        return Malformed(reason="empty", text="")
    if tag is None:
        return understand(spoken)
    answers = tagged_answers(spoken, tag)
    if not answers:
        return Malformed(reason="no_move", text=spoken)
    first = understand(answers[0])
    if any(understand(answer) != first for answer in answers[1:]):
        return Malformed(reason="ambiguous", text=spoken)
    return first


def unknown_answer(tag: str | None, content: str) -> Malformed:
    """An answer that says nothing known: with a tag it was meant as a move, without one it was not."""
    return Malformed(reason="no_move" if tag is None else "out_of_range", text=content)


def read_integer(word: str) -> int | None:
    """A whole number in plain digits (`LARGEST` for one of more digits), or None."""
    if not _INTEGER.fullmatch(word):
        return None
    return int(word) if len(word) <= len(str(LARGEST)) else LARGEST


class ListedGrammar(Protocol):
    """A grammar whose short replies may be remembered, and whose values may be listed."""

    def __hash__(self) -> int: ...

    @property
    def tag(self) -> str | None:
        """The tag an answer stands in."""
        ...

    def understand(self, content: str) -> Action:
        """Understand the answer alone, reasoning and tags removed."""
        ...

    def write(self, value: Any) -> str:
        """The canonical reply for a value."""
        ...

    def listed_values(self) -> Sequence[Any] | None:
        """All values, if few."""
        ...


@lru_cache(maxsize=1024)
def all_replies(grammar: ListedGrammar) -> tuple[str, ...] | None:
    """Every canonical reply, if few; computed once for equal grammars."""
    values = grammar.listed_values()
    return None if values is None else tuple(grammar.write(value) for value in values)


@lru_cache(maxsize=8192)
def parse_short(grammar: ListedGrammar, text: str) -> Action:
    """`read_answer`, remembered. For grammars whose values are immutable."""
    return read_answer(text, grammar.tag, grammar.understand)
