"""What there is to divide in deal or no deal, and what it is worth to whom: all instances, or those of a file."""

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, product
from pathlib import Path

POOL_SIZES = range(5, 8)
TOTAL = 10
"""What the whole pool is worth to each player."""
NUM_ITEMS = 3

_INPUT = re.compile(r"<input>([^<]*)</input>")
_PARTNER = re.compile(r"<partner_input>([^<]*)</partner_input>")


@dataclass(frozen=True, slots=True)
class DealInstance:
    """A pool, and both players' values of a unit of each item."""

    counts: tuple[int, ...]
    values: tuple[tuple[int, ...], tuple[int, ...]]

    def swapped(self) -> "DealInstance":
        """The same with the values of the other player."""
        return DealInstance(self.counts, (self.values[1], self.values[0]))

    def worth(self, seat: int) -> int:
        """What the whole pool is worth to a player."""
        return sum(count * value for count, value in zip(self.counts, self.values[seat], strict=True))


@lru_cache(maxsize=1)
def all_instances() -> tuple[DealInstance, ...]:
    """The 5,793 instances over 31 pools that meet the published constraints (Lewis et al. 2017).

    Three items, at least one unit of each, 5 to 7 in all; the pool is worth 10 to both; every item is worth
    something to someone, and some item to both.
    """
    found = []
    for counts in product(range(1, max(POOL_SIZES) + 1), repeat=NUM_ITEMS):
        if sum(counts) not in POOL_SIZES:
            continue
        valuations = [
            values
            for values in product(range(TOTAL + 1), repeat=NUM_ITEMS)
            if sum(count * value for count, value in zip(counts, values, strict=True)) == TOTAL
        ]
        for pair in product(valuations, repeat=2):
            columns = list(zip(*pair, strict=True))
            if all(any(column) for column in columns) and any(all(column) for column in columns):
                found.append(DealInstance(counts, (pair[0], pair[1])))
    return tuple(found)


@lru_cache(maxsize=16)
def largest_worth(instances: tuple[DealInstance, ...]) -> int:
    """The most that a whole pool is worth to a player in any of the instances."""
    return max(instance.worth(seat) for instance in instances for seat in range(2))


def load_instances(path: str | Path) -> tuple[DealInstance, ...]:
    """Read the instances of a file of the published data set (Lewis et al. 2017), each once.

    Lines of dialogues are read by their `<input>` and `<partner_input>`: for each item a count and a value.
    Lines of self-play contexts are the same numbers without tags, one line for each of the two players.

    Raises:
        ValueError: if a line is of neither kind or two contexts do not fit; the message names file and line.
        OSError: if the file cannot be read.
    """
    lines = [line.strip() for line in Path(path).read_text(encoding="utf-8").splitlines()]
    numbered = [(f"'{path}' line {number}", line) for number, line in enumerate(lines, start=1) if line]
    if not numbered:
        raise ValueError(f"'{path}' holds no line; expected dialogues or self-play contexts")
    if "<input>" in numbered[0][1]:
        found = [_dialogue(place, line) for place, line in numbered]
    else:
        contexts = [(place, *_context(place, line)) for place, line in numbered]
        if len(contexts) % 2:
            raise ValueError(
                f"'{path}' has {len(contexts)} contexts; expected an even number, two for each game"
            )
        found = [
            _instance(place, (counts, values), others[1:])
            for at, ((place, counts, values), others) in enumerate(pairwise(contexts))
            if at % 2 == 0
        ]
    return tuple(dict.fromkeys(found))


def _dialogue(place: str, line: str) -> DealInstance:
    own, partner = _INPUT.search(line), _PARTNER.search(line)
    if own is None or partner is None:
        raise ValueError(
            f"{place} has no <input>…</input> and <partner_input>…</partner_input>; expected both"
        )
    return _instance(place, _context(place, own[1]), _context(place, partner[1]))


Context = tuple[tuple[int, ...], tuple[int, ...]]


def _context(place: str, text: str) -> Context:
    words = text.split()
    if len(words) != 2 * NUM_ITEMS or not all(re.fullmatch(r"[0-9]{1,6}", word) for word in words):
        raise ValueError(f"{place}: {text!r}; expected a count and a value for each of {NUM_ITEMS} items")
    numbers = tuple(map(int, words))
    return numbers[0::2], numbers[1::2]


def _instance(place: str, own: Context, partner: Context) -> DealInstance:
    if own[0] != partner[0] or not any(own[0]):
        raise ValueError(f"{place}: counts {own[0]} and {partner[0]}; expected the same for both, not all 0")
    return DealInstance(own[0], (own[1], partner[1]))
