"""Random rows of tokens that often begin alike, and batches of action tokens in them."""

import random
from collections.abc import Sequence

import torch
from hypothesis import strategies as st
from torch import Tensor

from coplay.agents.critic import Critic
from coplay.agents.policy import Policy
from coplay.agents.settings import EmbeddedModel
from coplay.training.draws import AllowedSets
from coplay.training.records import TokenBatch

SMALL = EmbeddedModel(hidden=16, intermediate=16, num_layers=2, num_heads=2)

Rows = list[list[int]]


@st.composite
def forests(draw: st.DrawFn) -> Rows:
    """Rows that often begin alike, or are alike, or go on from one another."""
    rows: Rows = []
    for _ in range(draw(st.integers(1, 9))):
        start = draw(st.sampled_from(rows)) if rows and draw(st.booleans()) else []
        kept = start[: draw(st.integers(0, len(start)))]
        rows.append(kept + draw(st.lists(st.integers(0, 3), min_size=1 if not kept else 0, max_size=6)))
    return rows


def padded(rows: Rows) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor([row + [9] * (width - len(row)) for row in rows])


def num_prefixes(rows: Sequence[Sequence[int]]) -> int:
    return len({tuple(row[: end + 1]) for row in rows for end in range(len(row))})


def push(network: Policy | Critic, amount: float) -> None:
    """Move every tensor, so that nothing is at its start."""
    luck = torch.Generator().manual_seed(1)
    moved = {
        name: value + amount * torch.randn(value.shape, generator=luck)
        for name, value in network.state().items()
    }
    network.load_state(moved)


def random_batch(rows: Rows, luck: random.Random) -> TokenBatch:
    """Action tokens at random places of rows, bound by grammars here and there, with turns of several tokens."""
    places = [(n, c) for n, row in enumerate(rows) for c in range(1, len(row)) if luck.random() < 0.7]
    places = places or [(n, 1) for n, row in enumerate(rows) if len(row) > 1]
    row, column = (torch.tensor(part, dtype=torch.long) for part in zip(*places, strict=True))
    targets = padded(rows)[row, column]
    allowed = [
        None if (n + c) % 3 else sorted({int(target), (c * 7) % 20, 5 + c % 2})
        for (n, c), target in zip(places, targets, strict=True)
    ]
    count = len(places)
    return TokenBatch(
        ids=padded(rows),
        lengths=torch.tensor([len(ids) for ids in rows]),
        row=row,
        column=column,
        targets=targets,
        behaviour=torch.tensor([-luck.random() for _ in range(count)]),
        temperature=torch.tensor([luck.choice([1.0, 1.0, 0.7]) for _ in range(count)]),
        path=row,
        tick=column // 2,
        turn=row * 100 + column // 3,
        place=torch.stack([torch.zeros_like(row), column // 3], dim=1),
        penalty=torch.zeros(count),
        entropy_mask=torch.tensor([luck.random() < 0.8 for _ in range(count)]),
        allowed=AllowedSets.from_lists(allowed),
        num_trajectories=len(rows),
        weight=torch.tensor([luck.choice([1.0, 0.5]) for _ in range(count)]),
    )
