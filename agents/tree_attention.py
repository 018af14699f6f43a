"""Attention over tree-shaped rows on a CPU, block by block: no query meets a key that none of its block may see.

Slots of a tree stand in the order in which it is walked, so that a block of consecutive queries sees the ancestors of
its first one and itself. Same numbers as `sdpa` under the dense mask to float32 rounding, forward and backward.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from coplay.agents.common_attention import Common, attention_in_pieces
from coplay.agents.linear import available, product

NAME = "coplay_tree"
"""What a model's configuration calls this attention; without blocks it is `sdpa`."""
QUERIES = 128
"""Of one block."""
LARGE = 200_000
"""Fewer multiplications than this in a product are left to torch: calling oneDNN would cost more than it saves."""


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive queries of one row and all that they see."""

    first: int
    last: int
    """One beyond."""
    keys: Tensor | None
    """(n,) slots, ascending; None: the first `last` ones."""
    clear: int
    """So many first keys are seen by all queries."""
    hidden: Tensor
    """(m, n - clear) True where a query does not see a later key."""


@dataclass(frozen=True)
class TreeMask:
    """Which slots of B trees of W slots see which: slot `k` is seen by `q` where k <= q < exits[k]."""

    exits: Tensor
    """(B, W) slot at which the part of the tree under each token ends."""

    def dense(self) -> Tensor:
        """(B, 1, W, W) True where a query sees a key: itself and its ancestors."""
        slot = torch.arange(self.exits.shape[1], device=self.exits.device)
        query = slot[:, None]
        return ((slot <= query) & (query < self.exits[:, None, :]))[:, None]

    @cached_property
    def blocks(self) -> tuple[tuple[Block, ...], ...]:
        """The blocks of each row."""
        return tuple(_blocks(row) for row in self.exits.numpy())


def causal(rows: int, width: int) -> TreeMask:
    """Rows that do not branch: each token is seen by all after it."""
    return TreeMask(torch.full((rows, width), width))


def _blocks(exits: np.ndarray[Any, np.dtype[np.int64]]) -> tuple[Block, ...]:
    slots, found = np.arange(len(exits)), []
    for first in range(0, len(exits), QUERIES):
        last = min(first + QUERIES, len(exits))
        keys = np.append(np.flatnonzero(exits[:first] > first), slots[first:last])
        queries = slots[first:last, None]
        hidden = (keys > queries) | (queries >= exits[keys])
        clear = int(np.append(hidden.any(axis=0), True).argmax())
        chosen = None if len(keys) == last else torch.from_numpy(keys)
        found.append(Block(first, last, chosen, clear, torch.from_numpy(hidden[:, clear:])))
    return tuple(found)


def attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    tree: TreeMask | None = None,
    common: Sequence[Common] = (),
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """What transformers calls: by blocks where `tree` is given, which then stands for the mask; else `sdpa`.

    Args:
        common: rows whose first keys are alike, where it pays to read them once; the others by `sdpa`.
    """
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if common:
        assert attention_mask is not None
        tensors = (query, key, value, attention_mask)
        return attention_in_pieces(module, *tensors, common, scale, **kwargs), None
    if tree is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
    result: Tensor = _TreeAttention.apply(query, key, value, tree.blocks, scale)  # type: ignore[no-untyped-call]
    return result, None


class _TreeAttention(torch.autograd.Function):
    """softmax(scale Q Kᵀ) V over what each query sees; keeps queries, keys and values and computes the rest anew."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, rows: Sequence[Sequence[Block]], scale: float
    ) -> Tensor:
        """(B, H, W, D) queries, (B, K, W, D) keys and values, H a multiple of K -> (B, W, H, D)."""
        key, value = key.contiguous(), value.contiguous()  # oneDNN crawls through rows that lie apart
        result = torch.empty_like(query.transpose(1, 2), memory_format=torch.contiguous_format)
        for b, h, block in _parts(key, rows):
            part = _Part(query[b], key[b, h], h, key.shape[1], block, scale)
            out = _multiply(part.weights(), part.seen(value[b, h]).t())
            part.of(result[b]).copy_(part.unstacked(out))
        ctx.save_for_backward(query, key, value, result)
        ctx.rows, ctx.scale = rows, scale
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        """Gradients of queries, keys and values."""
        query, key, value, result = ctx.saved_tensors
        of_query = torch.empty_like(query)
        of_key, of_value = torch.zeros_like(key), torch.zeros_like(value)
        inner = (grad * result).sum(-1)  # (B, W, H)
        for b, h, block in _parts(key, ctx.rows):
            part = _Part(query[b], key[b, h], h, key.shape[1], block, ctx.scale)
            weights, seen = part.weights(), part.seen(value[b, h])
            above = part.stacked(grad[b].transpose(0, 1))
            part.add(of_value[b, h], _multiply(weights.t(), above.t()))
            scores = _multiply(above, seen)
            scores.sub_(part.of(inner[b]).t().reshape(-1, 1)).mul_(weights)
            part.add(of_key[b, h], _multiply(scores.t(), part.queries.t()))
            down = _multiply(scores, part.keys.t()).mul_(ctx.scale)
            part.of(of_query[b].transpose(0, 1)).copy_(part.unstacked(down))
        return of_query, of_key, of_value, None, None


