"""Advantage Alignment against a double sum, its invariances and non-invariance; shared reward."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coplay.training.shaping import advantage_alignment, alignment_weights, shared_reward, visitation_weights

VARIANTS = [
    {},
    {"extra_discount": False},
    {"include_current": True},
    {"normalise": "t"},
    {"normalise": "t+1"},
    {"sign": True},
    {"clip": 0.3},
    {"divide_by_time": True},
    {"force_first": True},
    {"include_current": True, "clip": 0.5, "divide_by_time": True},
    {"extra_discount": False, "sign": True, "force_first": True},
    {"normalise": "t", "clip": 0.2, "force_first": True},
]
RATES = st.sampled_from([0.0, 0.5, 0.9, 0.96, 1.0])


@st.composite
def advantages(draw):
    """Own and others' advantages and a right-padded mask."""
    rows, ticks = draw(st.integers(1, 4)), draw(st.integers(1, 9))
    random = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    own, others = torch.randn(2, rows, ticks, generator=random, dtype=torch.float64)
    lengths = torch.tensor(draw(st.lists(st.integers(0, ticks), min_size=rows, max_size=rows)))
    return own, others, torch.arange(ticks) < lengths[:, None]


def by_hand(own, others, mask, beta, discount, options):
    """The double sum, cell by cell."""
    credit = torch.zeros_like(own)
    for row, tick in mask.nonzero().tolist():
        past = [float(own[row, k]) for k in range(tick)]
        if options.get("include_current"):
            weight = sum(discount ** (tick - k) * float(own[row, k]) for k in range(tick + 1))
        elif "normalise" in options:
            weight = sum(past) / (max(tick, 1) if options["normalise"] == "t" else tick + 1)
        else:
            weight = sum(discount ** (tick - k) * a for k, a in enumerate(past))
            weight *= discount if options.get("extra_discount", True) else 1.0
        if options.get("sign"):
            weight = (weight > 0) - (weight < 0)
        if "clip" in options:
            weight = min(max(weight, -options["clip"]), options["clip"])
        if options.get("divide_by_time"):
            weight /= tick + 1
        if options.get("force_first") and tick == 0:
            weight = 1.0
        credit[row, tick] = float(own[row, tick]) + beta * weight * float(others[row, tick])
    return credit


@pytest.mark.parametrize("options", VARIANTS, ids=str)
@settings(max_examples=25)
@given(case=advantages(), discount=RATES, beta=st.sampled_from([0.0, 0.5, 2.0]))
def test_advantage_alignment_equals_the_double_sum(options, case, discount, beta):
    """Rule 5."""
    got = advantage_alignment(*case[:2], mask=case[2], beta=beta, discount=discount, **options)
    assert torch.allclose(got, by_hand(*case, beta, discount, options), atol=1e-10)


@pytest.mark.parametrize("options", VARIANTS, ids=str)
@settings(max_examples=25)
@given(case=advantages(), discount=RATES)
def test_advantage_alignment_with_poisoned_padding_changes_no_value_and_no_gradient(options, case, discount):
    """Law 3."""
    own, others, mask = case
    outcomes = []
    for filler in (0.0, float("nan"), 1e9):
        a, b = (torch.where(mask, x, filler).requires_grad_() for x in (own, others))
        got = advantage_alignment(a, b, mask=mask, beta=0.7, discount=discount, **options)
        outcomes.append((got, *torch.autograd.grad(got.square().sum(), (a, b))))
    for other in outcomes[1:]:
        assert all(torch.equal(x, y) for x, y in zip(outcomes[0], other, strict=True))


@pytest.mark.parametrize("options", VARIANTS, ids=str)
@settings(max_examples=25)
@given(case=advantages(), more=st.integers(1, 6), random=st.randoms())
def test_advantage_alignment_of_permuted_or_wider_rows_is_the_same(options, case, more, random):
    """Laws 4 and 5; trailing zero padding changes nothing before it."""
    own, others, mask = case
    plain = advantage_alignment(own, others, mask=mask, beta=0.7, discount=0.9, **options)
    order = random.sample(range(len(own)), len(own))
    permuted = advantage_alignment(
        own[order], others[order], mask=mask[order], beta=0.7, discount=0.9, **options
    )
    assert torch.equal(permuted, plain[order])
    wide_own, wide_others = (
        torch.nn.functional.pad(torch.where(mask, x, 0.0), (0, more)) for x in (own, others)
    )
    wider = advantage_alignment(wide_own, wide_others, beta=0.7, discount=0.9, **options)[:, : own.shape[1]]
    assert torch.allclose(torch.where(mask, wider, 0.0), plain, atol=1e-12)


