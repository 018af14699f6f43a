"""Mixtures: which game a group plays is a function of names, and weights hold to the group."""

from collections import Counter
from math import ceil, floor

import pytest

from coplay.games import Mixture, Variant, make_game


def variant(name: str, place: int, weight: float, **parameters: object) -> Variant:
    game = make_game("iterated_matrix", num_rounds=place + 1, **parameters)
    return Variant(name=name, label=f"{name} {place}", game=game, weight=weight)


MIXTURE = Mixture(
    variants=tuple(
        [variant("a", place, 0.15) for place in range(4)] + [variant("b", place, 0.1) for place in range(4)]
    )
)


@pytest.mark.parametrize("num_groups", [1, 3, 8, 10])
def test_assignment_when_counted_then_every_share_to_the_group(num_groups: int) -> None:
    shares = MIXTURE.shares()
    assert sum(shares.values()) == pytest.approx(1)
    for iteration in range(50):
        found = MIXTURE.assign(run_seed=7, iteration=iteration, num_groups=num_groups)
        counts = Counter(one.label for one in found)
        for label, share in shares.items():
            assert floor(num_groups * share) <= counts[label] <= ceil(num_groups * share)
        names = Counter(one.name for one in found)
        for name, share in {"a": 0.6, "b": 0.4}.items():
            assert floor(num_groups * share + 1e-9) <= names[name] <= ceil(num_groups * share - 1e-9)


def test_assignment_when_many_iterations_then_each_share_in_expectation_and_any_pair_meets() -> None:
    """6,000 groups of 2; a share's deviation is below five standard errors of independent draws."""
    counts: Counter[str] = Counter()
    pairs: set[tuple[str, str]] = set()
    for iteration in range(3000):
        one, other = MIXTURE.assign(run_seed=1, iteration=iteration, num_groups=2)
        counts.update([one.label, other.label])
        pairs.add((one.label, other.label))
    for label, share in MIXTURE.shares().items():
        assert abs(counts[label] / 6000 - share) < 5 * (share * (1 - share) / 6000) ** 0.5
    assert {("a 0", f"b {place}") for place in range(4)} <= pairs


def test_assignment_when_asked_again_then_the_same_and_another_seed_or_iteration_is_another() -> None:
    asked = [(1, 0), (1, 1), (2, 0)]
    found = [MIXTURE.assign(run_seed=seed, iteration=iteration, num_groups=8) for seed, iteration in asked]
    again = [MIXTURE.assign(run_seed=s, iteration=i, num_groups=8) for s, i in reversed(asked)][::-1]
    assert found == again
    assert len({tuple(one.label for one in each) for each in found}) == 3


def test_mixture_when_players_are_named_in_another_order_then_taken_and_other_names_refused() -> None:
    one = variant("a", 0, 1.0)
    assert Mixture(variants=(one, variant("b", 1, 1.0, players=("Bo", "Ada")))).names == ("a", "b")
    with pytest.raises(ValueError, match=r"expected the same names, in any order"):
        Mixture(variants=(one, variant("b", 1, 1.0, players=("Bo", "Cy"))))
    with pytest.raises(ValueError, match="each of its own label"):
        Mixture(variants=(one, one))
    with pytest.raises(ValueError, match="expected one above 0"):
        Mixture(variants=(variant("a", 0, 0.0),))
