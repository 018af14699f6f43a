"""Log-probs of tokens under temperature and grammar: the distribution the engine sampled from (law 1).

A constrained token renormalises over its few allowed tokens (rule 10) and never touches the rest of the
vocabulary; a free token is one gather minus one logsumexp. No (N, V) mask is ever made.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from coplay.training.losses import at_least_float32, entropy

_PIECE = 256
"""Tokens of a free vocabulary whose entropies are measured at once."""


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

    def to(self, device: torch.device) -> "AllowedSets":
        """The same sets on a device."""
        return AllowedSets(
            index=self.index.to(device), table=self.table.to(device), table_mask=self.table_mask.to(device)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogProbs:
    """Log-probs of N tokens, and the tempered logits they come from, free and restricted apart."""

    log_probs: Tensor
    """(N,), at least float32."""
    free: Tensor
    """(F,) long, places of the unrestricted tokens."""
    free_logits: Tensor
    """(F, V) tempered."""
    restricted: Tensor
    """(R,) long, places of the restricted tokens; F + R = N."""
    restricted_logits: Tensor
    """(R, K) tempered, over the allowed tokens only, -inf on the padding."""

    def entropies(self, *, top_k: int | None = None) -> Tensor:
        """Entropy of each token's distribution, (N,), over its allowed tokens (rule 10).

        Args:
            top_k: renormalise over the k likeliest; None: over all.
        """
        parts = [entropy(self.free_logits, top_k=top_k), entropy(self.restricted_logits, top_k=top_k)]
        return _in_order(parts, [self.free, self.restricted])

    def measured_entropies(self) -> Tensor:
        """The same without gradient, in pieces, so that no second (F, V) is ever held."""
        with torch.no_grad():
            starts = range(0, len(self.free), _PIECE)
            free = [entropy(self.free_logits[start : start + _PIECE]) for start in starts]
            return _in_order([*free, entropy(self.restricted_logits)], [self.free, self.restricted])


def _in_order(parts: list[Tensor], places: list[Tensor]) -> Tensor:
    """Put the parts back at their places; together they cover 0..N-1 once."""
    return torch.cat(parts)[torch.argsort(torch.cat(places))]


def _tempered(logits: Tensor, temperature: float | Tensor) -> Tensor:
    """Logits / temperature in float32 at least; (N, V) with a float or (N,) temperature."""
    exact = at_least_float32(logits)
    if isinstance(temperature, Tensor):
        return exact / temperature.to(exact)[:, None]
    return exact if temperature == 1.0 else exact / temperature


def _only_allowed(few: Tensor, allowed_mask: Tensor, temperature: float | Tensor) -> Tensor:
    """Tempered logits of the allowed tokens, (N, K), -inf on the padding."""
    return _tempered(few, temperature).masked_fill(~allowed_mask, -torch.inf)


def restricted_log_softmax(
    logits: Tensor, allowed: Tensor, allowed_mask: Tensor, *, temperature: float | Tensor = 1.0
) -> Tensor:
    """Log π renormalised over the allowed tokens: z_a / T − log Σ_{b allowed} e^{z_b / T} (rule 10).

    Args:
        logits: (N, V).
        allowed: (N, K) long, allowed ids; any valid id at masked places.
        allowed_mask: (N, K) bool, True on real entries.
        temperature: T > 0, or (N,).

    Returns:
        (N, K), -inf at masked places.
    """
    return torch.log_softmax(_only_allowed(logits.gather(1, allowed), allowed_mask, temperature), dim=-1)


def token_log_probs(
    logits: Tensor, targets: Tensor, *, temperature: float | Tensor = 1.0, allowed: AllowedSets | None = None
) -> TokenLogProbs:
    """Log-prob of each target under its tempered and, where a grammar held, renormalised distribution.

    Args:
        logits: (N, V), at action positions only.
        targets: (N,) long.
        temperature: T > 0, or (N,).
        allowed: what the grammar allowed at each token; None: everything everywhere.

    Raises:
        ValueError: if a temperature is not positive, shapes differ, or a target is not allowed (B24).
    """
    sets = _unrestricted(targets) if allowed is None else allowed
    _check(logits, targets, temperature, sets)
    bound = sets.index >= 0  # (N,)
    free, restricted = (~bound).nonzero().squeeze(1), bound.nonzero().squeeze(1)  # (F,), (R,)
    # Selecting every row would copy (N, V) for nothing.
    all_free = len(restricted) == 0
    free_logits = _tempered(logits if all_free else logits[free], _rows(temperature, free))
    chosen = free_logits.gather(1, targets[free][:, None]).squeeze(1) - torch.logsumexp(free_logits, dim=-1)

    rows = sets.index[restricted]
    table, table_mask = sets.table[rows], sets.table_mask[rows]  # (R, K)
    hits = (table == targets[restricted][:, None]) & table_mask
    _check_allowed(hits, targets, restricted, table, table_mask)
    few = _only_allowed(logits[restricted[:, None], table], table_mask, _rows(temperature, restricted))
    place = hits.long().argmax(dim=1, keepdim=True)
    picked = torch.log_softmax(few, dim=-1).gather(1, place).squeeze(1)
    return TokenLogProbs(
        log_probs=_in_order([chosen, picked], [free, restricted]),
        free=free,
        free_logits=free_logits,
        restricted=restricted,
        restricted_logits=few,
    )


def _rows(temperature: float | Tensor, places: Tensor) -> float | Tensor:
    """The temperature of some tokens."""
    return temperature[places] if isinstance(temperature, Tensor) else temperature


def _unrestricted(targets: Tensor) -> AllowedSets:
    """No restriction anywhere."""
    return AllowedSets(
        index=torch.full_like(targets, -1),
        table=targets.new_zeros((0, 1)),
        table_mask=torch.zeros((0, 1), dtype=torch.bool, device=targets.device),
    )


def _check(logits: Tensor, targets: Tensor, temperature: float | Tensor, sets: AllowedSets) -> None:
    if logits.dim() != 2 or targets.shape != logits.shape[:1] or sets.index.shape != targets.shape:
        raise ValueError(
            f"logits are {tuple(logits.shape)}, targets {tuple(targets.shape)}, allowed.index"
            f" {tuple(sets.index.shape)}; expected (N, V), (N,) and (N,)"
        )
    if isinstance(temperature, Tensor):
        if temperature.shape != targets.shape:
            raise ValueError(
                f"temperature is {tuple(temperature.shape)}; expected a float or {tuple(targets.shape)}"
            )
        positive = bool((temperature > 0).all())
    else:
        positive = temperature > 0
    if not positive:
        raise ValueError(
            f"temperature is {temperature!r}; expected above 0: a learner samples, it is never greedy"
        )


def _check_allowed(hits: Tensor, targets: Tensor, places: Tensor, table: Tensor, table_mask: Tensor) -> None:
    found = hits.any(dim=1)
    if not bool(found.all()):
        at = int((~found).nonzero()[0])
        place = int(places[at])
        ids = table[at][table_mask[at]].tolist()
        raise ValueError(
            f"token {int(targets[place])} at place {place} is not allowed there; expected one"
            f" of {ids}: it was sampled under another grammar or tokenizer than the trainer's"
        )
