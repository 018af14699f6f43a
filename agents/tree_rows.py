"""Whether a model reads tree-shaped rows right: masks that say which token sees which, and restarted positions."""

import inspect
import logging
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import torch

_LOG = logging.getLogger(__name__)
_MASKED_ATTENTION = ("sdpa", "eager")
_TOLERANCE = 1e-3
"""Of the probe, relative, and 30 times that for half types; what is not supported is wrong by far more."""

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
    """Read `a b c`, `a d e` as one tree and as two rows."""
    device = next(decoder.parameters()).device
    tree = torch.tensor([[1, 2, 3, 4, 5]], device=device)
    positions = torch.tensor([[0, 1, 2, 1, 2]], device=device)
    sees = torch.tensor(
        [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 0, 0, 1, 0], [1, 0, 0, 1, 1]], device=device
    )
    rows = torch.tensor([[1, 2, 3], [1, 4, 5]], device=device)
    with torch.no_grad():
        shaped = (
            decoder(
                input_ids=tree,
                position_ids=positions,
                attention_mask=sees.bool()[None, None],
                use_cache=False,
            )
            .last_hidden_state[0]
            .float()
        )
        flat = decoder(input_ids=rows, use_cache=False).last_hidden_state.float()
    gap = (shaped[[1, 2, 3, 4]] - flat[:, 1:].reshape(4, -1)).norm() / flat.norm()
    tolerance = _TOLERANCE if decoder.dtype in (torch.float32, torch.float64) else 30 * _TOLERANCE
    return (
        None if float(gap) < tolerance else "reads a tree-shaped row otherwise than its branches one by one"
    )
