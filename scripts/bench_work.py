"""What a training step cannot do without: distinct tokens, what they see, what is asked of a head; and its FLOP."""

from dataclasses import dataclass

import torch

from coplay.agents.policy import Policy
from coplay.training.records import TokenBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What had to be done: counts of distinct tokens, queries and keys, and distributions."""

    tokens: int
    pairs: int
    distributions: int

    def flop(self, policy: Policy, batch: TokenBatch) -> float:
        """Forward and backward: matrices, attention, and the head at action positions.

        A matrix of a frozen layer costs 2 + 2 a parameter and token, a trained one 2 + 2 + 2; attention 4 + 8 a pair,
        layer and column. Asked for a few ids only, a head costs these.
        """
        trunk = policy.trunk.decoder
        trained = {id(tensor) for tensor in policy.named_parameters().values()}
        matrices = [tensor for name, tensor in trunk.named_parameters() if tensor.ndim == 2]
        matrices = [tensor for tensor in matrices if tensor is not trunk.get_input_embeddings().weight]
        per_token = sum(tensor.numel() * (6 if id(tensor) in trained else 4) for tensor in matrices)
        config = trunk.config
        width = config.num_attention_heads * getattr(
            config, "head_dim", config.hidden_size // config.num_attention_heads
        )
        attention = 12 * width * config.num_hidden_layers * self.pairs
        asked = policy.vocabulary
        if bool((batch.allowed.index >= 0).all()):
            asked = len(set(batch.allowed.table[batch.allowed.table_mask].tolist()))
        head = policy.weights.network.head.weight
        per_score = (6 if id(head) in trained else 4) * config.hidden_size
        return float(per_token * self.tokens + attention + per_score * asked * self.distributions)


def work_of(batch: TokenBatch) -> Work:
    """Count what a step over a batch cannot do without, by listing every prefix."""
    ends = torch.zeros(len(batch.ids), dtype=torch.long).scatter_reduce(0, batch.row, batch.column, "amax")
    node: dict[tuple[int, int], int] = {}
    pairs = 0
    read: dict[tuple[int, int], int] = {}
    for number, (row, end) in enumerate(zip(batch.ids.tolist(), ends.tolist(), strict=True)):
        parent = -1
        for depth, token in enumerate(row[:end]):
            if (parent, token) not in node:
                node[parent, token] = len(node)
                pairs += depth + 1
            parent = node[parent, token]
            read[number, depth] = parent
    asked = {
        (read[row, column - 1], heat, allowed)
        for row, column, heat, allowed in zip(
            batch.row.tolist(), batch.column.tolist(), batch.temperature.tolist(), batch.allowed.index.tolist(),
            strict=True,
        )
    }  # fmt: skip
    return Work(tokens=len(node), pairs=pairs, distributions=len(asked))
