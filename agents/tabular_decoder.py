"""The model of a tabular policy: a decoder whose hidden state at a position is a row of a table."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

ROOT, LOST = 0, 1
"""States of the reader: nothing read yet; something read that the table does not know."""
Tokens = tuple[int, ...]


class TabularDecoder(nn.Module):
    """Reads tokens and looks up a row of logits, one for each action token; NaN wherever nothing is to be chosen.

    NaN on purpose: sampler and trainer refuse scores that are not finite, so a context that was not enumerated is
    found out and not played by a table of zeros.
    """

    def __init__(self, contexts: tuple[Tokens, ...], num_actions: int, vocabulary: int) -> None:
        super().__init__()
        following: list[dict[int, int]] = [{}, {}]
        rows = [len(contexts)] * 2
        for row, context in enumerate(contexts):
            state = ROOT
            for token in context:
                if token not in following[state]:
                    following[state][token] = len(following)
                    following.append({})
                    rows.append(len(contexts))
                state = following[state][token]
            rows[state] = row
        moves = torch.full((len(following), vocabulary), LOST, dtype=torch.int32)
        for state, nexts in enumerate(following):
            for token, after in nexts.items():
                moves[state, token] = after
        self.config = SimpleNamespace(
            hidden_size=num_actions,
            num_hidden_layers=1,
            num_attention_heads=1,
            head_dim=1,
            _attn_implementation="eager",
        )
        """What a transformer's would say: one cached number a token, masks understood."""
        self.register_buffer("moves", moves)
        self.register_buffer("rows", torch.tensor(rows))
        self.register_buffer("nowhere", torch.full((1, num_actions), torch.nan))
        self.logits = nn.Parameter(torch.zeros(len(contexts), num_actions))

    @property
    def dtype(self) -> torch.dtype:
        """Of the logits."""
        return self.logits.dtype

    def forward(
        self,
        input_ids: Tensor,
        position_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        use_cache: bool = False,
        past_key_values: Any = None,
    ) -> SimpleNamespace:
        """Rows of logits (B, T, A) as `last_hidden_state`, as a decoder gives hidden states.

        The cache holds what was read: token ids as keys. A mask says which tokens precede which (packed rows).
        """
        if past_key_values is None:
            states = self._walk(input_ids, attention_mask)
        else:
            assert position_ids is not None
            ids = input_ids[:, None, :, None]
            read, _ = past_key_values.update(ids, ids, 0)
            states = self._walk(read[:, 0, :, 0], None).gather(1, position_ids.expand(input_ids.shape))
        table = torch.cat((self.logits, self._buffer("nowhere")))
        return SimpleNamespace(last_hidden_state=functional.embedding(self._buffer("rows")[states], table))

    def _walk(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        """(B, T) the reader's state after each token: its predecessor's, moved on."""
        num_rows, length = ids.shape
        moves = self._buffer("moves")
        states = torch.full((num_rows, length + 1), ROOT, dtype=torch.int64, device=ids.device)
        before = torch.arange(length, device=ids.device).expand(num_rows, length)
        if mask is not None:
            seen = mask.expand(num_rows, 1, length, length)[:, 0] & torch.ones(length, length).tril(-1).bool()
            places = torch.arange(1, length + 1, device=ids.device)
            before = (seen * places).amax(-1)
        for place in range(length):
            known = states.gather(1, before[:, place : place + 1])[:, 0]
            states[:, place + 1] = moves[known, ids[:, place]]
        return states[:, 1:]

    def _buffer(self, name: str) -> Tensor:
        found: Tensor = self.get_buffer(name)
        return found
