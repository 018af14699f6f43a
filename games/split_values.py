"""How the values of the split game are drawn: by lot, again until they meet the conditions."""

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from math import factorial
from typing import Literal, cast

from coplay.games.chance import Chance

MAX_EXPECTED_TRIES = 5000
"""Conditions that one draw in more than this many meets are refused."""


ValueGenerator = Literal["ten_one_exclusive", "five_one_exclusive", "ten_one_ties", "one_to_twenty"]
_OPTIONS: dict[ValueGenerator, tuple[int, ...]] = {
    "ten_one_exclusive": (1, 10),
    "five_one_exclusive": (1, 5),
    "ten_one_ties": (1, 10),
    "one_to_twenty": tuple(range(1, 21)),
}
_EXCLUSIVE = ("ten_one_exclusive", "five_one_exclusive")


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueRule:
    """What is drawn, and what is accepted."""

    generator: ValueGenerator
    num_players: int
    num_items: int
    equal_totals: bool
    at_least_one_conflict: bool

    @property
    def largest(self) -> int:
        """The largest value of a unit."""
        return max(self.options)

    @property
    def options(self) -> tuple[int, ...]:
        """The values a unit may have."""
        return _OPTIONS[self.generator]


@lru_cache(maxsize=256)
def acceptance(rule: ValueRule) -> float:
    """The exact share of draws that meet the conditions.

    Independent values: Σ_T p(T)^n over the totals T that all n players may share, less the draws in which all
    have the same vector. Exclusive values: each item falls to one of n players; equal totals: items/n each.
    """
    players, items = rule.num_players, rule.num_items
    if rule.generator in _EXCLUSIVE:
        if not rule.equal_totals:
            return 1.0
        each, rest = divmod(items, players)
        arrangements = factorial(items) // factorial(each) ** players
        return 0.0 if rest else arrangements / cast(int, players**items)
    ways = Counter({0: 1})
    for _ in range(items):
        longer: Counter[int] = Counter()
        for total, count in ways.items():
            for value in rule.options:
                longer[total + value] += count
        ways = longer
    vectors = len(rule.options) ** items
    accepted = sum(count**players for count in ways.values()) if rule.equal_totals else vectors**players
    same = vectors if rule.at_least_one_conflict else 0
    return float((accepted - same) / vectors**players)


def draw_values(rule: ValueRule, chance: Chance) -> tuple[tuple[int, ...], ...]:
    """Draw each player's value of each item, with a new index for each try.

    Raises:
        RuntimeError: if no try meets the conditions, which `acceptance` has shown to be next to impossible.
    """
    for index in range(100 * MAX_EXPECTED_TRIES):
        values = _try(rule, chance, index)
        if rule.equal_totals and len({sum(own) for own in values}) > 1:
            continue
        if rule.at_least_one_conflict and len(set(values)) == 1:
            continue
        return values
    raise RuntimeError(f"no values meet the conditions of {rule!r} after {100 * MAX_EXPECTED_TRIES} tries")


def _try(rule: ValueRule, chance: Chance, index: int) -> tuple[tuple[int, ...], ...]:
    players, items = range(rule.num_players), range(rule.num_items)
    if rule.generator in _EXCLUSIVE:
        owners = [chance.integer(f"owner/{item}", rule.num_players, index=index) for item in items]
        low, high = rule.options
        return tuple(tuple(high if owner == player else low for owner in owners) for player in players)
    drawn = (
        chance.integer(f"values/{player}", len(rule.options) ** rule.num_items, index=index)
        for player in players
    )
    return tuple(_digits(number, rule.options, rule.num_items) for number in drawn)


def _digits(number: int, options: tuple[int, ...], length: int) -> tuple[int, ...]:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, len(options))
        digits.append(options[digit])
    return tuple(digits)
