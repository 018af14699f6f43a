"""Importance weights: units by id, no overflow, no gradient."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coplay.training.importance import (
    clip_fraction,
    effective_sample_size,
    importance_ratios,
    importance_weights,
)


@st.composite
def tokens(draw):
    """Gaps, turn ids and row ids of some flat tokens."""
    count = draw(st.integers(1, 12))
    gaps = draw(st.lists(st.floats(-2, 2), min_size=count, max_size=count))
    rows = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    turns = draw(st.lists(st.integers(0, 1), min_size=count, max_size=count))
    ids = torch.tensor([1000 * row + 7 * turn for row, turn in zip(rows, turns, strict=True)])
    return torch.tensor(gaps, dtype=torch.float64), ids, torch.tensor(rows)


@pytest.mark.parametrize("strategy", ["none", "token", "turn", "sequence"])
def test_weights_of_coinciding_policies_are_exactly_one(strategy):
    """Law 2."""
    log_probs, ids = torch.tensor([-0.1, -3.0, -7.7]), torch.tensor([0, 0, 1])
    got = importance_weights(log_probs, log_probs.clone(), strategy=strategy, turn_ids=ids, row_ids=ids)
    assert got.tolist() == [1, 1, 1]


@pytest.mark.parametrize("strategy", ["none", "token", "turn", "sequence"])
@settings(max_examples=25)
@given(case=tokens(), random=st.randoms())
def test_weights_of_shuffled_tokens_are_shuffled(strategy, case, random):
    """Law 5."""
    gaps, turns, rows = case
    zeros = torch.zeros_like(gaps)
    plain = importance_weights(gaps, zeros, strategy=strategy, turn_ids=turns, row_ids=rows)
    order = random.sample(range(len(gaps)), len(gaps))
    shuffled = importance_weights(
        gaps[order], zeros, strategy=strategy, turn_ids=turns[order], row_ids=rows[order] + 5
    )
    assert torch.allclose(shuffled, plain[order], atol=1e-12)
    assert (plain <= 2.0).all()


@settings(max_examples=25)
@given(tokens())
def test_turn_ratio_is_the_product_of_its_tokens(case):
    gaps, turns, _ = case
    got = importance_ratios(gaps, torch.zeros_like(gaps), strategy="turn", turn_ids=turns)
    for token, turn in enumerate(turns.tolist()):
        product = float(gaps[turns == turn].exp().prod())
        assert float(got[token]) == pytest.approx(product, rel=1e-9)


@pytest.mark.parametrize("strategy", ["token", "turn", "sequence"])
@pytest.mark.parametrize("gap", [1.0, -1.0, 1e4, -1e4])
def test_weights_of_long_units_do_not_overflow(strategy, gap):
    """The bound holds for the sum, not only for each token."""
    count = 5000
    ids = torch.zeros(count, dtype=torch.long)
    log_probs = torch.full((count,), gap)
    ratios = importance_ratios(log_probs, torch.zeros(count), strategy=strategy, turn_ids=ids, row_ids=ids)
    assert torch.isfinite(ratios).all()
    assert torch.isfinite(effective_sample_size(ratios))
    assert (
        importance_weights(log_probs, torch.zeros(count), strategy=strategy, turn_ids=ids, row_ids=ids).max()
        <= 2
    )


def test_weights_have_no_gradient():
    """B65: detached, so that the log-prob beside them keeps the whole gradient."""
    log_probs = torch.tensor([-1.0, -2.0], requires_grad=True)
    ids = torch.tensor([0, 0])
    for strategy in ("none", "token", "turn", "sequence"):
        got = importance_weights(log_probs, torch.zeros(2), strategy=strategy, turn_ids=ids, row_ids=ids)
        assert not got.requires_grad


@pytest.mark.parametrize("strategy", ["none", "token", "turn", "sequence"])
@pytest.mark.parametrize("poison", [float("nan"), float("-inf"), 1e9])
def test_weights_with_poison_at_masked_tokens_are_the_same(strategy, poison):
    """Law 3; the masked token belongs to the same turn."""
    mask, ids = torch.tensor([True, False, True]), torch.zeros(3, dtype=torch.long)
    outcomes = []
    for filler in (0.0, poison):
        new = torch.where(mask, torch.tensor([-1.0, 0.0, -2.0]), filler)
        arguments = {"strategy": strategy, "turn_ids": ids, "row_ids": ids, "mask": mask}
        ratios = importance_ratios(new, torch.full((3,), -1.2), **arguments)
        outcomes.append((ratios, effective_sample_size(new.exp(), mask), clip_fraction(new.exp(), 0.2, mask)))
    assert all(torch.equal(a, b) for a, b in zip(*outcomes, strict=True))
    assert outcomes[1][0][1] == 0


def test_clip_fraction_counts_the_ratios_above_the_cap():
    ratios = torch.tensor([0.5, 1.0, 3.0, 9.0])
    assert clip_fraction(ratios, 2.0) == 0.5
    assert clip_fraction(ratios, None) == 0
    assert clip_fraction(ratios, 2.0, torch.tensor([True, True, True, False])) == pytest.approx(1 / 3)


def test_effective_sample_size_of_equal_weights_is_their_number_and_of_none_is_zero():
    assert effective_sample_size(torch.full((5,), 0.3)) == pytest.approx(5)
    assert effective_sample_size(torch.ones(5), torch.zeros(5, dtype=torch.bool)) == 0


def test_weights_without_their_ids_are_refused():
    x = torch.zeros(2)
    with pytest.raises(ValueError, match="strategy 'turn' got turn_ids=None"):
        importance_weights(x, x, strategy="turn")
    with pytest.raises(ValueError, match="strategy 'sequence' got row_ids=None"):
        importance_weights(x, x, strategy="sequence")
    with pytest.raises(ValueError, match="strategy is 'word'"):
        importance_weights(x, x, strategy="word")
    with pytest.raises(ValueError, match=r"log_probs are \(2,\), behaviour_log_probs \(3,\)"):
        importance_weights(x, torch.zeros(3))
