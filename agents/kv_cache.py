"""Keys and values of dialogues between their turns.

The token at place k of a context lies in column k of its row. So causality alone hides what is not there yet:
padding and dead tokens stand behind every real one, and rows of unequal length share a batch without holes.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor


class Block:
    """A batch of rows, one dialogue each, read by one version of one policy."""

    def __init__(self, label: str, dialogues: list[str]) -> None:
        self.label = label
        self.dialogues = dialogues
        self.tokens: list[tuple[int, ...]] = [()] * len(dialogues)
        """What each row has read; columns behind are garbage."""
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        """Per layer (rows, heads, capacity, width)."""
        self.capacity = 0
        self._target: tuple[slice, Tensor | None, int, int] = (slice(0), None, 0, 0)

    @property
    def cells(self) -> int:
        """Columns held in memory, over all rows."""
        return len(self.dialogues) * self.capacity

    def reserve(self, columns: int) -> None:
        """Have room for so many columns; grows by half at least, so that a dialogue is copied seldom."""
        if columns > self.capacity:
            self.capacity = max(columns, self.capacity * 3 // 2, 16)
            self.keys = [self._grown(tensor) for tensor in self.keys]
            self.values = [self._grown(tensor) for tensor in self.values]

    def _grown(self, tensor: Tensor) -> Tensor:
        rows, heads, columns, width = tensor.shape
        wider = tensor.new_zeros(rows, heads, self.capacity, width)
        wider[:, :, :columns] = tensor
        return wider

    def aim(self, rows: slice, columns: Tensor | None, start: int, end: int) -> None:
        """Say where the next forward pass writes.

        Args:
            rows: the rows that it reads.
            columns: (rows, Q) column of each new token; None if they are start..end-1 in every row.
            start: first column written, where `columns` is None.
            end: columns that attention sees.
        """
        self._target = (rows, columns, start, end)

    def update(self, keys: Tensor, values: Tensor, layer: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Take up one layer's new keys and values; return all that attention sees. Called by models."""
        if layer == len(self.keys):
            shape = (len(self.dialogues), keys.shape[1], self.capacity, keys.shape[3])
            self.keys.append(keys.new_zeros(shape))
            self.values.append(values.new_zeros((*shape[:3], values.shape[3])))
        rows, columns, start, end = self._target
        held = self.keys[layer][rows], self.values[layer][rows]
        for store, new in zip(held, (keys, values), strict=True):
            if columns is None:
                store[:, :, start : start + new.shape[2]] = new
            else:
                places = torch.arange(new.shape[0], device=new.device)[:, None]
                store[places, :, columns] = new.transpose(1, 2)
        return held[0][:, :, :end], held[1][:, :, :end]

    def select(self, rows: Sequence[int], dialogues: list[str]) -> "Block":
        """A block of copies of these rows (repeated if asked), under new dialogue names."""
        return join([(self, rows)], self.label, dialogues)


def join(parts: Iterable[tuple[Block, Sequence[int]]], label: str, dialogues: list[str]) -> Block:
    """One block of the given rows of several, in order."""
    parts = [(block, rows) for block, rows in parts if rows]
    joined = Block(label, dialogues)
    joined.tokens = [block.tokens[row] for block, rows in parts for row in rows]
    filled = [(block, rows) for block, rows in parts if block.keys]
    joined.reserve(max((block.capacity for block, _ in filled), default=0))
    if not filled:
        return joined
    for name in ("keys", "values"):
        for layer, like in enumerate(getattr(filled[0][0], name)):
            whole = like.new_zeros(len(dialogues), like.shape[1], joined.capacity, like.shape[3])
            start = 0
            for block, rows in parts:
                if block.keys:
                    chosen = torch.tensor(rows, device=like.device)
                    part = getattr(block, name)[layer].index_select(0, chosen)
                    whole[start : start + len(rows), :, : block.capacity] = part
                start += len(rows)
            getattr(joined, name).append(whole)
    return joined


class Store:
    """Where each dialogue's row is. Blocks that no dialogue points to any more free themselves."""

    def __init__(self, max_cells: int) -> None:
        self.max_cells = max_cells
        self._places: dict[str, tuple[Block, int]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def find(self, dialogue: str, label: str, context: Sequence[int]) -> tuple[Block, int] | None:
        """The row that has read a proper beginning of this context under this very policy version (B21)."""
        place = self._places.get(dialogue)
        if place is None:
            return None
        block, row = place
        read = block.tokens[row]
        if block.label != label or len(read) >= len(context) or tuple(context[: len(read)]) != read:
            del self._places[dialogue]
            return None
        return place

    def put(self, block: Block) -> None:
        """Let the block's dialogues be found there, as the newest; beyond the budget forget the oldest."""
        for row, dialogue in enumerate(block.dialogues):
            self._places.pop(dialogue, None)
            self._places[dialogue] = (block, row)
        blocks = {id(held): held for held, _ in reversed(self._places.values())}
        cells, kept = 0, set()
        for name, held in blocks.items():
            cells += held.cells
            if cells <= self.max_cells:
                kept.add(name)
        if len(kept) < len(blocks):
            self._places = {k: place for k, place in self._places.items() if id(place[0]) in kept}

    def forget(self, name: str | None = None) -> None:
        """Drop the rows of every version of a policy, or all of them."""
        self._places = {
            dialogue: place
            for dialogue, place in self._places.items()
            if name is not None and place[0].label.rpartition("@")[0] != name
        }
