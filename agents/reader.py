"""Reading contexts with caches: what is held or shared is taken over, only new tokens go through the model."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from coplay.agents.kv_cache import Block, Store, join
from coplay.agents.policy import Policy
from coplay.agents.reading import Start, plan_reading

COMPACT = 0.75
"""A batch is copied to a smaller one when no more than this share of its rows still reads."""
PADDING = 64
"""Most padding tokens in one forward pass over unequal rows on a CPU: about the cost of one more pass."""
DEVICE_PADDING = 4096
"""The same on an accelerator."""
WIDE = 4
"""Rows do not read a dummy of so many tokens: copying theirs is cheaper."""


@dataclass(frozen=True, slots=True)
class Read:
    """Contexts that have been read."""

    block: Block
    rows: list[int]
    """The row of each; equal contexts share one."""
    hidden: Tensor
    """(N, H) at the last token of each."""


class Reader:
    """Feeds tokens to policies and takes over what they have read before.

    Args:
        store: what is kept between calls.
        max_batch_tokens: most new tokens, padding included, in one forward pass (one row is never cut).
    """

    def __init__(self, store: Store, max_batch_tokens: int) -> None:
        self.store = store
        self.tokens_read = 0
        """Tokens that went through a model so far, padding not counted."""
        self._max_batch_tokens = max_batch_tokens

    def open(self, policy: Policy, dialogues: Sequence[str], contexts: Sequence[tuple[int, ...]]) -> Read:
        """Read contexts, each from the longest beginning that is held or that another one of them reads.

        A dialogue whose row begins its context goes on in place if most of its block does; else rows are copied.
        """
        places: dict[tuple[int, ...], int] = {}
        places_of = [
            places.setdefault(context, len(places)) for context in contexts
        ]  # hashes each context once
        distinct = list(places)
        names = dict(zip(reversed(places_of), reversed(dialogues), strict=True))
        starts = [Start()] * len(distinct)
        lockstep = self._in_place(policy.label, distinct, [names[place] for place in range(len(distinct))])
        if lockstep is None:
            block, starts = self._begin(policy.label, distinct)
            rows = list(range(len(distinct)))
        else:
            block, rows = lockstep
        numbers: list[int] = []
        parts: list[Tensor] = []
        for turn in range(1 + max(start.turn for start in starts)):
            chosen = [number for number, start in enumerate(starts) if start.turn == turn]
            block.copy_beginnings(
                [(n, start.wanted, start.common) for n in chosen if (start := starts[n]).wanted is not None]
            )
            news = [distinct[number][len(block.tokens[rows[number]]) :] for number in chosen]
            parts.append(self.read(policy, block, [rows[number] for number in chosen], news))
            numbers += chosen
        where = sorted(range(len(numbers)), key=numbers.__getitem__)
        hidden = _picked(torch.cat(parts), [where[place] for place in places_of])
        return Read(block, [rows[place] for place in places_of], hidden)

    def _in_place(
        self, label: str, contexts: Sequence[tuple[int, ...]], dialogues: Sequence[str]
    ) -> tuple[Block, list[int]] | None:
        """The block that the dialogues make up, or most of, and the row of each context."""
        rows: list[int] = []
        block: Block | None = None
        for context, dialogue in zip(contexts, dialogues, strict=True):
            place = self.store.find(dialogue, label, context)
            if place is None or (block is not None and block is not place[0]):
                return None
            block = place[0]
            rows.append(place[1])
        assert block is not None
        return (block, rows) if len(set(rows)) == len(rows) > COMPACT * len(block) else None

    def _begin(self, label: str, contexts: list[tuple[int, ...]]) -> tuple[Block, list[Start]]:
        """A block with a row for each context, those that start from held rows begun as these."""
        held = self.store.held(label)
        starts = plan_reading([block.tokens[row] for block, row in held], contexts)
        sources = [None if start.held is None else (*held[start.held], start.common) for start in starts]
        block = join(sources, label, columns=max(map(len, contexts)))
        for source, context in zip(sources, contexts, strict=True):
            if source is not None and _begins(source[0].tokens[source[1]], context):
                self.store.retire(source[:2])
        return block, starts

    def read(
        self, policy: Policy, block: Block, rows: Sequence[int], news: Sequence[Sequence[int]]
    ) -> Tensor:
        """Feed new tokens to some rows of a block; returns the hidden state (N, H) at the last one of each."""
        order: list[int] = []
        parts: list[Tensor] = []
        for batch in self._batches(news, PADDING if policy.device.type == "cpu" else DEVICE_PADDING):
            batch.sort(key=rows.__getitem__)
            parts.append(self._pass(policy, block, [rows[n] for n in batch], [news[n] for n in batch]))
            order += batch
        places = sorted(range(len(order)), key=order.__getitem__)
        return _picked(parts[0] if len(parts) == 1 else torch.cat(parts), places)

    def _batches(self, news: Sequence[Sequence[int]], padding: int) -> list[list[int]]:
        """Rows that go through the model together: of nearly equal length, and not too many tokens."""
        batches: list[list[int]] = []
        width = padded = 0
        for number in sorted(range(len(news)), key=lambda number: -len(news[number])):
            padded += width - len(news[number])
            if not batches or padded > padding or (len(batches[-1]) + 1) * width > self._max_batch_tokens:
                batches.append([])
                width, padded = len(news[number]), 0
            batches[-1].append(number)
        return batches

    def _pass(self, policy: Policy, block: Block, rows: list[int], news: list[Sequence[int]]) -> Tensor:
        """One forward pass over ascending rows; (N, H) at the last new token of each.

        Rows between them, if few, read a dummy behind their last token, which their next real token overwrites;
        otherwise attention sees copies of the rows.
        """
        device = policy.device
        width = max(map(len, news))
        first, stop = rows[0], rows[-1] + 1
        span = stop - first
        whole = span == len(rows) or (
            len(rows) > COMPACT * span and span * width <= self._max_batch_tokens and width < WIDE
        )
        seated = range(first, stop) if whole else rows
        feeds = dict(zip(rows, news, strict=True))
        starts = [len(block.tokens[row]) for row in seated]
        block.reserve(max(starts) + width)
        padded = [[*(new := feeds.get(row, ())), *[0] * (width - len(new))] for row in seated]
        ids = torch.tensor(padded, device=device)
        target = slice(first, stop) if whole else torch.tensor(rows, device=device)
        counted = torch.arange(width, device=device)
        if whole and len(set(starts)) == 1 and all(len(feeds.get(row, (0,))) == width for row in seated):
            positions = (starts[0] + counted)[None]
            block.aim(target, None, starts[0], starts[0] + width)
        else:
            positions = torch.tensor(starts, device=device)[:, None] + counted
            block.aim(target, positions, 0, max(starts) + width)
        mask = (torch.arange(max(starts) + width, device=device) <= positions[:, :, None])[:, None]
        common = block.common_within(first, stop) if whole else ()
        hidden = policy.extend(ids, positions, mask, block, common=common)
        for row, new in feeds.items():
            block.tokens[row].extend(new)
            self.tokens_read += len(new)
        if len(rows) == len(seated) and all(len(new) == width for new in news):
            return hidden[:, -1]
        seats = [place for place, row in enumerate(seated) if row in feeds]
        last = torch.tensor([len(new) - 1 for new in news], device=device)
        return hidden[torch.tensor(seats, device=device), last]


def _begins(tokens: list[int], context: tuple[int, ...]) -> bool:
    return tuple(tokens) == context[: len(tokens)]


def _picked(rows: Tensor, places: list[int]) -> Tensor:
    """The rows at these places, without a copy where that is all of them in order."""
    if places == list(range(len(rows))):
        return rows
    return rows.index_select(0, torch.tensor(places, device=rows.device))
