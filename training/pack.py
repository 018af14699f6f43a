"""Rows of tokens as trees: each distinct (prefix, token) is read once, and every place knows where (law 4).

Sorted rows begin like their neighbours, so a tree is a run of consecutive sorted rows in which each row adds what its
predecessor has not said. Cutting a run repeats the ancestors of the row that follows, and nothing else. In the order
in which a tree is walked, token `k` is an ancestor of token `q` where k <= q < exit[k].
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coplay.agents.tree_attention import TreeMask
from coplay.training.draws import moved

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What a forward and backward pass costs beyond its tokens, in tokens."""

    pair: float
    """A query and a key that attention looks at."""
    launch: float
    """A pass, however small."""
    square: bool = True
    """Attention looks at all slots of a tree from each of its slots; False: at a slot's ancestors only."""
    crowd: float = 0.0
    """Two tokens in one pass: what it holds for its backward pass, and no cache keeps."""


def costs_of(width: int, *, cuda: bool, blocks: bool = False) -> Costs:
    """Costs of a transformer with hidden states of `width`, whose attention goes by `blocks` or not.

    A layer's matrices take about 12 width^2 multiplications a token and attention 2 width a pair, at a third of the
    rate (by blocks at two thirds, if they are wide). A pass has an overhead by layer. On a processor some hundred
    tokens fill the matrices already, and more only take memory; an accelerator is idle below a few thousand.
    """
    if cuda:
        return Costs(pair=0.5 / width, launch=4096.0)
    wide = blocks and width >= 256
    return Costs(pair=(0.25 if wide else 0.5) / width, launch=2.5e6 / width**2, square=not wide, crowd=3e-5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """What one forward pass reads: B trees (or plain rows) side by side, padded to W slots."""

    ids: Tensor
    """(B, W)"""
    positions: Tensor | None
    """(B, W) place of each token in its own row; None: no tree branches, and plain causal attention is right."""
    exits: Tensor | None
    """(B, W) slot at which the part of the tree under each token ends."""
    places: Tensor
    """(n,) which of all P places are read here."""
    slots: Tensor
    """(n,) where each of them is, counted through the B rows of W slots."""
    num_tokens: int
    """Slots that hold a token."""

    def mask(self) -> TreeMask | None:
        """Which slots see which; None: plain causal attention."""
        return None if self.exits is None else TreeMask(self.exits)

    def to(self, device: torch.device) -> "Pack":
        """The same on a device."""
        return moved(self, device)


def pack(
    ids: Tensor, row: Tensor, column: Tensor, *, max_tokens: int, costs: Costs, trees: bool = True
) -> tuple[Pack, ...]:
    """Lay out rows so that P places in them can be read; rows and tokens after the last place read are left out.

    All places of a row are read in the same pass.

    Args:
        ids: (R, T), whatever stands behind the last place of a row.
        row: (P,) row of each place.
        column: (P,) its token.
        max_tokens: most slots of a pass; a longer row goes alone.
        costs: what decides where trees are cut and which share a pass.
        trees: False keeps every row apart, for models that cannot take a tree.
    """
    where, at = row.numpy(), column.numpy()
    assert at.min(initial=0) >= 0, "the first token of a row has nothing before it that could be read"
    ends = np.zeros(len(ids), dtype=np.int64)
    np.maximum.at(ends, where, at + 1)
    kept = np.flatnonzero(ends)
    content = ids.numpy()[kept, : int(ends.max(initial=0))]
    forest = _sorted_rows(content, ends[kept]) if trees else _plain_rows(content, ends[kept])
    runs = _runs(forest, max_tokens=max_tokens, costs=costs, trees=trees)
    groups = _passes(runs, max_tokens=max_tokens, costs=costs)
    rank = np.zeros(len(ids), dtype=np.int64)  # of each row of `ids` among the sorted
    rank[kept[forest.order]] = np.arange(len(kept))
    laid = [_lay_out(forest, [runs[number] for number in group]) for group in groups]
    return _read(laid, rank[where], at, num_rows=len(kept))


class _Forest(NamedTuple):
    """Rows in the order of their content."""

    ids: Ints
    """(R, T)"""
    ends: Ints
    """(R,) their lengths."""
    common: Ints
    """(R,) first tokens each shares with the row before it."""
    order: Ints
    """(R,) where each stood."""


class _Run(NamedTuple):
    """A tree: consecutive sorted rows."""

    first: int
    last: int
    """One beyond."""
    width: int
    """Tokens it holds."""
    pairs: int
    """Of a token and one that it sees, itself included."""


class _Laid(NamedTuple):
    """A pass without its places, and the slot of every cell of its rows."""

    ids: Ints
    positions: Ints | None
    exits: Ints | None
    rows: Ints
    """(r,) sorted rows in it."""
    slots: Ints
    """(r, T')"""
    num_tokens: int


def _sorted_rows(ids: Ints, ends: Ints) -> _Forest:
    """Sort as bytes: big-endian, each id one higher, so that a row stands before those that go on from it."""
    inside = np.arange(ids.shape[1]) < ends[:, None]
    raised = np.where(inside, ids + 1, 0).astype(">u4")
    order = np.argsort(raised.view(f"S{4 * max(ids.shape[1], 1)}")[:, 0], kind="stable") if ids.size else ends
    ids, ends, raised = ids[order], ends[order], raised[order]
    common = np.zeros_like(ends)
    if len(ends) > 1:
        differ = raised[1:] != raised[:-1]
        first = np.where(differ.any(axis=1), differ.argmax(axis=1), ids.shape[1])
        common[1:] = np.minimum(first, np.minimum(ends[1:], ends[:-1]))
    return _Forest(ids, ends, common, order)


def _plain_rows(ids: Ints, ends: Ints) -> _Forest:
    return _Forest(ids, ends, np.zeros_like(ends), np.arange(len(ends)))


def _runs(forest: _Forest, *, max_tokens: int, costs: Costs, trees: bool) -> list[_Run]:
    """Cut the sorted rows into trees, longest first: tokens, ancestors repeated, and attention cost least."""
    own = [forest.ends - forest.common, _triangle(forest.ends) - _triangle(forest.common)]
    totals = [np.concatenate([[0], np.cumsum(one)]) for one in own]
    count, whole = len(forest.ends), (forest.ends, _triangle(forest.ends))

    def held(first: Ints, last: int) -> tuple[Ints, Ints]:
        """Tokens and pairs of a tree: its first row whole, and what the others add."""
        tokens, pairs = (
            one[first] + total[last] - total[first + 1] for one, total in zip(whole, totals, strict=True)
        )
        return tokens, pairs

    def cost(first: Ints, last: int) -> NDArray[np.float64]:
        size, pairs = held(first, last)
        spent = size * (1 + costs.crowd * size) + costs.pair * (size**2 if costs.square else pairs)
        return np.where((size <= max_tokens) | (first == last - 1), spent, np.inf)

    edges = _cheapest_cut(count, cost) if trees else list(range(count + 1))
    runs = [_Run(first, last, *map(int, held(np.array(first), last))) for first, last in pairwise(edges)]
    return sorted(runs, key=lambda run: -run.width)


def _triangle(length: Ints) -> Ints:
    """Pairs in a row of so many tokens."""
    found: Ints = length * (length + 1) // 2
    return found


def _passes(runs: Sequence[_Run], *, max_tokens: int, costs: Costs) -> list[range]:
    """Which trees, longest first, share a pass: padding against the price of a pass of its own."""
    widths = np.array([run.width for run in runs])
    pairs = np.concatenate([[0], np.cumsum([run.pairs for run in runs])])

    def cost(first: Ints, last: int) -> NDArray[np.float64]:
        size = widths[first] * (last - first)
        seen = size * widths[first] if costs.square else pairs[last] - pairs[first]
        spent = size * (1 + costs.crowd * size) + costs.pair * seen + costs.launch
        return np.where((size <= max_tokens) | (first == last - 1), spent, np.inf)

    edges = _cheapest_cut(len(runs), cost)
    return [range(first, last) for first, last in pairwise(edges)]


def _cheapest_cut(count: int, cost: Callable[[Ints, int], NDArray[np.float64]]) -> list[int]:
    """Edges of the cheapest cut of `count` things in a row into pieces.

    Args:
        cost: of the pieces that begin at some places and end before another; infinite where too large, and then for
            all earlier beginnings as well.
    """
    best, before = np.zeros(count + 1), np.zeros(count + 1, dtype=np.int64)
    places, low = np.arange(count), 0
    for end in range(1, count + 1):
        spent = cost(places[low:end], end)
        low += int(np.isfinite(spent).argmax())
        spent = spent[len(spent) - (end - low) :] + best[low:end]
        at = int(spent.argmin())
        best[end], before[end] = spent[at], low + at
    edges = [count]
    while edges[-1]:
        edges.append(int(before[edges[-1]]))
    return edges[::-1]


def _lay_out(forest: _Forest, runs: list[_Run]) -> _Laid:
    """One pass over some trees: each row's fresh tokens in the order of the rows."""
    rows = np.concatenate([np.arange(run.first, run.last) for run in runs])
    sizes = np.array([run.last - run.first for run in runs])
    width = max(run.width for run in runs)
    heads = np.cumsum(sizes) - sizes  # first row of each tree
    ends, common = forest.ends[rows], forest.common[rows]
    common[heads] = 0
    tree = np.repeat(np.arange(len(runs)), sizes)
    fresh = ends - common
    start = np.cumsum(fresh) - fresh
    start += tree * width - start[heads][tree]
    column = np.arange(ends.max())
    is_fresh = (column >= common[:, None]) & (column < ends[:, None])  # (r, T')
    # What a row does not say itself stands where the nearest row above said it: slots ascend.
    slots = np.maximum.accumulate(np.where(is_fresh, (start - common)[:, None] + column, 0), axis=0)
    taken = slots[is_fresh]
    ids, positions = np.zeros((2, len(runs) * width), dtype=np.int64)
    ids[taken] = forest.ids[rows, : len(column)][is_fresh]
    positions[taken] = np.broadcast_to(column, is_fresh.shape)[is_fresh]
    ends_of_trees = start[heads] + np.array([run.width for run in runs])
    exits = _exits(start, common, heads, ends_of_trees, len(column))
    slot_exits = np.arange(1, len(runs) * width + 1)  # padding sees itself: a query needs a key
    slot_exits[taken] = exits[is_fresh]
    plain = bool((~is_fresh | (exits == ends_of_trees[tree][:, None])).all())
    shape = (len(runs), width)
    return _Laid(
        ids=ids.reshape(shape),
        positions=None if plain else positions.reshape(shape),
        exits=None if plain else slot_exits.reshape(shape) - np.arange(len(runs))[:, None] * width,
        rows=rows,
        slots=slots,
        num_tokens=int(fresh.sum()),
    )


def _exits(start: Ints, common: Ints, heads: Ints, ends_of_trees: Ints, length: int) -> Ints:
    """(r, T') slot of the first later row that leaves the path of a cell; the end of its tree, if none does."""
    column = np.arange(length)
    never = np.iinfo(np.int64).max
    leaves = np.full((len(start), length), never)
    leaves[:-1] = np.where(common[1:, None] <= column, start[1:, None], never)
    lasts = np.append(heads[1:], len(start)) - 1
    leaves[lasts] = ends_of_trees[:, None]
    return np.minimum.accumulate(leaves[::-1], axis=0)[::-1]


def _read(laid: list[_Laid], rank: Ints, column: Ints, *, num_rows: int) -> tuple[Pack, ...]:
    """Tell each pass which places it reads, and in which slots."""
    owner, local = np.zeros((2, num_rows), dtype=np.int64)
    for number, one in enumerate(laid):
        owner[one.rows], local[one.rows] = number, np.arange(len(one.rows))
    by_pass = np.argsort(owner[rank], kind="stable")
    edges = np.searchsorted(owner[rank][by_pass], np.arange(len(laid) + 1))
    packs = []
    for number, one in enumerate(laid):
        places = by_pass[edges[number] : edges[number + 1]]
        packs.append(
            Pack(
                ids=torch.from_numpy(one.ids),
                positions=None if one.positions is None else torch.from_numpy(one.positions),
                exits=None if one.exits is None else torch.from_numpy(one.exits),
                places=torch.from_numpy(places),
                slots=torch.from_numpy(one.slots[local[rank[places]], column[places]]),
                num_tokens=one.num_tokens,
            )
        )
    return tuple(packs)
