"""Several games, or one under several parameters, by weight: which of them a group plays is a function of names."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from typing import Any

from coplay.games.base import Game, Observation
from coplay.games.chance import Chance, derive_seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One game under fixed parameters, as part of a mixture."""

    name: str
    """Variants of one name are one game under several parameters; results are told by it."""
    label: str
    """Unique in its mixture; episodes are stored under it."""
    game: Game[Any]
    weight: float = 1.0
    """Share of the groups that play it, times any constant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """Variants whose players have the same names.

    Raises:
        ValueError: if there is none, two share a label, a weight is not positive, or players differ.
    """

    variants: tuple[Variant, ...]

    def __post_init__(self) -> None:
        labels = [variant.label for variant in self.variants]
        if not labels or len(set(labels)) != len(labels):
            raise ValueError(f"a mixture of {labels!r}; expected at least one variant, each of its own label")
        first = self.variants[0]
        for variant in self.variants:
            if not variant.weight > 0:
                raise ValueError(
                    f"variant {variant.label!r} has weight {variant.weight!r}; expected one above 0"
                )
            if set(variant.game.spec.players) != set(first.game.spec.players):
                raise ValueError(
                    f"variant {variant.label!r} seats {list(variant.game.spec.players)}, but {first.label!r} seats"
                    f" {list(first.game.spec.players)}; expected the same names, in any order (parameter 'players')"
                )

    @classmethod
    def of(cls, game: Game[Any]) -> "Mixture":
        """Nothing but one game."""
        return cls(variants=(Variant(name=game.name, label=game.name, game=game),))

    @property
    def names(self) -> tuple[str, ...]:
        """Each variant's name once, in their order."""
        return tuple(dict.fromkeys([variant.name for variant in self.variants]))

    @property
    def has_chance(self) -> Mapping[str, bool]:
        """Whether its game has luck, by label."""
        return {variant.label: variant.game.spec.has_chance for variant in self.variants}

    def fitted(self, num_tokens: Callable[[Observation], int]) -> "Mixture":
        """The same with every game fitted to a tokenizer."""
        fitted = [replace(variant, game=variant.game.fitted(num_tokens)) for variant in self.variants]
        return Mixture(variants=tuple(fitted))

    def part(self, name: str) -> "Mixture":
        """The variants of one name alone."""
        return Mixture(variants=tuple([variant for variant in self.variants if variant.name == name]))

    def shares(self) -> dict[str, float]:
        """The expected share of groups, by label; sums to 1."""
        total = sum([variant.weight for variant in self.variants])
        return {variant.label: variant.weight / total for variant in self.variants}

    def assign(self, *, run_seed: int, iteration: int, num_groups: int) -> tuple[Variant, ...]:
        """The variant of each group, f(run, iteration, group, number of groups): systematic sampling.

        With shares p_v laid end to end on [0, 1), group g of G plays the one at (g + u) / G, u uniform in [0, 1): a
        variant gets floor(G p_v) or ceil(G p_v) groups, G p_v in expectation, and so do all variants of a name
        together. The variants of a name are laid in an order that is drawn anew each iteration, so that any may meet
        any other. Source: Madow and Madow, On the theory of systematic sampling (1944).
        """
        chance = Chance(derive_seed(run_seed, "mixture", iteration))
        laid: list[Variant] = []
        for name in self.names:
            laid += chance.shuffled(f"order/{name}", self.part(name).variants)
        ends = list(accumulate([variant.weight for variant in laid]))
        offset = chance.uniform("offset")
        points = [(group + offset) / num_groups * ends[-1] for group in range(num_groups)]
        return tuple([laid[min(bisect_right(ends, point), len(laid) - 1)] for point in points])

    def played_before(self, *, run_seed: int, iteration: int, num_groups: int) -> Mapping[str, int]:
        """How many groups of all earlier iterations played each variant, by label.

        One assignment for each of them, remembered while the process lives.
        """
        counts: Counter[str] = Counter()
        for earlier in range(iteration):
            counts.update(_assigned(self, run_seed, earlier, num_groups))
        return counts


@lru_cache(maxsize=1 << 16)
def _assigned(mixture: Mixture, run_seed: int, iteration: int, num_groups: int) -> Mapping[str, int]:
    found = mixture.assign(run_seed=run_seed, iteration=iteration, num_groups=num_groups)
    return Counter([variant.label for variant in found])