def _parts(key: Tensor, rows: Sequence[Sequence[Block]]) -> Sequence[tuple[int, int, Block]]:
    return [(b, h, block) for b, blocks in enumerate(rows) for block in blocks for h in range(key.shape[1])]


class _Part:
    """One block under one head of keys: the G heads of queries that share it are stacked to (G·m, D)."""

    __slots__ = ("_block", "_heads", "keys", "queries")

    def __init__(
        self, query: Tensor, key: Tensor, head: int, num_heads: int, block: Block, scale: float
    ) -> None:
        share = query.shape[0] // num_heads
        self._block, self._heads = block, slice(head * share, (head + 1) * share)
        self.queries = self.stacked(query) * scale
        self.keys = self.seen(key)

    def stacked(self, whole: Tensor) -> Tensor:
        """(H, W, D) -> (G·m, D)."""
        block = self._block
        return whole[self._heads, block.first : block.last].reshape(-1, whole.shape[-1]).contiguous()

    def unstacked(self, part: Tensor) -> Tensor:
        """(G·m, D) -> (m, G, D)."""
        return part.view(-1, self._block.last - self._block.first, part.shape[-1]).transpose(0, 1)

    def of(self, whole: Tensor) -> Tensor:
        """(W, H, ...) -> (m, G, ...), a view."""
        return whole[self._block.first : self._block.last, self._heads]

    def seen(self, whole: Tensor) -> Tensor:
        """(W, D) -> (n, D)."""
        keys = self._block.keys
        return whole[: self._block.last] if keys is None else whole.index_select(0, keys)

    def add(self, whole: Tensor, part: Tensor) -> None:
        """Add (n, D) to what of (W, D) is seen."""
        keys = self._block.keys
        if keys is None:
            whole[: self._block.last] += part
        else:
            whole.index_add_(0, keys, part)

    def weights(self) -> Tensor:
        """(G·m, n) softmax over what each query sees."""
        block = self._block
        scores = _multiply(self.queries, self.keys)
        later = scores.view(-1, block.last - block.first, scores.shape[-1])[..., block.clear :]
        later.masked_fill_(block.hidden, -torch.inf)
        return torch.softmax(scores, dim=-1)


def _multiply(one: Tensor, other: Tensor) -> Tensor:
    """`one @ other.T`."""
    if available() and one.shape[0] * one.shape[1] * other.shape[0] >= LARGE:
        return product(one, other)
    return one @ other.t()


def read_by_blocks(model: Any) -> None:
    """Let a model that computes attention by `sdpa` take this one; files it is saved to do not know of it."""
    if model.config._attn_implementation == "sdpa":
        model.set_attn_implementation(NAME)


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, sdpa_mask)
