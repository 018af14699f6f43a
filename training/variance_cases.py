"""Games small enough to count through: the exact variance of the gradient with and without groups.

One parameter: action 1 with chance p, score a - p. A reward R(x, a) of luck x, uniform over a few values, and action a.
A batch is N games in groups of k that share x. All outcomes of a batch go through the run's own estimator.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from coplay.training.estimators import estimate
from coplay.training.extract import ungrouped
from coplay.training.masked import masked_sum
from coplay.training.records import PathKey, TickTable
from coplay.training.schemes import ReturnsEstimator


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A game of one move, and how a batch of it is grouped."""

    name: str
    reward: Callable[[float, int], float]
    """R(x, a)."""
    luck: tuple[float, ...]
    """The values of x, equally likely."""
    chance: float = 0.5
    """p, of action 1."""
    games: int = 4
    """N; a multiple of the group size."""
    group_size: int = 2
    """k."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """Exact mean and variance of the batch's gradient, with groups (forced, even without luck) and without."""

    mean: float
    mean_ungrouped: float
    variance: float
    variance_ungrouped: float

    @property
    def ratio(self) -> float:
        """Ungrouped over grouped: above 1 where groups help."""
        return self.variance_ungrouped / self.variance


CASES = (
    Case(name="additive, R = x + a", reward=lambda x, a: x + a, luck=(0.0, 8.0)),
    Case(name="additive, larger groups", reward=lambda x, a: x + a, luck=(0.0, 8.0), games=6, group_size=3),
    Case(name="additive, rare action", reward=lambda x, a: x + a, luck=(0.0, 8.0), chance=0.2),
    Case(name="mixed, R = x (1 + a)", reward=lambda x, a: x * (1 + a), luck=(1.0, 10.0)),
    Case(name="multiplicative, R = x a", reward=lambda x, a: x * a, luck=(1.0, 10.0)),
    Case(name="no luck, R = a", reward=lambda _, a: float(a), luck=(0.0,)),
)


def exact_moments(case: Case) -> Moments:
    """Mean and variance over all outcomes of g = 1/N sum_i (a_i - p) A_i, with A of estimator `returns`."""
    table, actions, chances = enumerate_batches(case)
    scores = actions - case.chance
    found: list[float] = []
    for rows in (table, ungrouped(table)):
        advantages = estimate(ReturnsEstimator(discount=1.0), rows, running_means={}).advantages[:, 0]
        batches = masked_sum(scores * advantages.reshape(scores.shape), None, 1) / case.games
        mean = float(masked_sum(chances * batches, None))
        found += [mean, float(masked_sum(chances * (batches - mean).square(), None))]
    mean, variance, mean_ungrouped, variance_ungrouped = found
    return Moments(
        mean=mean,
        mean_ungrouped=mean_ungrouped,
        variance=variance,
        variance_ungrouped=variance_ungrouped,
    )


def enumerate_batches(case: Case) -> tuple[TickTable, Tensor, Tensor]:
    """Every batch as rows of one table, its actions (outcomes, N), and its chance (outcomes,).

    Batches stay apart by their policy's version, and games of one batch by their group.
    """
    lucks = list(product(case.luck, repeat=case.games // case.group_size))
    outcomes = [(luck, actions) for luck in lucks for actions in product((0, 1), repeat=case.games)]
    rewards = [
        case.reward(luck[game // case.group_size], action)
        for luck, actions in outcomes
        for game, action in enumerate(actions)
    ]
    names = [(number, game) for number in range(len(outcomes)) for game in range(case.games)]
    full = torch.ones(len(names), 1, dtype=torch.bool)
    table = TickTable(
        keys=tuple([PathKey(f"{number:06d}/{game:05d}", "", "Ada") for number, game in names]),
        policies=tuple([f"policy@{number}" for number, _ in names]),
        opponents=("",) * len(names),
        group_ids=torch.tensor([number * case.games + game // case.group_size for number, game in names]),
        rewards=torch.tensor(rewards, dtype=torch.float64)[:, None],
        mask=full,
        acted=full,
        truncated=torch.zeros(len(names), dtype=torch.bool),
    )
    actions = torch.tensor([row for _, row in outcomes], dtype=torch.float64)
    likely = actions * case.chance + (1 - actions) * (1 - case.chance)
    return table, actions, likely.prod(dim=1) / len(lucks)
