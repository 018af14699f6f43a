"""Masked reductions: what is masked is invisible (law 3), order and padding do not count (law 4)."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coplay.training.masked import centre, keep, masked_mean, masked_std, masked_sum, segment_sum, whiten

FUNCTIONS = {
    "sum": masked_sum,
    "sum per step": lambda x, m: masked_sum(x, m, 0),
    "mean": masked_mean,
    "mean per row": lambda x, m: masked_mean(x, m, 1),
    "std": masked_std,
    "std per step": lambda x, m: masked_std(x, m, 0),
    "centre": centre,
    "centre per step": lambda x, m: centre(x, m, per_step=True),
    "whiten": whiten,
    "whiten per step": lambda x, m: whiten(x, m, per_step=True),
}


@st.composite
def masked_tables(draw):
    """A (B, S) table and a mask of any shape of holes."""
    rows, columns = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    cells = st.lists(st.integers(-40, 40), min_size=columns, max_size=columns)
    bits = st.lists(st.booleans(), min_size=columns, max_size=columns)
    x = torch.tensor(draw(st.lists(cells, min_size=rows, max_size=rows)), dtype=torch.float64) / 8
    mask = torch.tensor(draw(st.lists(bits, min_size=rows, max_size=rows)))
    return x, mask


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("poison", [float("nan"), float("inf"), 1e9])
@settings(max_examples=25)
@given(case=masked_tables())
def test_reduction_of_poisoned_padding_changes_no_value_and_no_gradient(name, poison, case):
    """Law 3; B23, B26, B67."""
    x, mask = case
    function = FUNCTIONS[name]
    outcomes = []
    for filler in (0.0, poison):
        cells = torch.where(mask, x, filler).requires_grad_()
        value = function(cells, mask)
        (gradient,) = torch.autograd.grad(
            (value * torch.arange(1.0, value.numel() + 1).reshape(value.shape)).sum(), cells
        )
        outcomes.append((value, gradient))
    for clean, poisoned in zip(*outcomes, strict=True):
        assert torch.isfinite(poisoned).all()
        assert torch.equal(clean, poisoned)
    assert (outcomes[1][1][~mask] == 0).all()


@settings(max_examples=25)
@given(case=masked_tables(), more=st.integers(1, 4))
def test_whiten_after_more_padding_is_the_same(case, more):
    """Law 4; B26."""
    x, mask = case
    wider = torch.nn.functional.pad(x, (0, more), value=7.0), torch.nn.functional.pad(mask, (0, more))
    taller = (
        torch.cat([x, torch.full((more, x.shape[1]), 7.0)]),
        torch.cat([mask, torch.zeros(more, x.shape[1]).bool()]),
    )
    for per_step in (False, True):
        plain = whiten(x, mask, per_step=per_step)
        assert torch.allclose(whiten(*wider, per_step=per_step)[:, : x.shape[1]], plain, atol=1e-12)
        assert torch.allclose(whiten(*taller, per_step=per_step)[: len(x)], plain, atol=1e-12)


@settings(max_examples=25)
@given(case=masked_tables())
def test_whiten_has_mean_zero_and_deviation_one_or_is_centred(case):
    x, mask = case
    got = whiten(x, mask)
    assert masked_mean(got, mask).abs() < 1e-9
    if masked_std(x, mask) > 0:
        assert masked_std(got, mask) == pytest.approx(1.0, abs=1e-6)
    else:
        assert torch.equal(got, centre(x, mask))


def test_whiten_of_one_row_per_step_gives_centred_values_not_nan():
    """B11."""
    x = torch.tensor([[1.0, 2.0, 3.0]])
    assert torch.equal(whiten(x, None, per_step=True), torch.zeros(1, 3))
    assert torch.equal(whiten(torch.tensor([[5.0]]), None), torch.zeros(1, 1))


@pytest.mark.parametrize("scale", [0.95, 1e6, 1e-6])
def test_whiten_of_rewards_equal_up_to_rounding_does_not_blow_up(scale):
    """B62: the residue of equal rewards counts as no spread."""
    x = torch.full((1, 7), scale)
    assert whiten(x, None).abs().max() <= 1e-6 * scale
    nudged = x * (1 + torch.tensor([0.0, 1e-7, -1e-7, 0.0, 1e-7, 0.0, 0.0]))
    assert masked_std(nudged, None) == 0
    assert whiten(nudged, None).abs().max() <= 1e-6 * scale


def test_masked_std_far_from_zero_keeps_a_real_spread():
    """B62: two passes, not mean of squares minus square of mean."""
    x = torch.tensor([[1000.0, 1000.5, 1001.0]])
    assert masked_std(x, None) == pytest.approx(0.5, rel=1e-5)


def test_reduction_of_nothing_is_zero_with_zero_gradient():
    """B25."""
    x = torch.tensor([[1.0, float("nan")]], requires_grad=True)
    mask = torch.zeros(1, 2, dtype=torch.bool)
    total = masked_mean(x, mask) + masked_sum(x, mask) + masked_std(x, mask) + whiten(x, mask).sum()
    total.backward()
    assert total == 0
    assert torch.equal(x.grad, torch.zeros(1, 2))


def test_masked_mean_of_advantages_next_to_padding_is_one():
    """B67's numbers."""
    x, mask = torch.tensor([[1.0, 1.0, 10.0, 10.0]]), torch.tensor([[True, True, False, False]])
    assert masked_mean(x, mask) == 1
    assert masked_sum(x, mask, 1).tolist() == [2]


def test_reductions_keep_the_dtype():
    for dtype in (torch.float32, torch.float64):
        x, mask = torch.ones(2, 3, dtype=dtype), torch.ones(2, 3, dtype=torch.bool)
        assert {function(x, mask).dtype for function in FUNCTIONS.values()} == {dtype}


def test_mask_of_numbers_is_refused():
    with pytest.raises(TypeError, match=r"torch\.float32; expected torch\.bool"):
        keep(torch.ones(2), torch.ones(2))


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-9, 9)), min_size=1, max_size=12), st.randoms())
def test_segment_sum_after_shuffling_is_the_same(pairs, random):
    """Law 5."""
    shuffled = random.sample(pairs, len(pairs))
    sums = []
    for order in (pairs, shuffled):
        ids, x = torch.tensor([i for i, _ in order]), torch.tensor([float(v) for _, v in order])
        sums.append(segment_sum(x, ids, 4))
    assert torch.equal(*sums)
    assert sums[0].tolist() == [sum(v for i, v in pairs if i == segment) for segment in range(4)]
