"""What a reply can come to: a move, or a malformed reply with its reason; and the contract of a grammar."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

MalformedReason = Literal["empty", "cut_off", "no_move", "ambiguous", "out_of_range", "too_long"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A reply understood as a move."""

    value: Any
    """The move as a JSON value, e.g. a label, a number, or numbers by item name."""
    text: str
    """Its canonical wording."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Malformed:
    """A reply that is no move, and why."""

    reason: MalformedReason
    text: str
    """What was said, without private reasoning; of a tagged message that is too long, the content of
    its tag."""


Action = Move | Malformed


class Grammar(ABC):
    """A set of replies that are moves. Immutable, comparable by value, serialisable."""

    __slots__ = ()

    @abstractmethod
    def parse(self, text: str) -> Action:
        """Understand a finished reply, by whole words; never guess a move the reply only discussed."""

    @abstractmethod
    def write(self, value: Any) -> str:
        """The canonical reply for a move value; `parse(write(value)).value == value`.

        Raises:
            ValueError: if the value is no move of this grammar.
        """

    @abstractmethod
    def labels(self) -> tuple[str, ...] | None:
        """Every canonical reply, if there are few enough to list (constrained decoding); else None."""

    @abstractmethod
    def describe(self) -> str:
        """What to reply, in a few words, for prompts and error messages."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """A JSON object with a `kind`; the inverse is `grammar_from_json`."""
