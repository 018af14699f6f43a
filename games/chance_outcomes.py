"""Every outcome of the luck of a step, found by playing it again with other answers to the same questions."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod
from typing import TypeVar

from coplay.games.chance import Chance

MAX_DRAWS = 100
"""In one step; more are taken for draws without an end, as of values that are drawn until they fit."""

MAX_OPTIONS = 1_000_000
"""Of one draw; more are taken for seeds of somebody else's luck."""

Result = TypeVar("Result")


class EnumerationError(ValueError):
    """A game, or what is asked of its tree, cannot be enumerated."""


@dataclass(frozen=True, slots=True)
class BranchingChance(Chance):
    """The luck of one outcome: `answers` to the first draws, 0 to all further ones, which it notes down."""

    answers: tuple[int, ...] = ()
    drawn: dict[tuple[str, int, int], tuple[int, int]] = field(default_factory=dict)
    """(purpose, step, index) -> (number of options, answer), in the order of the questions."""

    def integer(self, purpose: str, size: int, *, index: int = 0) -> int:
        """Answer as told, and the same whenever the same is asked."""
        if size <= 0:
            raise ValueError(
                f"a draw for {purpose!r} needs at least one option, got {size}; expected size >= 1"
            )
        if size > MAX_OPTIONS:
            raise EnumerationError(
                f"{purpose!r} is drawn from {size} options; expected at most {MAX_OPTIONS}: take a game or parameters"
                " with fewer outcomes"
            )
        name = (purpose, self.step, index)
        if name not in self.drawn:
            place = len(self.drawn)
            if place >= MAX_DRAWS:
                raise EnumerationError(
                    f"one step draws more than {MAX_DRAWS} times, the last for {purpose!r}; expected fewer: take"
                    " parameters under which nothing is drawn again until it fits"
                )
            self.drawn[name] = (size, self.answers[place] if place < len(self.answers) else 0)
        known, answer = self.drawn[name]
        if known != size:
            raise EnumerationError(
                f"{purpose!r} (index {index}) is drawn from {known} and from {size} options in one step; expected"
                " one name for one draw"
            )
        return answer

    def uniform(self, purpose: str, *, index: int = 0) -> float:
        """Refuse: a fraction has no finite list of outcomes."""
        raise EnumerationError(
            f"the draw for {purpose!r} is a fraction between 0 and 1; expected draws of whole numbers only: take"
            " parameters of the game under which it is not drawn"
        )

    def following(self) -> tuple[int, ...] | None:
        """The answers of the next outcome, the last question turning fastest; None after the last."""
        digits = list(self.drawn.values())
        while digits and digits[-1][1] == digits[-1][0] - 1:
            digits.pop()
        if not digits:
            return None
        return (*(answer for _, answer in digits[:-1]), digits[-1][1] + 1)


def chance_outcomes(play: Callable[[Chance], Result], step: int) -> Iterator[tuple[Fraction, Result]]:
    """Every outcome of the luck that `play` asks for, with its probability; they sum to 1."""
    answers: tuple[int, ...] | None = ()
    while answers is not None:
        chance = BranchingChance(0, step, answers=answers)
        result = play(chance)
        yield Fraction(1, prod(size for size, _ in chance.drawn.values())), result
        answers = chance.following()
