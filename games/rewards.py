"""How right an answer is: pure functions of a task and a reply, by name, and those of other packages.

Texts are compared normalised, as is usual for questions with short answers (Rajpurkar et al. 2016): in lower case,
without punctuation and English articles, white space as one space; but the sign and the point of a number stay, and a
text of nothing but articles stays itself, since it may be the label `A`.
"""

import inspect
import math
import re
import string
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Protocol

from coplay.games.names import nearest
from coplay.games.plugins import GAME_ERRORS, announced

GROUP = "coplay.rewards"

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = re.compile(rf"(?!(?<=\d)\.(?=\d))(?!(?<!\w)-(?=\d))[{re.escape(string.punctuation)}]")
_NUMBER = re.compile(r"(?<![\w.,])[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:\s?/\s?\d+)?(?!\w)")
_DIGITS = 400
"""A number of more characters is none."""


class Answerable(Protocol):
    """What a score may look at of a task."""

    @property
    def prompt(self) -> str:
        """What was asked."""
        ...

    @property
    def answers(self) -> tuple[str, ...]:
        """Right answers, each as good as the others."""
        ...

    @property
    def source(self) -> str:
        """Where the task is from."""
        ...


Reward = Callable[[str, Answerable], float]
"""From the answer of a reply (without private reasoning and tags) and the task to a score."""


class RewardError(ValueError):
    """A score is unknown, cannot be loaded, or is no number in its range."""


def normalised(text: str) -> str:
    """Lower case, without punctuation and articles, words separated by one space."""
    bare = _PUNCTUATION.sub("", text.lower())
    return " ".join(_ARTICLES.sub(" ", bare).split() or bare.split())


def exact_match(answer: str, task: Answerable) -> float:
    """1 if the answer is a right one, normalised."""
    said = normalised(answer)
    return float(any(said == normalised(right) for right in task.answers))


def contains(answer: str, task: Answerable) -> float:
    """1 if a right answer's words stand in the answer, one after the other, normalised."""
    said = f" {normalised(answer)} "
    rights = [words for right in task.answers if (words := normalised(right))]
    return float(any(f" {right} " in said for right in rights))


def read_number(text: str) -> Fraction | None:
    """The last number in a text: `1,234.5`, `-3`, `2/3`; None if there is none."""
    found = _NUMBER.findall(text)
    if not found or len(found[-1]) > _DIGITS:
        return None
    upper, _, lower = found[-1].replace(",", "").replace(" ", "").partition("/")
    return None if lower and not int(lower) else Fraction(upper) / (int(lower) if lower else 1)


def number(answer: str, task: Answerable) -> float:
    """1 if the last number of the answer equals that of a right one."""
    said = read_number(answer)
    return float(said is not None and any(said == read_number(right) for right in task.answers))


def choice(answer: str, task: Answerable) -> float:
    """1 if the answer is a right label, in any case, alone or in brackets, with or without a full stop: `(b)`, `B.`."""
    said = _label(answer)
    return float(any(said == _label(right) for right in task.answers))


def _label(text: str) -> str:
    return text.strip().rstrip(".:)").lstrip("(").strip().casefold()


def matching(pattern: str) -> Reward:
    """1 if what `pattern` finds last in the answer (its first group, if it has one) is right, normalised.

    Raises:
        RewardError: if it is no regular expression.
    """
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise RewardError(f"pattern {pattern!r} is no regular expression: {error}") from None

    def regex(answer: str, task: Answerable) -> float:
        last = None
        for match in compiled.finditer(answer):
            last = match
        return 0.0 if last is None else exact_match(last[1 if compiled.groups else 0] or "", task)

    return regex


REGEX = "regex"
REWARDS: Mapping[str, Reward] = {
    "exact_match": exact_match,
    "contains": contains,
    "number": number,
    "choice": choice,
}
"""Those without a pattern, by name."""


def find_reward(name: str, pattern: str | None = None) -> Reward:
    """The score called `name`: one of ours, or one that an installed package announces under `coplay.rewards`.

    No other function: settings are data, and what they name would be imported and run (law 10).

    Raises:
        RewardError: if there is none, it cannot be loaded, or a pattern is missing or needless.
    """
    if (name == REGEX) != (pattern is not None):
        wanted = "a pattern" if name == REGEX else "none, or score = 'regex'"
        raise RewardError(f"score {name!r} with pattern {pattern!r}; expected {wanted}")
    if pattern is not None:
        return matching(pattern)
    if name in REWARDS:
        return REWARDS[name]
    others = announced(GROUP)
    if name not in others:
        options = (*REWARDS, REGEX, *sorted(others))
        raise RewardError(
            f"score {name!r} is unknown; expected one of {options!r}{nearest(name, options)}; a function of your own"
            f" is announced by a package under the entry points {GROUP!r}"
        )
    try:
        found: object = others[name].load()
    except GAME_ERRORS as error:
        raise RewardError(f"score {name!r} cannot be loaded: {type(error).__name__}: {error}") from None
    if not callable(found) or not _takes_two(found):
        raise RewardError(f"score {name!r} is {found!r}; expected a function of an answer and a task")
    return found


def _takes_two(function: Callable[..., object]) -> bool:
    """Whether a function can be called with an answer and a task; True where it does not say what it takes."""
    try:
        signature = inspect.signature(function)
    except ValueError:
        return True
    try:
        signature.bind("", None)
    except TypeError:
        return False
    return True


def checked(value: object, *, name: str, least: float, most: float) -> float:
    """A score as a finite float in its range.

    Raises:
        RewardError: if it is none.
    """
    if not isinstance(value, int | float) or not math.isfinite(value) or not least <= value <= most:
        raise RewardError(
            f"score {name!r} gave {value!r}; expected a number from {least} to {most} (score_range)"
        )
    return float(value)
