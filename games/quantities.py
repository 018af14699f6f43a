"""Answers that are whole numbers: one, or one for each of several names."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

from coplay.games.answers import (
    LARGEST,
    MAX_CACHED_CHARACTERS,
    MAX_LABELS,
    all_replies,
    check_tag,
    parse_short,
    read_answer,
    read_integer,
    unknown_answer,
    wrap_answer,
)
from coplay.games.moves import Action, Grammar, Malformed, Move
from coplay.games.replies import CLOSING_PUNCTUATION


@lru_cache(maxsize=1024)
def _field_names(names: tuple[str, ...]) -> dict[str, str]:
    table = {name.casefold().removesuffix("s"): name for name in names}
    return table | {name.casefold(): name for name in names}


@dataclass(frozen=True, slots=True)
class Number(Grammar):
    """A whole number, from `low` to `high` or one of `values`; the answer must be that number alone."""

    low: int | None = None
    high: int | None = None
    values: tuple[int, ...] | None = None
    tag: str | None = None

    def __post_init__(self) -> None:
        check_tag(self.tag)
        ranged = self.low is not None and self.high is not None and self.values is None
        listed = bool(self.values) and self.low is None and self.high is None
        if not ranged and not listed:
            raise ValueError(f"{self!r}; expected either low and high or a non-empty tuple of values")
        least, most = self.ends()
        if (
            least > most
            or max(abs(least), abs(most)) >= LARGEST
            or len(set(self.values or ())) != len(self.values or ())
        ):
            raise ValueError(
                f"{self!r}; expected low <= high, below {LARGEST} in size, and all values different"
            )

    def ends(self) -> tuple[int, int]:
        """The least and the greatest value."""
        if self.values is not None:
            return min(self.values), max(self.values)
        assert self.low is not None and self.high is not None
        return self.low, self.high

    def allows(self, value: Any) -> bool:
        """True for an int that is a move."""
        if not isinstance(value, int) or isinstance(value, bool):
            return False
        if self.values is not None:
            return value in self.values
        least, most = self.ends()
        return least <= value <= most

    def parse(self, text: str) -> Action:
        """Understand a finished reply."""
        if len(text) <= MAX_CACHED_CHARACTERS:
            return parse_short(self, text)
        return read_answer(text, self.tag, self.understand)

    def understand(self, content: str) -> Action:
        """Understand the answer alone, reasoning and tags removed."""
        value = read_integer(content.rstrip(CLOSING_PUNCTUATION + " \t\r\n"))
        if value is None:
            return unknown_answer(self.tag, content)
        if not self.allows(value):
            return Malformed(reason="out_of_range", text=content)
        return Move(value=value, text=wrap_answer(self.tag, str(value)))

    def write(self, value: Any) -> str:
        """The canonical reply for a number."""
        if not self.allows(value):
            raise ValueError(f"{value!r} is no move; expected {self._range()}")
        return wrap_answer(self.tag, str(value))

    def listed_values(self) -> tuple[int, ...] | None:
        """All values, if few."""
        if self.values is not None:
            return self.values if len(self.values) <= MAX_LABELS else None
        least, most = self.ends()
        return tuple(range(least, most + 1)) if most - least < MAX_LABELS else None

    def labels(self) -> tuple[str, ...] | None:
        """Every canonical reply, if few."""
        return all_replies(self)

    def _range(self) -> str:
        if self.values is not None:
            return "one of the numbers " + ", ".join(map(str, self.values))
        return f"a whole number from {self.low} to {self.high}"

    def describe(self) -> str:
        """What to reply."""
        return self._range() + ("" if self.tag is None else f", written {wrap_answer(self.tag, 'x')} for x")

    def to_json(self) -> dict[str, Any]:
        """A JSON object with `kind`."""
        values = None if self.values is None else list(self.values)
        return {"kind": "number", "low": self.low, "high": self.high, "values": values, "tag": self.tag}


@dataclass(frozen=True, slots=True)
class Fields(Grammar):
    """One whole number from `low` to `high` for each name; the value is a dict from name to number.

    `high` may be one number for each name. The answer reads "10 hats 0 books 5 balls", in any order; commas, "and"
    and a missing plural s are fine. `bare` answers read "10 0 5", in the order of names. A missing, repeated or
    unknown name is malformed.
    """

    names: tuple[str, ...]
    low: int
    high: int | tuple[int, ...]
    tag: str | None = None
    bare: bool = False

    def __post_init__(self) -> None:
        check_tag(self.tag)
        folded = {name.casefold() for name in self.names}
        words = all(re.fullmatch(r"[^\W\d]\w*", name) and name.casefold() != "and" for name in self.names)
        if not self.names or len(folded) != len(self.names) or not words:
            raise ValueError(
                f"names {self.names!r}; expected single words (not 'and'), at least one, all different"
            )
        highs = self.highs()
        if len(highs) != len(self.names) or not all(0 <= self.low <= high < LARGEST for high in highs):
            raise ValueError(
                f"low {self.low}, high {self.high}; expected 0 <= low <= high < {LARGEST}, and one high or as many"
                f" as there are names"
            )

    def highs(self) -> tuple[int, ...]:
        """The greatest number of each name."""
        return self.high if isinstance(self.high, tuple) else (self.high,) * len(self.names)

    def _in_range(self, value: Mapping[str, Any]) -> bool:
        return all(
            type(value[name]) is int and self.low <= value[name] <= high
            for name, high in zip(self.names, self.highs(), strict=True)
        )

    def parse(self, text: str) -> Action:
        """Understand a finished reply."""
        return read_answer(text, self.tag, self.understand)

    def understand(self, content: str) -> Action:
        """Understand the answer alone, reasoning and tags removed."""
        words = content.replace(",", " ").rstrip(CLOSING_PUNCTUATION + " \t\r\n").split()
        if self.bare:
            return self._named(content, words, self.names)
        words = [word for word in words if word.casefold() != "and"]
        if len(words) % 2:
            return unknown_answer(self.tag, content)
        table = _field_names(self.names)
        names = [table.get(word.casefold()) for word in words[1::2]]
        return self._named(content, words[0::2], names)

    def _named(self, content: str, numbers: list[str], names: Sequence[str | None]) -> Action:
        values = [read_integer(number) for number in numbers]
        if len(values) != len(names) or None in names or None in values:
            return unknown_answer(self.tag, content)
        if len(set(names)) < len(names):
            return Malformed(reason="ambiguous", text=content)
        if len(names) < len(self.names):
            return unknown_answer(self.tag, content)
        found = dict(zip(names, values, strict=True))
        value = {name: found[name] for name in self.names}
        if not self._in_range(value):
            return Malformed(reason="out_of_range", text=content)
        return Move(value=value, text=self.write(value))

    def write(self, value: Any) -> str:
        """The canonical reply for numbers by name."""
        if not isinstance(value, Mapping) or value.keys() != set(self.names) or not self._in_range(value):
            raise ValueError(
                f"{value!r} is no move; expected a number from {self.low} to {self.high} for each of"
                f" {self.names!r}"
            )
        if self.bare:
            return wrap_answer(self.tag, " ".join(str(value[name]) for name in self.names))
        return wrap_answer(self.tag, " ".join(f"{value[name]} {name}" for name in self.names))

    def listed_values(self) -> tuple[dict[str, int], ...] | None:
        """All values, if few."""
        if prod(high - self.low + 1 for high in self.highs()) > MAX_LABELS:
            return None
        numbers = (range(self.low, high + 1) for high in self.highs())
        return tuple(dict(zip(self.names, each, strict=True)) for each in product(*numbers))

    def labels(self) -> tuple[str, ...] | None:
        """Every canonical reply, if few."""
        return all_replies(self)

    def describe(self) -> str:
        """What to reply."""
        pattern = " ".join("x" if self.bare else f"x {name}" for name in self.names)
        most: int | str
        if isinstance(self.high, tuple):
            most = " ".join(f"{high} {name}" for name, high in zip(self.names, self.high, strict=True))
        else:
            most = self.high
        return f"numbers x from {self.low} to {most}, written {wrap_answer(self.tag, pattern)}"

    def to_json(self) -> dict[str, Any]:
        """A JSON object with `kind`."""
        return {
            "kind": "fields",
            "names": list(self.names),
            "low": self.low,
            "high": list(self.high) if isinstance(self.high, tuple) else self.high,
            "tag": self.tag,
            "bare": self.bare,
        }
