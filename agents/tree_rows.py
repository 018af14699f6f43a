"""Whether a model reads tree-shaped rows right: masks that say which token sees which, and restarted positions."""

import inspect
import logging
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from coplay.agents.tree_attention import NAME, TreeMask

_LOG = logging.getLogger(__name__)
_MASKED_ATTENTION = ("sdpa", "eager", NAME)
_known: WeakKeyDictionary[Any, str | None] = WeakKeyDictionary()
_blocked: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def read(
    decoder: Any, input_ids: Tensor, position_ids: Tensor | None, attention_mask: Tensor | TreeMask | None
) -> Tensor:
    """Last hidden states (B, T, H) of rows under a mask, or of trees block by block, which `reads_blocks` allows."""
    given: dict[str, Any] = {"attention_mask": attention_mask}
    if isinstance(attention_mask, TreeMask):
        width = input_ids.shape[1]
        # transformers makes no mask of its own beside one of this shape, which is not looked at
        seen = torch.ones(1, dtype=torch.bool, device=input_ids.device)
        given = {"attention_mask": seen.expand(len(input_ids), 1, width, width), "tree": attention_mask}
    output = decoder(input_ids=input_ids, position_ids=position_ids, use_cache=False, **given)
    states: Tensor = output.last_hidden_state
    return states


def reads_trees(decoder: Any) -> bool:
    """True if a decoder gives each token of a tree-shaped row the hidden state it has in its own row.

    Asked and probed once for each decoder; a refusal is told once.
    """
    if decoder not in _known:
        _known[decoder] = _stands_in_the_way(decoder) or _differs(decoder)
    reason = _known[decoder]
    if reason is not None:
        _tell(f"{type(decoder).__name__} {reason}")
    return reason is None


def reads_blocks(decoder: Any) -> bool:
    """True if a decoder's attention may be computed block by block; asked and probed once for each decoder."""
    if decoder not in _blocked:
        _blocked[decoder] = (
            decoder.config._attn_implementation == NAME
            and decoder.dtype == torch.float32
            and _takes_more(decoder)
            and reads_trees(decoder)
            and _differs(decoder, blocks=True) is None
        )
    return _blocked[decoder]


def _takes_more(decoder: Any) -> bool:
    """Whether it may be given words of which only its attention knows."""
    parameters = inspect.signature(type(decoder).forward).parameters.values()
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)


@cache
def _tell(reason: str) -> None:
    _LOG.warning("%s: rows that begin alike are read one by one, not as trees", reason)


def _stands_in_the_way(decoder: Any) -> str | None:
    """What its class and configuration say against it."""
    lacks = {"position_ids", "attention_mask"} - inspect.signature(type(decoder).forward).parameters.keys()
    if lacks:
        return f"takes no {' and no '.join(sorted(lacks))}"
    config = decoder.config
    kinds = sorted(set(getattr(config, "layer_types", None) or ()) - {"full_attention"})
    if kinds:
        return f"has layers of kind {', '.join(kinds)}"
    window = getattr(config, "sliding_window", None)
    if window is not None and getattr(config, "use_sliding_window", True):
        return f"has a sliding window of {window} tokens"
    if getattr(decoder, "_is_stateful", False):
        return "keeps a state in place of attention"
    attention = getattr(config, "_attn_implementation", None)
    if attention not in _MASKED_ATTENTION:
        return f"computes attention by {attention!r}, which takes no such mask"
    return None


def _differs(decoder: Any, *, blocks: bool = False) -> str | None:
    """Read two rows that begin alike as one tree and as rows; the second branch stands far behind its ancestor."""
    device = next(decoder.parameters()).device
    start, first, second = (torch.arange(count, device=device) % 5 for count in (2, 40, 6))
    length = len(start) + len(first)
    tree = torch.cat([start, first, second + 1])
    positions = torch.cat([torch.arange(length), torch.arange(len(start), len(start) + len(second))])
    exits = torch.full((1, len(tree)), len(tree), device=device)
    exits[:, len(start) : length] = length
    mask = TreeMask(exits)
    with torch.no_grad():
        shaped = read(decoder, tree[None], positions.to(device)[None], mask if blocks else mask.dense())[0]
        rows = (tree[:length], torch.cat([start, second + 1]))
        flat = [read(decoder, row[None], None, None)[0] for row in rows]
        apart = torch.cat([flat[0], flat[1][len(start) :]])
    told = ~(shaped.isnan() & apart.isnan())  # a table says nothing where there is nothing to choose
    gap, size = (shaped.float() - apart.float())[told].norm(), apart.float()[told].norm()
    tolerance = 1e-4 if decoder.dtype in (torch.float32, torch.float64) else 0.1
    alike = bool(gap <= tolerance * size)  # False if either is no number
    return None if alike else "reads a tree-shaped row otherwise than its branches one by one"
