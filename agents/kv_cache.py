"""Keys and values of contexts between turns: rows of tokens in blocks, and a store that finds and forgets them.

The token at place k of a context lies in column k of its row. So causality alone hides what is not there yet:
padding and dead tokens stand behind every real one, and rows of unequal length share a batch without holes.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from coplay.agents.common_attention import Common
from coplay.agents.reading import common_length

Place = tuple["Block", int]
"""A row of a block."""


class Block:
    """A batch of rows, one context each, read by one version of one policy."""

    def __init__(self, label: str, num_rows: int) -> None:
        self.label = label
        self.tokens: list[list[int]] = [[] for _ in range(num_rows)]
        """What each row has read; columns behind are finite garbage."""
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        """Per layer (rows, heads, capacity, width)."""
        self.capacity = 0
        self.common: tuple[Common, ...] = ()
        """Rows that are known to begin alike; `compare` finds out."""
        self._target: tuple[slice | Tensor, Tensor | None, int, int] = (slice(0), None, 0, 0)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def cells(self) -> int:
        """Columns held in memory, over all rows."""
        return len(self.tokens) * self.capacity

    def reserve(self, columns: int) -> None:
        """Have room for so many columns; grows by half at least, so that a context is copied seldom."""
        if columns > self.capacity:
            self.capacity = max(columns, self.capacity * 3 // 2, 16)
            self.keys = [self._grown(tensor) for tensor in self.keys]
            self.values = [self._grown(tensor) for tensor in self.values]

    def _grown(self, tensor: Tensor) -> Tensor:
        rows, heads, columns, width = tensor.shape
        wider = tensor.new_zeros(rows, heads, self.capacity, width)
        wider[:, :, :columns] = tensor
        return wider

    def trim(self) -> None:
        """Give back the room that no row uses."""
        self.capacity = max(map(len, self.tokens))
        self.keys = [tensor[:, :, : self.capacity].clone() for tensor in self.keys]
        self.values = [tensor[:, :, : self.capacity].clone() for tensor in self.values]

    def aim(self, rows: slice | Tensor, columns: Tensor | None, start: int, end: int) -> None:
        """Say where the next forward pass writes.

        Args:
            rows: the rows that it reads, as a slice (seen in place) or as numbers (attention sees copies).
            columns: (rows, Q) column of each new token; None if they are start..end-1 in every row of a slice.
            start: first column written, where `columns` is None.
            end: columns that attention sees.
        """
        self._target = (rows, columns, start, end)

    def update(self, keys: Tensor, values: Tensor, layer: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Take up one layer's new keys and values; return all that attention sees. Called by models."""
        if layer == len(self.keys):
            shape = (len(self), keys.shape[1], self.capacity, keys.shape[3])
            self.keys.append(keys.new_zeros(shape))
            self.values.append(values.new_zeros((*shape[:3], values.shape[3])))
        rows, columns, start, end = self._target
        stores = self.keys[layer], self.values[layer]
        if isinstance(rows, Tensor):
            for store, new in zip(stores, (keys, values), strict=True):
                store[rows[:, None], :, columns] = new.transpose(1, 2)
            return stores[0][:, :, :end].index_select(0, rows), stores[1][:, :, :end].index_select(0, rows)
        held = stores[0][rows], stores[1][rows]
        for store, new in zip(held, (keys, values), strict=True):
            if columns is None:
                store[:, :, start : start + new.shape[2]] = new
            else:
                places = torch.arange(new.shape[0], device=new.device)[:, None]
                store[places, :, columns] = new.transpose(1, 2)
        return held[0][:, :, :end], held[1][:, :, :end]

    def select(self, rows: Sequence[int], *, room: int = 0) -> "Block":
        """A block of copies of these rows, repeated if asked, with room for so many tokens behind each."""
        sources = [(self, row, len(self.tokens[row])) for row in rows]
        return join(sources, self.label, columns=room + max(length for _, _, length in sources))

    def compare(self) -> None:
        """Find neighbours that begin alike, so that most cells are copies; what is read from now on changes nothing."""
        found: list[Common] = []
        for row, tokens in enumerate(self.tokens):
            first, stop, length = found[-1] if found else (0, 0, 0)
            shared = common_length(self.tokens[first], tokens[:length]) if found else 0
            if shared and (stop - first) * shared >= (stop - first - 1) * length:
                found[-1] = Common(first, stop + 1, shared)
            else:
                found.append(Common(row, row + 1, len(tokens)))
        self.common = tuple([one for one in found if one.stop - one.first > 1])

    def common_within(self, first: int, stop: int) -> tuple[Common, ...]:
        """The same among some rows, counted from the first of them."""
        clipped = [
            Common(max(one.first, first) - first, min(one.stop, stop) - first, one.length)
            for one in self.common
        ]
        return tuple([one for one in clipped if one.stop - one.first > 1])

    def copy_beginnings(self, copies: Sequence[tuple[int, int, int]]) -> None:
        """Let rows begin as others do: (row, source row, number of first tokens) each; sources are no targets."""
        groups: dict[tuple[int, int], list[int]] = {}
        self.common = ()
        for row, source, length in copies:
            self.tokens[row] = self.tokens[source][:length]
            groups.setdefault((source, length), []).append(row)
        for (source, length), rows in groups.items():
            for tensor in (*self.keys, *self.values):
                index = torch.tensor(rows, device=tensor.device)
                tensor[index, :, :length] = tensor[source, :, :length]

    def absorb(self, part: "Block", rows: Sequence[int]) -> None:
        """Take over what a block of copies of some rows has read since; `rows[k]` is its k-th row's home."""
        start = min(len(self.tokens[row]) for row in rows)
        end = max(len(tokens) for tokens in part.tokens)
        self.reserve(end)
        for row, tokens in zip(rows, part.tokens, strict=True):
            self.tokens[row] = tokens
        for mine, theirs in zip((*self.keys, *self.values), (*part.keys, *part.values), strict=True):
            index = torch.tensor(rows, device=mine.device)
            mine[:, :, start:end].index_copy_(0, index, theirs[:, :, start:end])


