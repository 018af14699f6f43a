"""Which part of a batch each of an update's steps is on: a function of names, never of order (laws 5, 7)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from coplay.games.chance import derive_seed
from coplay.training.config import UpdateSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Dealing:
    """How a batch is dealt out to steps."""

    num_epochs: int
    num_mini_batches: int
    seed: int
    """Of this update of this network."""

    @property
    def single(self) -> bool:
        """One step on everything."""
        return self.num_epochs == self.num_mini_batches == 1


def dealing_of(settings: UpdateSettings, *seed: int | str) -> Dealing:
    """What the settings of a run say; `seed` names the run, the network and the update."""
    return Dealing(
        num_epochs=settings.num_epochs,
        num_mini_batches=settings.num_mini_batches,
        seed=derive_seed(*seed, "mini-batches"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MiniBatch:
    """What one step is on."""

    places: Tensor
    """(n,) which tokens, or reading points, ascending."""
    num_trajectories: int


def deal(dealing: Dealing, path: Tensor, owners: Sequence[str]) -> Iterator[MiniBatch]:
    """Each step's part, epoch by epoch: whole trajectories, as many in each part as in any other or one more.

    In every epoch trajectories are put in order by a draw from (seed, epoch, name). Where there are fewer trajectories
    than mini-batches, an epoch has as many steps as trajectories.

    Args:
        path: (N,) row of the tick table of each token or point.
        owners: (B,) name of the trajectory that each row is of.
    """
    present = {owners[row] for row in torch.unique(path).tolist()}
    for epoch in range(dealing.num_epochs):
        seeds = {name: derive_seed(dealing.seed, epoch, name) for name in present}
        order = sorted(present, key=lambda name: (seeds[name], name))
        place = {name: number for number, name in enumerate(order)}
        number = torch.tensor([place.get(name, -1) for name in owners])[path]
        parts = min(dealing.num_mini_batches, len(order))
        bounds = [part * len(order) // parts for part in range(parts + 1)]
        for first, last in pairwise(bounds):
            chosen = ((number >= first) & (number < last)).nonzero().squeeze(1)
            yield MiniBatch(places=chosen, num_trajectories=last - first)