@pytest.mark.parametrize(
    "options", [o for o in VARIANTS if not {"sign", "clip", "force_first"} & set(o)], ids=str
)
@settings(max_examples=25)
@given(case=advantages(), scale=st.sampled_from([0.1, 3.0, 100.0]))
def test_scaling_rewards_and_beta_inversely_scales_credits(options, case, scale):
    """The shaping term is quadratic in rewards."""
    own, others, mask = case
    plain = advantage_alignment(own, others, mask=mask, beta=0.7, discount=0.9, **options)
    scaled = advantage_alignment(
        scale * own, scale * others, mask=mask, beta=0.7 / scale, discount=0.9, **options
    )
    assert torch.allclose(scaled, scale * plain, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("options", VARIANTS, ids=str)
@settings(max_examples=25)
@given(case=advantages())
def test_advantage_alignment_without_beta_or_others_is_the_own_advantage(options, case):
    own, others, mask = case
    alone = torch.where(mask, own, 0.0)
    assert torch.equal(advantage_alignment(own, others, mask=mask, beta=0.0, discount=0.9, **options), alone)
    nothing = torch.zeros_like(others)
    assert torch.equal(advantage_alignment(own, nothing, mask=mask, beta=2.0, discount=0.9, **options), alone)


def test_swapping_agents_swaps_credits():
    a, b = torch.tensor([[1.0, -2, 0.5]]), torch.tensor([[2.0, 1, -1]])
    both = advantage_alignment(torch.cat([a, b]), torch.cat([b, a]), beta=0.5, discount=0.9)
    swapped = advantage_alignment(torch.cat([b, a]), torch.cat([a, b]), beta=0.5, discount=0.9)
    assert torch.equal(both, swapped.flip(0))


def test_shifting_the_own_advantage_is_not_free():
    """The baseline is no free control variate under alignment."""
    a, b = (
        torch.tensor([[1.0, -2, 0.5]], dtype=torch.float64),
        torch.tensor([[2.0, 1, -1]], dtype=torch.float64),
    )
    shifted = advantage_alignment(a - 1, b, beta=0.5, discount=0.9) + 1
    assert shifted.tolist()[0] == pytest.approx([1, -2, 1.715], abs=1e-9)
    assert shifted.tolist()[0] != pytest.approx([1, -1.595, 0.9455], abs=1e-3)


def test_conventions_relate_as_documented():
    """D at β is P at β / γ; I is D plus the current advantage; N at discount 1 is P divided by time."""
    own, others = torch.randn(2, 3, 12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    d = advantage_alignment(own, others, beta=0.4, discount=0.8, extra_discount=False)
    assert torch.allclose(d, advantage_alignment(own, others, beta=0.4 / 0.8, discount=0.8), atol=1e-12)
    i = alignment_weights(own, discount=0.8, include_current=True)
    assert torch.allclose(i, alignment_weights(own, discount=0.8, extra_discount=False) + own, atol=1e-12)
    n = advantage_alignment(own, others, beta=0.4, discount=0.8, normalise="t+1")
    assert torch.allclose(
        n, advantage_alignment(own, others, beta=0.4, discount=1.0, divide_by_time=True), atol=1e-12
    )


@pytest.mark.parametrize("ticks", [128, 843, 2174, 3000, 10_000])
@pytest.mark.parametrize("discount", [0.0, 0.5, 0.9, 0.96, 1.0])
@pytest.mark.parametrize("options", [{}, {"include_current": True}, {"normalise": "t"}], ids=str)
def test_advantage_alignment_of_long_games_in_float32_is_finite_and_right(ticks, discount, options):
    """A known trap: γ^-t overflowed from tick 128, 843 or 2174 on and had no value at γ = 0."""
    own = torch.randn(1, ticks, generator=torch.Generator().manual_seed(2))
    got = alignment_weights(own, discount=discount, **options)
    exact = alignment_weights(own.double(), discount=discount, **options)
    assert torch.isfinite(got).all()
    assert torch.allclose(got.double(), exact, atol=2e-3 if discount == 1 else 1e-4)
    assert got.dtype == torch.float32


def test_several_opponents_count_as_their_sum():
    """Rule 5."""
    own, first, second = torch.randn(3, 2, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    together = advantage_alignment(own, first + second, beta=0.5, discount=0.9)
    apart = [advantage_alignment(own, other, beta=0.5, discount=0.9) - own for other in (first, second)]
    assert torch.allclose(together, own + apart[0] + apart[1], atol=1e-12)


@settings(max_examples=25)
@given(advantages())
def test_shared_reward_is_the_sum_over_players_and_the_same_for_all(case):
    """Rule 5."""
    own, others, mask = case
    got = shared_reward(torch.where(mask, own, float("nan")), others, mask=mask)
    assert torch.equal(got, torch.where(mask, own + others, 0.0))
    assert torch.equal(got, shared_reward(others, own, mask=mask))


@pytest.mark.parametrize("discount", [0.0, 0.5, 1.0])
def test_visitation_weights_are_powers_of_the_discount_on_real_ticks(discount):
    """Rule 7."""
    mask = torch.tensor([[True, True, True], [True, False, False]])
    got = visitation_weights(mask, discount)
    assert got.tolist() == [[1.0, discount, discount**2], [1.0, 0.0, 0.0]]
    long = visitation_weights(torch.ones(1, 10_000, dtype=torch.bool), discount)
    assert torch.isfinite(long).all()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"normalise": "T"}, "normalise is 'T'; expected 'none', 't' or 't"),
        ({"normalise": "t", "include_current": True}, "set one"),
        ({"clip": 0.0}, r"clip is 0\.0; expected a positive number"),
        ({"discount": 1.2}, r"discount is 1\.2"),
    ],
)
def test_advantage_alignment_with_wrong_options_is_refused(options, sentence):
    x = torch.ones(2, 3)
    with pytest.raises(ValueError, match=sentence):
        advantage_alignment(x, x, **{"beta": 1.0, "discount": 0.9, **options})


def test_shaping_of_different_shapes_is_refused():
    with pytest.raises(ValueError, match=r"own is \(2, 3\) and others is \(1, 3\)"):
        advantage_alignment(torch.ones(2, 3), torch.ones(1, 3), beta=1.0, discount=0.9)
    with pytest.raises(ValueError, match=r"mask is \(2, 2\)"):
        shared_reward(torch.ones(2, 3), torch.ones(2, 3), mask=torch.ones(2, 2).bool())
