"""Attention of rows that begin alike on a CPU: what they have in common is read from one of them.

Copies of a long beginning do not fit a processor's cache: to read every row's own made a reply's token dearer the
more replies a prompt has. Same numbers as `sdpa` to float32 rounding.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers.integrations.sdpa_attention import sdpa_attention_forward


class Common(NamedTuple):
    """Neighbouring rows of a batch that begin alike."""

    first: int
    stop: int
    """One beyond the last."""
    length: int
    """So many first tokens."""


def attention_in_pieces(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    common: Sequence[Common],
    scale: float,
    **kwargs: Any,
) -> Tensor:
    """Attention (B, Q, H, D): rows that begin alike together, and those between them together, by `sdpa`.

    Args:
        common: ascending.
        scale: of the scores.
    """
    mask = mask.expand(len(query), *mask.shape[1:])
    found = []
    for first, stop, length in _pieces(common, len(query)):
        q, k, v, seen = (one[first:stop] for one in (query, key, value, mask))
        if length:
            found.append(attention_over_common(q, k, v, seen, length, scale))
        else:
            found.append(sdpa_attention_forward(module, q, k, v, seen, scaling=scale, **kwargs)[0])
    return torch.cat(found)


def _pieces(common: Sequence[Common], rows: int) -> Iterator[Common]:
    """All rows of a batch; what stands between those that begin alike has length 0."""
    done = 0
    for one in common:
        if one.first > done:
            yield Common(done, one.first, 0)
        yield one
        done = one.stop
    if done < rows:
        yield Common(done, rows, 0)


def attention_over_common(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, common: int, scale: float
) -> Tensor:
    """softmax(scale Q Kᵀ) V where all rows have the same first keys and values, and see them all.

    Args:
        query: (B, H, Q, D).
        key: (B, K, C, D), H a multiple of K.
        value: the same.
        mask: (B or 1, 1, Q, C) True where a query sees a key.
        common: how many first keys and values all rows have alike.
        scale: of the scores.

    Returns:
        (B, Q, H, D)
    """
    rows, heads, length, width = query.shape
    kept = key.shape[1]
    own = query.reshape(rows, kept, -1, width) * scale  # (B, K, G·Q, D)
    stacked = own.transpose(0, 1).reshape(kept, -1, width)
    shared = (stacked @ key[0, :, :common].transpose(1, 2)).view(kept, rows, -1, common).transpose(0, 1)
    after = own @ key[:, :, common:].transpose(2, 3)
    later = after.view(rows, kept, -1, length, after.shape[-1])
    later.masked_fill_(~mask[:, :, None, :, common:], -torch.inf)
    weights = torch.softmax(torch.cat([shared, after], dim=-1), dim=-1)
    stacked = weights[..., :common].transpose(0, 1).reshape(kept, -1, common)
    found = (stacked @ value[0, :, :common]).view(kept, rows, -1, width).transpose(0, 1)
    found = found + weights[..., common:] @ value[:, :, common:]
    return found.reshape(rows, heads, length, width).transpose(1, 2)
