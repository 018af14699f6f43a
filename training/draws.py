"""Which distributions a batch's tokens were drawn from, found before any model runs: equal ones are asked for once."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedSets:
    """Which tokens were allowed at each of N places; equal sets share one row of the table."""

    index: Tensor
    """(N,) long, row of `table` for each token; -1: unrestricted."""
    table: Tensor
    """(M, K) long, allowed ids, right-padded with 0."""
    table_mask: Tensor
    """(M, K) bool, True on real entries."""

    def select(self, places: Tensor) -> "AllowedSets":
        """The sets of some tokens, over the same table.

        Args:
            places: (N',) long.
        """
        return replace(self, index=self.index[places])

    @classmethod
    def from_lists(cls, allowed: Sequence[Sequence[int] | None]) -> "AllowedSets":
        """Build from one list of allowed ids per token; None: unrestricted.

        Raises:
            ValueError: if a list is empty.
        """
        rows: dict[tuple[int, ...], int] = {}
        index = [-1 if ids is None else rows.setdefault(tuple(ids), len(rows)) for ids in allowed]
        if () in rows:
            raise ValueError(
                f"token {index.index(rows[()])} has no allowed id; expected at least one, or None for all"
            )
        width = max((len(ids) for ids in rows), default=1)
        table = torch.tensor([[*ids, *[0] * (width - len(ids))] for ids in rows], dtype=torch.long)
        included = torch.tensor(
            [[place < len(ids) for place in range(width)] for ids in rows], dtype=torch.bool
        )
        return cls(
            index=torch.tensor(index, dtype=torch.long),
            table=table.reshape(-1, width),
            table_mask=included.reshape(-1, width),
        )

    @classmethod
    def joined(cls, parts: Sequence["AllowedSets"]) -> "AllowedSets":
        """The sets of all their tokens, one after the other; equal ones share a row of the table."""
        width = max(part.table.shape[1] for part in parts)
        whole = [
            pad(part.table.where(part.table_mask, -1), (0, width - part.table.shape[1]), value=-1)
            for part in parts
        ]
        table, rows = torch.unique(torch.cat(whole), dim=0, return_inverse=True)
        unrestricted = torch.tensor([-1])  # stands last, where index -1 finds it
        numbers = [torch.cat([one, unrestricted]) for one in rows.split([len(part.table) for part in parts])]
        index = torch.cat([number[part.index] for number, part in zip(numbers, parts, strict=True)])
        return cls(index=index, table=table.clamp(min=0), table_mask=table >= 0)

    @classmethod
    def none(cls, count: int) -> "AllowedSets":
        """No restriction at any of `count` tokens."""
        return cls.from_lists([None] * count)

    def to(self, device: torch.device) -> "AllowedSets":
        """The same sets on a device."""
        return moved(self, device)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """n tokens drawn from Q distributions over the whole vocabulary, or over K tokens each."""

    slots: Tensor
    """(Q,) long, the hidden state that each distribution is read from."""
    temperature: Tensor | None
    """(Q,); None: 1."""
    ids: Tensor | None
    """(A,) long, the ids that a head is asked about; None: all."""
    support: Tensor | None
    """(Q, K) long, places in `ids`, right-padded with 0; None: the whole vocabulary."""
    support_mask: Tensor | None
    """(Q, K) bool."""
    tokens: Tensor
    """(n,) long, which tokens they are."""
    of: Tensor
    """(n,) long, the distribution of each, ascending."""
    choice: Tensor
    """(n,) long, its place in the support, or its id."""
    chunks: tuple[tuple[int, int, int, int], ...]
    """What a head is asked at a time: first and last (one beyond) distribution, and token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenDraws:
    """The tokens of one forward pass, free and bound by a grammar apart."""

    free: Draws
    bound: Draws
    order: Tensor
    """(N,) long, where each token stands among the free and then the bound."""

    def to(self, device: torch.device) -> "TokenDraws":
        """The same on a device."""
        return TokenDraws(
            free=moved(self.free, device), bound=moved(self.bound, device), order=self.order.to(device)
        )


Record = TypeVar("Record", bound=Any)


def moved(record: Record, device: torch.device) -> Record:
    """A record with its tensors on a device, those of records inside it where they were."""
    values = {entry.name: getattr(record, entry.name) for entry in fields(record)}
    tensors = {name: value.to(device) for name, value in values.items() if isinstance(value, Tensor)}
    there: Record = replace(record, **tensors)
    return there


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What is the same for a batch's N tokens however it is cut into passes."""

    kind: Ints
    """(N,) number of each token's temperature and allowed set together."""
    num_kinds: int
    choice: Ints
    """(N,) place in the token's allowed set; its id where all are allowed."""
    sets: Ints
    """(N,) row of `support`; -1: unrestricted."""
    temperature: NDArray[np.float32]
    """(N,)"""
    ids: Ints
    """(A,) every id that some set allows, ascending."""
    support: Ints
    """(M, K) the sets, as places in `ids`."""
    support_mask: NDArray[np.bool_]
    """(M, K)"""

    def draws(self, places: Tensor, slots: Tensor, *, chunk: int, vocabulary: int) -> TokenDraws:
        """The distributions that some tokens were drawn from.

        Args:
            places: (n,) which tokens.
            slots: (n,) the hidden state before each.
            chunk: most scores to ask a head for at a time.
            vocabulary: V.
        """
        chosen, where = places.numpy(), slots.numpy()
        names = where * self.num_kinds + self.kind[chosen]
        bound = self.sets[chosen] >= 0
        parts = [
            self._part(np.flatnonzero(which), chosen, where, names, chunk=max(chunk // max(width, 1), 1))
            for which, width in ((~bound, vocabulary), (bound, len(self.ids)))
        ]
        order = np.empty(len(chosen), dtype=np.int64)
        order[np.concatenate([part.tokens.numpy() for part in parts])] = np.arange(len(chosen))
        return TokenDraws(free=parts[0], bound=parts[1], order=torch.from_numpy(order))

    def _part(self, members: Ints, chosen: Ints, where: Ints, names: Ints, *, chunk: int) -> Draws:
        """The same for the members of one sort, with `chunk` distributions at a time."""
        _, first, of = np.unique(names[members], return_index=True, return_inverse=True)
        by_source = np.argsort(of, kind="stable")
        members, of, asked = members[by_source], of[by_source], members[first]
        tokens = chosen[asked]
        heat, sets = self.temperature[tokens], self.sets[tokens]
        bound = bool(len(sets)) and bool(sets[0] >= 0)
        edges = [*range(0, max(len(asked), 1), chunk), len(asked)]
        token_edges = np.searchsorted(of, edges).tolist()
        return Draws(
            slots=torch.from_numpy(where[asked]),
            temperature=None if (heat == 1).all() else torch.from_numpy(heat),
            ids=torch.from_numpy(self.ids) if bound else None,
            support=torch.from_numpy(self.support[sets]) if bound else None,
            support_mask=torch.from_numpy(self.support_mask[sets]) if bound else None,
            tokens=torch.from_numpy(members),
            of=torch.from_numpy(of),
            choice=torch.from_numpy(self.choice[chosen[members]]),
            chunks=tuple(zip(edges, edges[1:], token_edges, token_edges[1:], strict=False)),
        )


def prepare(targets: Tensor, temperature: Tensor, allowed: AllowedSets | None) -> Prepared:
    """Check N tokens against their allowed sets, and number their distributions' kinds.

    Args:
        targets: (N,) long.
        temperature: (N,).
        allowed: None: everything everywhere.

    Raises:
        ValueError: if a temperature is not positive, shapes differ, or a target is not allowed.
    """
    allowed = AllowedSets.none(len(targets)) if allowed is None else allowed
    _check(targets, temperature, allowed)
    ids, sets = targets.numpy(), allowed.index.numpy()
    table, mask = allowed.table.numpy(), allowed.table_mask.numpy()
    bound = np.flatnonzero(sets >= 0)
    hits = (table[sets[bound]] == ids[bound, None]) & mask[sets[bound]]
    _check_allowed(hits, ids, bound, allowed)
    choice = ids.copy()
    choice[bound] = hits.argmax(axis=1) if len(bound) else 0
    known = np.unique(table[mask])
    heats, heat = np.unique(temperature.numpy(), return_inverse=True)
    num_sets = len(table) + 1
    return Prepared(
        kind=heat * num_sets + sets + 1,
        num_kinds=len(heats) * num_sets,
        choice=choice,
        sets=sets,
        temperature=temperature.numpy(),
        ids=known,
        support=np.where(mask, np.searchsorted(known, table), 0),
        support_mask=mask,
    )


def _check(targets: Tensor, temperature: Tensor, allowed: AllowedSets) -> None:
    if targets.dim() != 1 or allowed.index.shape != targets.shape or temperature.shape != targets.shape:
        raise ValueError(
            f"targets are {tuple(targets.shape)}, temperature {tuple(temperature.shape)}, allowed.index"
            f" {tuple(allowed.index.shape)}; expected (N,) three times"
        )
    if not bool((temperature > 0).all()):
        raise ValueError(
            f"temperature is {float(temperature.min())}; expected above 0: a learner samples, it is never greedy"
        )


def _check_allowed(hits: NDArray[np.bool_], targets: Ints, places: Ints, allowed: AllowedSets) -> None:
    found = hits.any(axis=1)
    if not found.all():
        place = int(places[int(np.flatnonzero(~found)[0])])
        row = int(allowed.index[place])
        ids = allowed.table[row][allowed.table_mask[row]].tolist()
        raise ValueError(
            f"token {int(targets[place])} at place {place} is not allowed there; expected one"
            f" of {ids}: it was sampled under another grammar or tokenizer than the trainer's"
        )
