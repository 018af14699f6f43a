"""What to read of several contexts so that no token is read twice. No torch here."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

WORTHWHILE = 8
"""Fewer common first tokens than this are read again: a batch in step costs less than it saves."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where the reading of one context starts."""

    turn: int = 0
    """Contexts of one turn are read together, after those of the turns before."""
    held: int | None = None
    """Number of the held context whose first tokens are taken over."""
    wanted: int | None = None
    """Or number of the wanted one, which an earlier turn reads."""
    common: int = 0
    """How many first tokens are taken over; at least one is left to read."""


def plan_reading(held: Sequence[Sequence[int]], wanted: Sequence[Sequence[int]]) -> list[Start]:
    """Start each wanted context from the longest beginning that is held or that an earlier one reads.

    In the order of their tokens, contexts that share a beginning stand together: what the one before and the next
    held one do not share with a context, no other does. Few turns: a context starts from the first that will do.

    Args:
        held: contexts that have been read.
        wanted: distinct contexts, none of them empty.
    """
    contexts = [tuple(tokens) for tokens in (*held, *wanted)]
    order = sorted(range(len(contexts)), key=lambda number: (contexts[number], number))
    shared = [0] + [common_length(contexts[before], contexts[after]) for before, after in pairwise(order)]
    following = _following_held(order, shared, len(held))
    starts: list[Start] = [Start(held=number, common=len(contexts[number])) for number in range(len(held))]
    starts += [Start()] * len(wanted)
    for place, number in enumerate(order):
        if number < len(held):
            continue
        common, source = shared[place], order[place - 1] if place else -1
        while (
            source >= len(held)
            and starts[source].common >= common
            and _source(starts[source], len(held)) >= 0
        ):
            source = _source(starts[source], len(held))
        after, later = following[place]
        if later > common or (later == common and source >= len(held)):
            common, source = later, after
        common = min(common, len(contexts[number]) - 1)
        if common < WORTHWHILE or source < 0:
            continue
        if source < len(held):
            starts[number] = Start(held=source, common=common)
        else:
            turn = starts[source].turn + 1
            starts[number] = Start(turn=turn, wanted=source - len(held), common=common)
    return starts[len(held) :]


def _source(start: Start, num_held: int) -> int:
    """The number, among held and wanted contexts, of what a start takes over; -1 if nothing."""
    if start.held is not None:
        return start.held
    return -1 if start.wanted is None else num_held + start.wanted


def _following_held(order: Sequence[int], shared: Sequence[int], num_held: int) -> list[tuple[int, int]]:
    """For each place of an order the next held context behind it, and how many first tokens both share."""
    found: list[tuple[int, int]] = []
    number, common = -1, 0
    for place in reversed(range(len(order))):
        found.append((number, common))
        if order[place] < num_held:
            number, common = order[place], shared[place]
        else:
            common = min(common, shared[place])
    return found[::-1]


def common_length(first: Sequence[int], second: Sequence[int]) -> int:
    """Number of first tokens that two contexts share."""
    low, high = 0, min(len(first), len(second))
    if first[:high] == second[:high]:
        return high
    while high - low > 1:  # the first `low` agree, the first `high` do not
        middle = (low + high) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle
    return low
