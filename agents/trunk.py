"""One causal transformer without its head: positions, masks, caches, with one adapter (or none) applied."""

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from coplay.agents.adapters import SharedAdapters
from coplay.agents.common_attention import Common
from coplay.agents.tree_attention import TreeMask, causal
from coplay.agents.tree_rows import read, reads_blocks, reads_trees

WORTHWHILE = 4e7
"""Pairs of tokens that `sdpa` looks at in a row, times the width, below which blocks cost more than they save."""
COPIES = 1 << 18
"""Numbers in copies of a common beginning in one layer's keys above which it pays to read one of them."""


class Trunk:
    """A decoder and the adapters to apply while it runs; two trunks may share one decoder."""

    def __init__(
        self, decoder: Any, adapters: SharedAdapters | None = None, names: tuple[str, ...] = ()
    ) -> None:
        self.decoder = decoder
        self.adapters = adapters
        self.names = names
        self.merged = False
        """True while the layers hold weights that the adapters are merged into."""
        parameters = inspect.signature(type(decoder).forward).parameters
        self._cache_word = "cache" if "cache" in parameters else "past_key_values"
        self._checkpointed = [m for m in decoder.modules() if hasattr(type(m), "gradient_checkpointing")]

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        device: torch.device = next(self.decoder.parameters()).device
        return device

    @property
    def width(self) -> int:
        """H of the hidden states."""
        width: int = self.decoder.config.hidden_size
        return width

    @property
    def reads_trees(self) -> bool:
        """True if `hidden` is right for tree-shaped rows too."""
        return reads_trees(self.decoder)

    @property
    def reads_blocks(self) -> bool:
        """True if attention over long rows costs what their tokens see, not the square of their length."""
        return self.device.type == "cpu" and reads_blocks(self.decoder)

    def hidden(
        self,
        input_ids: Tensor,
        position_ids: Tensor | None = None,
        attention_mask: Tensor | TreeMask | None = None,
    ) -> Tensor:
        """Last hidden states.

        Args:
            input_ids: (B, T).
            position_ids: (B, T); None counts the included tokens of each row, left- or right-padded.
            attention_mask: (B, T) True where a token is real, (B, 1, T, T) True where a query sees a key, or the
                trees that the rows are.

        Returns:
            (B, T, H); finite everywhere, meaningless at padding.
        """
        tree = attention_mask if isinstance(attention_mask, TreeMask) else None
        positions, mask = position_ids, None
        if not isinstance(attention_mask, TreeMask):
            positions, mask = positions_and_mask(input_ids, position_ids, attention_mask)
        self._activate()
        for layer in self._checkpointed:
            layer.training = layer.gradient_checkpointing and torch.is_grad_enabled()
        if mask is None and self._by_blocks(input_ids, tree):
            return read(self.decoder, input_ids, positions, tree or causal(*input_ids.shape))
        return read(self.decoder, input_ids, positions, tree.dense() if tree is not None else mask)

    def _by_blocks(self, input_ids: Tensor, tree: TreeMask | None) -> bool:
        """Whether attention block by block is right here, and worth it; without a mask `sdpa` halves its work."""
        pairs = input_ids.shape[1] ** 2 / (2 if tree is None else 1)
        return pairs * self.width >= WORTHWHILE and not torch.is_autocast_enabled("cpu") and self.reads_blocks

    def extend(
        self,
        input_ids: Tensor,
        position_ids: Tensor,
        mask: Tensor,
        cache: Any,
        *,
        common: Sequence[Common] = (),
    ) -> Tensor:
        """Hidden states (B, Q, H) of new tokens after those in `cache`, which takes up their keys and values.

        Args:
            input_ids: (B, Q).
            position_ids: (B or 1, Q).
            mask: (B or 1, 1, Q, K), True where a new token may see a cached or new one.
            cache: has `update(keys, values, layer) -> (keys, values)`.
            common: rows whose first cached tokens are alike and seen by all of them.
        """
        self._activate()
        for layer in self._checkpointed:
            layer.training = False
        words = {self._cache_word: cache}
        worth = [one for one in common if one.length * (one.stop - one.first) * self.width >= COPIES]
        if worth and self.reads_blocks:
            words["common"] = worth
        output = self.decoder(
            input_ids=input_ids, position_ids=position_ids, attention_mask=mask, use_cache=True, **words
        )
        hidden: Tensor = output.last_hidden_state
        return hidden

    def _activate(self) -> None:
        if self.adapters is not None:
            self.adapters.activate(() if self.merged else self.names)


def positions_and_mask(
    input_ids: Tensor, position_ids: Tensor | None, attention_mask: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """Reduce to the cheapest equal form: plain causal rows need no mask, nor do rows padded on the right."""
    length = input_ids.shape[1]
    if attention_mask is None or attention_mask.ndim == 4:
        if attention_mask is None and position_ids is not None:
            plain = torch.arange(length, device=input_ids.device).expand_as(position_ids)
            if torch.equal(position_ids, plain):
                return None, None
            # without a mask transformers would read restarted positions as packed rows
            attention_mask = _causal(length, input_ids.device)
        return position_ids, attention_mask
    real = attention_mask.bool()
    right_padded = bool((real[:, 1:] <= real[:, :-1]).all())
    counted = torch.arange(length, device=input_ids.device)
    if right_padded and (position_ids is None or bool(((position_ids == counted) | ~real).all())):
        return None, None  # causality alone hides padding on the right
    if position_ids is None:
        position_ids = (real.long().cumsum(1) - 1).clamp_min(0)
    # padding sees itself: a query without any key has no softmax
    itself = torch.eye(length, dtype=torch.bool, device=input_ids.device)
    mask = (_causal(length, input_ids.device) & real[:, None, None, :]) | itself
    return position_ids, mask


def _causal(length: int, device: torch.device) -> Tensor:
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()[None, None]
