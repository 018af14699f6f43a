"""Luck as a function of names: a draw depends on what it is for, never on what was drawn before."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeVar

Option = TypeVar("Option")

SEED_BITS = 63


def derive_seed(*parts: int | str) -> int:
    """Hash names and numbers to a seed in [0, 2^63): equal parts give equal seeds in every process.

    Each part enters with its type and length: `("ab", "c")`, `("a", "bc")` and `(1,)`, `("1",)` all differ.
    """
    text = "".join(
        [
            f"s{len(part)}:{part}" if isinstance(part, str) else f"i{len(number := str(part))}:{number}"
            for part in parts
        ]
    )
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> (64 - SEED_BITS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Where a group stands among all groups of a run that play the same game."""

    run_seed: int
    number: int
    """How many of them come before it."""


@dataclass(frozen=True, slots=True)
class Chance:
    """The luck of one step: draw = f(group seed, purpose, step, index, branch).

    Games that share `group_seed` see the same luck (common random numbers). `branch` stays empty unless a
    branch asks for fresh luck. Asking twice for the same (purpose, index) gives the same answer: name every
    draw.
    """

    group_seed: int
    step: int = 0
    branch: str = ""
    order: Order | None = None
    """Known of games whose `GameSpec.in_order` asks for it, in a run."""

    def at(self, step: int) -> "Chance":
        """The luck of another step of the same game."""
        return replace(self, step=step)

    def integer(self, purpose: str, size: int, *, index: int = 0) -> int:
        """Draw a uniform integer in [0, size).

        Raises:
            ValueError: if `size` is not positive.
        """
        if size <= 0:
            raise ValueError(
                f"a draw for {purpose!r} needs at least one option, got {size}; expected size >= 1"
            )
        return derive_seed(self.group_seed, purpose, self.step, index, self.branch) % size

    def uniform(self, purpose: str, *, index: int = 0) -> float:
        """Draw a uniform float in [0, 1)."""
        return derive_seed(self.group_seed, purpose, self.step, index, self.branch) / (1 << SEED_BITS)

    def choice(self, purpose: str, options: Sequence[Option], *, index: int = 0) -> Option:
        """Draw one of `options`, each equally likely."""
        return options[self.integer(purpose, len(options), index=index)]

    def shuffled(self, purpose: str, options: Sequence[Option], *, index: int = 0) -> tuple[Option, ...]:
        """Return `options` in a uniformly drawn order (Fisher-Yates, one named draw per place)."""
        order = list(options)
        for place in range(len(order) - 1, 0, -1):
            other = self.integer(f"{purpose}/{index}", place + 1, index=place)
            order[place], order[other] = order[other], order[place]
        return tuple(order)

    def dealt(self, purpose: str, size: int, *, index: int = 0) -> int:
        """Draw an integer in [0, size) as from a pack of cards: no group of a run meets one twice before all are dealt.

        The n-th group has place n mod size of the pack, which is shuffled anew for every epoch ⌊n / size⌋: f(run, n,
        purpose, step, index). Where no order is known, or in a branch with fresh luck, a plain draw.

        Raises:
            ValueError: if `size` is not positive.
        """
        if self.order is None or self.branch or size <= 0:
            return self.integer(purpose, size, index=index)
        epoch, place = divmod(self.order.number, size)
        return _pack(derive_seed(self.order.run_seed, "pack", purpose, self.step, index, epoch), size)[place]


@lru_cache(maxsize=8)
def _pack(seed: int, size: int) -> tuple[int, ...]:
    return Chance(seed).shuffled("pack", range(size))
