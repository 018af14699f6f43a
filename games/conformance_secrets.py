"""Rules on who may know what: declared values, private reasoning, and words that only the game may say.

A private value v of one player that stands in another's text may be there by coincidence: a number of coins, a round.
So plays under other luck are the control. In one kind of text, at one step and over all steps, let h be the share of
the plays with v as the value in which v stands there, and h' that of the others: a leak is an h - h' of at least `LEAK`
on the mean over values, or of `LEAK_OF_ONE` for one value; and so is a v that always stands there more often where it
is the value. Plays in which the reader holds the same value himself are left out. Numbers count as digits and as words.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from coplay.games.base import Observation
from coplay.games.conformance_plays import FORGED, THOUGHT, Play, Visit
from coplay.games.conformance_rules import Exhibit, Fault
from coplay.games.replies import number_text

LEAK, LEAK_OF_ONE = 0.5, 0.9
MIN_SAMPLES, MIN_OF_ONE = 8, 6
MAX_STEP = 24
"""Later steps of a play are not compared."""
ONES = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
TENS = ["_", "_", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]

Spelling = tuple[str, ...]
"""Words in a row."""

_WORD = re.compile(r"(?<![\w.)-])-\d+(?:\.\d+)?|\d+(?:\.\d+)?|[^\W\d_]+")
"""A minus belongs to its number, a dash between two things to neither."""


def words(text: str) -> Spelling:
    """Numbers and words of a text, in lower case, without punctuation."""
    return tuple(_WORD.findall(text.casefold().replace("\N{MINUS SIGN}", "-")))


def number_words(number: int) -> str:
    """`twenty one` for 21; numbers from 0 to 999,999."""
    if number < 20:
        return ONES[number]
    if number < 100:
        return TENS[number // 10] + (f" {ONES[number % 10]}" if number % 10 else "")
    size, name = (100, "hundred") if number < 1000 else (1000, "thousand")
    rest = f" {number_words(number % size)}" if number % size else ""
    return f"{number_words(number // size)} {name}{rest}"


def spellings(value: Any) -> tuple[Spelling, ...]:
    """How a number or a text may stand in a text; nothing for what cannot be told by its words."""
    if isinstance(value, str):
        return (words(value),) if words(value) else ()
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ()
    digits = words(number_text(value))
    if not float(value).is_integer() or abs(value) >= 1_000_000:
        return (digits,)
    sign = "minus " if value < 0 else ""
    return digits, words(sign + number_words(abs(int(value))))


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every number and text in a JSON value, with its path."""
    items = (
        value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else None
    )
    if items is None:
        yield name, value
        return
    for key, item in items:
        yield from leaves(item, f"{name}.{key}" if name else str(key))


@dataclass(frozen=True, slots=True)
class Sample:
    """One private value, and one text that another player was shown."""

    value: tuple[Spelling, ...]
    told: Spelling
    vocabulary: frozenset[str]
    play: Play
    step: int

    def count(self, value: tuple[Spelling, ...]) -> int:
        """How often a value stands in the text."""
        total = 0
        for spelling in value:
            if spelling[0] in self.vocabulary:
                places = range(len(self.told) - len(spelling) + 1)
                total += sum(self.told[place : place + len(spelling)] == spelling for place in places)
        return total


def _parts(seen: Observation) -> dict[str, str]:
    return {
        "system": seen.system,
        "text": seen.text,
        "facts": json.dumps(seen.facts, default=repr, ensure_ascii=False),
        "grammar": json.dumps(seen.grammar.to_json(), default=repr, ensure_ascii=False),
    }


Place = tuple[str, str, str, str, int]
"""Owner, name of the value, reader, part of the observation, step (0: any)."""


def _samples(play: Play, visit: Visit) -> Iterator[tuple[Place, Sample]]:
    for reader, seen in visit.observations.items():
        own = {spelling for _, value in leaves(visit.private[reader]) for spelling in spellings(value)}
        told = {part: words(text) for part, text in _parts(seen).items()}
        held = {part: frozenset(text) for part, text in told.items()}
        for owner, values in visit.private.items():
            for name, value in leaves(values) if owner != reader else ():
                spelled = spellings(value)
                if spelled and not own.intersection(spelled):
                    for part, text in told.items():
                        sample = Sample(spelled, text, held[part], play, visit.step)
                        for step in (0, visit.step):
                            yield (owner, name, reader, part, step), sample


def private_stays_private(exhibit: Exhibit) -> Iterator[Fault]:
    """What `private` declares for one player is never told another, in text, system, facts or grammar."""
    placed: dict[Place, list[Sample]] = defaultdict(list)
    for play, visit in exhibit.visits():
        if visit.step <= MAX_STEP and play.style == "random":
            for place, sample in _samples(play, visit):
                placed[place].append(sample)
    for (owner, name, reader, part, _), samples in placed.items():
        witness = _leak(samples)
        if witness is not None:
            spelled = " or ".join(repr(" ".join(spelling)) for spelling in witness.value)
            what = f"{part} for {reader} tells {owner}'s private {name!r}: it holds {spelled}"
            yield Fault(what=what, play=witness.play, steps=witness.step - 1)


def _leak(samples: list[Sample]) -> Sample | None:
    """A sample whose value stands there because it is the value."""
    gaps: list[float] = []
    witness: Sample | None = None
    certain, apart = False, True
    for value in sorted({sample.value for sample in samples}):
        same = [sample.count(value) for sample in samples if sample.value == value]
        others = [sample.count(value) for sample in samples if sample.value != value]
        if not others:
            continue
        gap = sum(map(bool, same)) / len(same) - sum(map(bool, others)) / len(others)
        gaps += [gap] * len(same)
        apart = apart and min(same) > max(others)
        certain = certain or (gap >= LEAK_OF_ONE and min(len(same), len(others)) >= MIN_OF_ONE)
        if gap >= LEAK or min(same) > max(others):
            told = (sample for sample in samples if sample.value == value and sample.count(value))
            witness = witness or next(told)
    enough = len(gaps) >= MIN_SAMPLES and (apart or sum(gaps) / len(gaps) >= LEAK)
    return witness if enough or certain else None


def reasoning_stays_private(exhibit: Exhibit) -> Iterator[Fault]:
    """What a player thought in `<think>...</think>` is shown to nobody else."""
    for play, visit in exhibit.visits():
        for player, seen in visit.observations.items():
            if any(THOUGHT in text for text in _parts(seen).values()):
                what = (
                    f"{player} is shown private reasoning; expected replies.strip_reasoning of what was said"
                )
                yield Fault(what=what, play=play, steps=visit.step - 1)


def replies_are_quoted(exhibit: Exhibit) -> Iterator[Fault]:
    """What a player wrote cannot pass for the game's own words: it stays on one line, in quotes."""
    for play, visit in exhibit.visits():
        for player, seen in visit.observations.items():
            if f"\n{FORGED}" in f"{seen.system}\n{seen.text}":
                what = f"{player} is shown a line that another wrote; expected replies.quote_text around it"
                yield Fault(what=what, play=play, steps=visit.step - 1)