def join(sources: Sequence[tuple[Block, int, int] | None], label: str, *, columns: int = 0) -> Block:
    """A block whose rows begin as rows of others: (block, row, number of first tokens) each; None begins empty."""
    joined = Block(label, len(sources))
    for place, source in enumerate(sources):
        if source is not None:
            joined.tokens[place] = source[0].tokens[source[1]][: source[2]]
    joined.reserve(max([columns, *(len(tokens) for tokens in joined.tokens)]))
    runs = _runs(sources)
    held = next((run.block for run in runs if run.block is not None), None)
    if held is None:
        return joined
    for name in ("keys", "values"):
        for layer, like in enumerate(getattr(held, name)):
            whole = like.new_empty(len(joined), like.shape[1], joined.capacity, like.shape[3])
            for block, start, rows in runs:
                part = whole[start : start + len(rows)]
                length = max(map(len, joined.tokens[start : start + len(rows)])) if block is not None else 0
                if block is not None:
                    begun = getattr(block, name)[layer][:, :, :length]
                    part[:, :, :length] = begun[rows[0] if len(set(rows)) == 1 else rows]
                part[:, :, length:] = 0  # nobody sees what is there, but it must be finite
            getattr(joined, name).append(whole)
    return joined


class _Run(NamedTuple):
    """Neighbouring rows that begin as rows of one block: all as the same one, which is then spread, or as others."""

    block: Block | None
    """None: empty rows."""
    start: int
    rows: list[int]


def _runs(sources: Sequence[tuple[Block, int, int] | None]) -> list[_Run]:
    found: list[_Run] = []
    for place, source in enumerate(sources):
        block, row = (None, 0) if source is None or not source[0].keys else source[:2]
        rows = found[-1].rows if found and found[-1].block is block else []
        if len(rows) == 1 or (rows and (rows[0] == rows[1]) == (rows[-1] == row)):
            rows.append(row)
        else:
            found.append(_Run(block, place, [row]))
    return found


class Store:
    """Blocks between waves, the least recently used forgotten first beyond a budget of cells.

    Blocks of one wave do not drive each other out: games in step that do not all fit would find nothing, ever.
    """

    def __init__(self, max_cells: int) -> None:
        self.max_cells = max_cells
        self._wave: set[int] = set()
        """Blocks of this wave."""
        self._blocks: dict[int, tuple[Block, set[int]]] = {}
        """By identity, the last used last: each with the rows that no other row has made superfluous."""
        self._names: dict[str, Place] = {}

    def __len__(self) -> int:
        return sum(len(rows) for _, rows in self._blocks.values())

    @property
    def cells(self) -> int:
        """Columns held in memory, over all rows of all blocks."""
        return sum(block.cells for block, _ in self._blocks.values())

    def find(self, dialogue: str, label: str, tokens: Sequence[int]) -> Place | None:
        """The row of a dialogue's last turn, if all it has read under this very version begins `tokens`."""
        place = self._names.get(dialogue)
        if place is None:
            return None
        block, row = place
        _, rows = self._blocks.get(id(block), (block, set[int]()))
        read = block.tokens[row]
        fits = row in rows and block.label == label and len(read) < len(tokens)
        return place if fits and list(tokens[: len(read)]) == read else None

    def held(self, label: str) -> list[Place]:
        """All rows read by this version of a policy."""
        return [
            (block, row)
            for block, rows in self._blocks.values()
            if block.label == label
            for row in sorted(rows)
        ]

    def begin_wave(self) -> None:
        """What is held now may be forgotten for what comes."""
        self._wave.clear()

    def put(self, block: Block, names: Mapping[str, int]) -> None:
        """Keep a block as the newest, its rows under the names of dialogues.

        Beyond the budget the oldest of earlier waves are forgotten. Where that is not enough, the block gives back its
        room for more, or is not kept.
        """
        _, rows = self._blocks.pop(id(block), (block, set(range(len(block)))))
        self._blocks[id(block)] = (block, rows | set(names.values()))
        for name, row in names.items():
            self._names[name] = (block, row)
        room = self.max_cells - sum(self._blocks[key][0].cells for key in self._wave - {id(block)})
        self._wave.add(id(block))
        if block.cells > room:
            block.trim()
        if block.cells > room:
            self._drop(id(block))
        older = [key for key in self._blocks if key not in self._wave]
        while self.cells > self.max_cells:
            self._drop(older.pop(0))

    def retire(self, place: Place) -> None:
        """A newer row begins with all of this one: when a block has only such rows, it goes."""
        block, row = place
        if id(block) in self._blocks:
            rows = self._blocks[id(block)][1]
            rows.discard(row)
            if not rows:
                self._drop(id(block))

    def forget(self, name: str | None = None) -> None:
        """Drop the rows of every version of a policy, or all of them."""
        for key, (block, _) in list(self._blocks.items()):
            if name is None or block.label.rpartition("@")[0] == name:
                self._drop(key)

    def _drop(self, key: int) -> None:
        dropped, _ = self._blocks.pop(key)
        self._wave.discard(key)
        self._names = {name: place for name, place in self._names.items() if place[0] is not dropped}
