"""Whether a model reads tree-shaped rows right: masks that say which token sees which, and restarted positions."""

import inspect
import logging
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import torch

_LOG = logging.getLogger(__name__)
_MASKED_ATTENTION = ("sdpa", "eager")
_known: WeakKeyDictionary[Any, str | None] = WeakKeyDictionary()


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


def _differs(decoder: Any) -> str | None:
    """Read two rows that begin alike as one tree and as rows; the second branch stands far behind its ancestor."""
    device = next(decoder.parameters()).device
    start, first, second = (torch.arange(count, device=device) % 5 for count in (2, 40, 6))
    length = len(start) + len(first)
    tree = torch.cat([start, first, second + 1])
    positions = torch.cat([torch.arange(length), torch.arange(len(start), len(start) + len(second))])
    sees = torch.ones(len(tree), len(tree), dtype=torch.bool, device=device).tril()
    sees[length:, len(start) : length] = False
    with torch.no_grad():
        shaped = _states(
            decoder, tree, position_ids=positions.to(device)[None], attention_mask=sees[None, None]
        )
        flat = torch.cat(
            [_states(decoder, tree[:length]), _states(decoder, torch.cat([start, second + 1]))[len(start) :]]
        )
    tolerance = 1e-4 if decoder.dtype in (torch.float32, torch.float64) else 0.1
    differ = float((shaped - flat).norm() / flat.norm()) > tolerance
    return "reads a tree-shaped row otherwise than its branches one by one" if differ else None


def _states(decoder: Any, ids: torch.Tensor, **given: torch.Tensor) -> torch.Tensor:
    output = decoder(input_ids=ids[None], use_cache=False, **given)
    states: torch.Tensor = output.last_hidden_state[0].float()
    return states
