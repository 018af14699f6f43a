"""Which replies are moves: parsing, writing, and the finite languages that constrained decoding can follow.

A grammar with a tag reads only complete `<tag>…</tag>` answers: all of them must agree (several different
ones are `ambiguous`), a reply without one is `no_move`, unknown content is `out_of_range`. A grammar without
a tag reads the whole reply. Nothing falls back to searching the text for a move.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from coplay.games.answers import (
    MAX_CACHED_CHARACTERS,
    MAX_LABELS,
    all_replies,
    check_tag,
    parse_short,
    read_answer,
    unknown_answer,
    wrap_answer,
)
from coplay.games.moves import Action, Grammar, Malformed, MalformedReason, Move
from coplay.games.names import nearest
from coplay.games.one_of import OneOf
from coplay.games.plugins import import_announced
from coplay.games.quantities import Fields, Number
from coplay.games.replies import CLOSING_PUNCTUATION

__all__ = [
    "Action",
    "Choice",
    "Fields",
    "FreeText",
    "Grammar",
    "Malformed",
    "MalformedReason",
    "Move",
    "Number",
    "OneOf",
    "grammar_from_json",
    "register_grammar",
]


@lru_cache(maxsize=1024)
def _folded(labels: tuple[str, ...]) -> dict[str, str | None]:
    table: dict[str, str | None] = {}
    for label in labels:
        table[label.casefold()] = None if label.casefold() in table else label
    return table


@dataclass(frozen=True, slots=True)
class Choice(Grammar):
    """One of a few labels; the value is the label.

    The answer, stripped of surrounding white space and closing punctuation, must be one label: in exact case,
    or in any case if that leaves one.
    """

    options: tuple[str, ...]
    tag: str | None = None

    def __post_init__(self) -> None:
        check_tag(self.tag)
        labels = self.options
        if not labels or len(set(labels)) != len(labels):
            raise ValueError(f"labels {labels!r} of a choice; expected at least one, all different")
        for label in labels:
            if read_answer(wrap_answer(self.tag, label), self.tag, self.understand) != Move(
                value=label, text=wrap_answer(self.tag, label)
            ):
                raise ValueError(
                    f"label {label!r} cannot be read back from a reply; expected visible text"
                    " without surrounding space and without tags"
                )

    def parse(self, text: str) -> Action:
        """Understand a finished reply."""
        if len(text) <= MAX_CACHED_CHARACTERS:
            return parse_short(self, text)
        return read_answer(text, self.tag, self.understand)

    def understand(self, content: str) -> Action:
        """Understand the answer alone, reasoning and tags removed."""
        bare = content.rstrip(CLOSING_PUNCTUATION + " \t\r\n")
        label: str | None
        if content in self.options:
            label = content
        elif bare in self.options:
            label = bare
        else:
            folded = _folded(self.options)
            label = folded.get(content.casefold()) or folded.get(bare.casefold())
        if label is None:
            return unknown_answer(self.tag, content)
        return Move(value=label, text=wrap_answer(self.tag, label))

    def write(self, value: Any) -> str:
        """The canonical reply for a label."""
        if value not in self.options:
            raise ValueError(
                f"{value!r} is no move; expected one of {self.options!r}{nearest(value, self.options)}"
            )
        return wrap_answer(self.tag, value)

    def listed_values(self) -> tuple[str, ...] | None:
        """All values, if few."""
        return self.options if len(self.options) <= MAX_LABELS else None

    def labels(self) -> tuple[str, ...] | None:
        """Every canonical reply, if few."""
        return all_replies(self)

    def describe(self) -> str:
        """What to reply."""
        return " or ".join(wrap_answer(self.tag, label) for label in self.options)

    def to_json(self) -> dict[str, Any]:
        """A JSON object with `kind`."""
        return {"kind": "choice", "options": list(self.options), "tag": self.tag}


@dataclass(frozen=True, slots=True)
class FreeText(Grammar):
    """Any text up to a length; the value is the text, stripped and without private reasoning."""

    max_characters: int
    tag: str | None = None

    def __post_init__(self) -> None:
        check_tag(self.tag)
        if self.max_characters < 1:
            raise ValueError(f"max_characters {self.max_characters}; expected at least 1")

    def parse(self, text: str) -> Action:
        """Understand a finished reply."""
        return read_answer(text, self.tag, self.understand)

    def understand(self, content: str) -> Action:
        """Understand the answer alone, reasoning and tags removed."""
        if not content:
            return Malformed(reason="empty", text="")
        if len(content) > self.max_characters:
            return Malformed(reason="too_long", text=content)
        return Move(value=content, text=wrap_answer(self.tag, content))

    def write(self, value: Any) -> str:
        """The canonical reply for a text."""
        text = wrap_answer(self.tag, value) if isinstance(value, str) else ""
        if self.parse(text) != Move(value=value, text=text):
            raise ValueError(
                f"{value!r} is no message; expected 1 to {self.max_characters} characters without surrounding"
                " space and without tags"
            )
        return text

    def labels(self) -> None:
        """Never listed."""
        return None

    def describe(self) -> str:
        """What to reply."""
        return f"at most {self.max_characters} characters" + (
            "" if self.tag is None else f" in {wrap_answer(self.tag, '...')}"
        )

    def to_json(self) -> dict[str, Any]:
        """A JSON object with `kind`."""
        return {"kind": "free_text", "max_characters": self.max_characters, "tag": self.tag}


_KINDS: dict[str, Callable[..., Grammar]] = {
    "choice": Choice,
    "number": Number,
    "fields": Fields,
    "free_text": FreeText,
    "one_of": OneOf,
}
GrammarType = TypeVar("GrammarType", bound="type[Grammar]")


def register_grammar(kind: str) -> Callable[[GrammarType], GrammarType]:
    """Make a class known to `grammar_from_json` as that of a kind; to be used as a class decorator.

    `to_json` gives `{"kind": kind, ...}` with the arguments of the class by name, tuples as lists, grammars inside as
    their own JSON. Kinds of an announced game's module are found without importing it first.

    Raises:
        ValueError: if the kind is taken by another class, or it is no grammar.
    """

    def register(grammar: GrammarType) -> GrammarType:
        if not (isinstance(grammar, type) and issubclass(grammar, Grammar)) or inspect.isabstract(grammar):
            raise ValueError(f"{grammar!r} of kind {kind!r}; expected a class with every method of Grammar")
        known = _KINDS.setdefault(kind, grammar)
        if known is not grammar:
            raise ValueError(
                f"grammar kind {kind!r} is taken by {known!r}; expected a new name for {grammar!r}"
            )
        return grammar

    return register


def grammar_from_json(data: Mapping[str, Any]) -> Grammar:
    """The inverse of `Grammar.to_json`.

    Raises:
        ValueError: if `data` describes no grammar of a known kind.
    """
    fields = {
        key: tuple(map(_from_json, value)) if isinstance(value, list) else _from_json(value)
        for key, value in data.items()
        if key != "kind"
    }
    kind = str(data.get("kind"))
    if kind not in _KINDS:
        import_announced()
    if kind not in _KINDS:
        raise ValueError(
            f"grammar of kind {kind!r} is unknown; expected one of {tuple(_KINDS)!r}{nearest(kind, _KINDS)}, or install"
            " or import the package that registers it (coplay.games.register_grammar)"
        )
    return _KINDS[kind](**fields)


def _from_json(value: Any) -> Any:
    """A part of a grammar's description: itself, or the grammar it describes."""
    return grammar_from_json(value) if isinstance(value, dict) and "kind" in value else value
