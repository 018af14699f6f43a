"""OpenSpiel's 1,000 instances of deal or no deal, as our own game has them."""

from collections import Counter
from statistics import mean
from typing import Any

import pytest

from coplay.games.best_outcomes import efficient_points, split_points
from coplay.games.deal_instances import DealInstance, all_instances

pytestmark = pytest.mark.needs("pyspiel")


@pytest.fixture(scope="module")
def instances() -> tuple[DealInstance, ...]:
    import pyspiel

    found = pyspiel.load_game("bargaining").all_instances()
    return tuple(
        DealInstance(tuple(each.pool), (tuple(each.values[0]), tuple(each.values[1]))) for each in found
    )


def tables(instances: Any) -> list[tuple[tuple[float, float], ...]]:
    """The pay of both for every split, of each instance."""
    return [split_points(each.counts, each.values) for each in instances]


def test_instances_when_the_librarys_then_a_thousand_of_ours(instances: tuple[DealInstance, ...]) -> None:
    assert len(instances) == len(set(instances)) == 1000
    assert set(instances) <= set(all_instances())
    assert Counter(sum(each.counts) for each in instances) == {5: 426, 6: 327, 7: 247}


def test_splits_when_the_librarys_instances_then_the_reference_means(
    instances: tuple[DealInstance, ...],
) -> None:
    found = tables(instances)
    products = [max(a * b for a, b in table) for table in found]
    expected = {
        15.1220: [max(a + b for a, b in table) for table in found],
        56.1170: products,
        6.6040: [max(min(pair) for pair in table) for table in found],
        21.669: [len(table) for table in found],
        0.2239: [share_of_efficient(table) for table in found],
        5.0: [mean(pair) for table in found for pair in table],
        0.0488: [1 / len(table) for table in found],
    }
    for told, numbers in expected.items():
        assert mean(numbers) == pytest.approx(told, abs=5e-5)
    # Where several splits have the greatest product, the mean of their sums.
    best = [[a + b for a, b in table if a * b == top] for table, top in zip(found, products, strict=True)]
    assert mean(map(mean, best)) == pytest.approx(15.0585, abs=5e-5)


def share_of_efficient(table: tuple[tuple[float, float], ...]) -> float:
    efficient = set(efficient_points(table))
    return mean(pair in efficient for pair in table)


@pytest.mark.parametrize(
    ("threshold", "best", "random"),
    [(3, 8.9135, 2.9747), (4, 8.5395, 2.5055), (5, 7.7975, 1.9021), (6, 7.3900, 1.5822)],
)
def test_offer_when_the_other_has_a_threshold_then_the_reference(
    instances: tuple[DealInstance, ...], threshold: int, best: float, random: float
) -> None:
    """One offer, both roles: what pays most to one who knows both values, and what a random one pays."""
    both = [pairs for table in tables(instances) for pairs in (table, [(b, a) for a, b in table])]
    paid = [[own if other >= threshold else 0 for own, other in pairs] for pairs in both]
    assert mean(map(max, paid)) == pytest.approx(best, abs=5e-5)
    assert mean(map(mean, paid)) == pytest.approx(random, abs=5e-5)
