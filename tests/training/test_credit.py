"""Returns and generalised advantages: relations, padding, time limits."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coplay.training.credit import discounted_returns, discounted_sums, generalized_advantages, token_credits

RATES = st.sampled_from([0.0, 0.3, 0.5, 0.9, 0.96, 1.0])


@st.composite
def games(draw):
    """Rewards, values, right-padded mask and bootstrap of a few games."""
    rows, ticks = draw(st.integers(1, 4)), draw(st.integers(1, 9))
    seed = draw(st.integers(0, 10_000))
    lengths = torch.tensor(draw(st.lists(st.integers(0, ticks), min_size=rows, max_size=rows)))
    random = torch.Generator().manual_seed(seed)
    rewards, values = torch.randn(2, rows, ticks, generator=random, dtype=torch.float64)
    bootstrap = torch.randn(rows, generator=random, dtype=torch.float64)
    return rewards, values, torch.arange(ticks) < lengths[:, None], bootstrap


def by_hand(rewards, values, mask, bootstrap, discount, gae_lambda):
    """The recursion of the paper, one cell at a time."""
    out = torch.zeros_like(rewards)
    for row in range(len(rewards)):
        following, carried = float(bootstrap[row]), 0.0
        for tick in reversed(range(int(mask[row].sum()))):
            error = float(rewards[row, tick]) + discount * following - float(values[row, tick])
            carried = error + discount * gae_lambda * carried
            following = float(values[row, tick])
            out[row, tick] = carried
    return out


@settings(max_examples=25)
@given(games(), RATES, RATES)
def test_generalized_advantages_equal_the_recursion_cell_by_cell(game, discount, gae_lambda):
    rewards, values, mask, bootstrap = game
    got = generalized_advantages(
        rewards, values, discount=discount, gae_lambda=gae_lambda, mask=mask, bootstrap=bootstrap
    )
    assert torch.allclose(got, by_hand(*game, discount, gae_lambda), atol=1e-12)


@settings(max_examples=25)
@given(games(), RATES)
def test_generalized_advantages_with_lambda_one_are_returns_minus_values(game, discount):
    rewards, values, mask, bootstrap = game
    got = generalized_advantages(
        rewards, values, discount=discount, gae_lambda=1.0, mask=mask, bootstrap=bootstrap
    )
    returns = discounted_returns(rewards, discount=discount, mask=mask, bootstrap=bootstrap)
    assert torch.allclose(got, torch.where(mask, returns - values, 0.0), atol=1e-12)


@settings(max_examples=25)
@given(games(), RATES, RATES)
def test_generalized_advantages_with_poisoned_padding_are_the_same_to_the_bit(game, discount, gae_lambda):
    """Law 3; B13: the critic on padding is never read, nor has it a gradient."""
    rewards, values, mask, bootstrap = game
    outcomes = []
    for filler in (0.0, float("nan"), 1e9):
        r, v = (torch.where(mask, x, filler).requires_grad_() for x in (rewards, values))
        got = generalized_advantages(
            r, v, discount=discount, gae_lambda=gae_lambda, mask=mask, bootstrap=bootstrap
        )
        returns = discounted_returns(r, discount=discount, mask=mask, bootstrap=bootstrap)
        gradients = torch.autograd.grad((got * returns).sum(), (r, v))
        outcomes.append((got, returns, *gradients))
    for other in outcomes[1:]:
        assert all(torch.equal(a, b) for a, b in zip(outcomes[0], other, strict=True))


@settings(max_examples=25)
@given(games(), RATES, st.integers(1, 8), st.randoms())
def test_returns_of_permuted_and_wider_rows_are_the_same_to_the_bit(game, discount, more, random):
    """Laws 4 and 5."""
    rewards, _, mask, bootstrap = game
    plain = discounted_returns(rewards, discount=discount, mask=mask, bootstrap=bootstrap)
    order = torch.tensor(random.sample(range(len(rewards)), len(rewards)))
    permuted = discounted_returns(
        rewards[order], discount=discount, mask=mask[order], bootstrap=bootstrap[order]
    )
    assert torch.equal(permuted, plain[order])
    r, m = torch.nn.functional.pad(rewards, (0, more), value=3.0), torch.nn.functional.pad(mask, (0, more))
    wider = discounted_returns(r, discount=discount, mask=m, bootstrap=bootstrap)
    assert torch.equal(wider[:, : rewards.shape[1]], plain)
    assert (wider[:, rewards.shape[1] :] == 0).all()


def test_advantages_at_game_over_and_at_the_round_limit_differ_by_the_bootstrap():
    """B15's numbers, alone and side by side."""
    rewards, values = torch.ones(2, 3, dtype=torch.float64), torch.zeros(2, 3, dtype=torch.float64)
    bootstrap = torch.tensor([0.0, 4.0], dtype=torch.float64)
    both = generalized_advantages(rewards, values, discount=0.5, gae_lambda=1.0, bootstrap=bootstrap)
    assert both.tolist() == [[1.75, 1.5, 1.0], [2.25, 2.5, 3.0]]
    assert torch.equal(discounted_returns(rewards, discount=0.5, bootstrap=bootstrap), both)
    for row in (0, 1):
        alone = generalized_advantages(
            rewards[row : row + 1],
            values[:1],
            discount=0.5,
            gae_lambda=1.0,
            bootstrap=bootstrap[row : row + 1],
        )
        assert torch.equal(alone[0], both[row])


def test_bootstrap_of_a_shorter_row_stands_after_its_last_tick():
    mask = torch.tensor([[True, False, False], [True, True, True]])
    got = discounted_returns(torch.ones(2, 3), discount=0.5, mask=mask, bootstrap=torch.tensor([4.0, 0.0]))
    assert got.tolist() == [[3.0, 0, 0], [1.75, 1.5, 1.0]]


def test_mask_with_a_hole_is_refused_with_its_place():
    """B12: an opponent's turn is no padding; silently restarting the scan there lost the reward."""
    mask = torch.tensor([[True, True, False, False, True]])
    rewards = torch.tensor([[0.0, 0, 0, 0, 2]])
    for call in (
        lambda: discounted_returns(rewards, discount=1.0, mask=mask),
        lambda: generalized_advantages(rewards, rewards, discount=1.0, gae_lambda=1.0, mask=mask),
    ):
        with pytest.raises(
            ValueError, match="row 0 is True at tick 4 after False at tick 3; expected a right-padded"
        ):
            call()


def test_every_action_token_before_the_reward_has_the_return():
    """B12: ticks without own tokens are ticks; the tokens on both sides get return 2."""
    returns = discounted_returns(torch.tensor([[0.0, 0.0, 2.0]]), discount=1.0)
    ticks = torch.tensor([0, 0, 2])  # the opponent's tick 1 holds no token of this player
    assert token_credits(returns, torch.zeros(3, dtype=torch.long), ticks).tolist() == [2, 2, 2]


def test_discount_counts_ticks_not_tokens():
    """B66's numbers: two turns of 100 tokens, reward 1 at the end."""
    returns = discounted_returns(torch.tensor([[0.0, 1.0]], dtype=torch.float64), discount=0.9)
    credits = token_credits(returns, torch.zeros(200, dtype=torch.long), torch.arange(200) // 100)
    assert credits[:100].tolist() == [0.9] * 100
    assert credits[100:].tolist() == [1.0] * 100


@pytest.mark.parametrize("discount", [0.0, 0.5, 0.96, 1.0])
def test_returns_of_a_long_game_in_float32_are_finite_and_right(discount):
    rewards = torch.ones(2, 10_000)
    got = discounted_returns(rewards, discount=discount)
    exact = 10_000.0 if discount == 1 else (1 - discount**10_000) / (1 - discount)
    assert torch.isfinite(got).all()
    assert got[0, 0] == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"discount": 1.5}, r"discount is 1\.5"),
        ({"discount": 0.9, "bootstrap": torch.ones(3)}, r"bootstrap has shape \(3,\); expected \(2,\)"),
        (
            {"discount": 0.9, "mask": torch.ones(2, 3)},
            r"mask is torch\.float32 \(2, 3\); expected torch\.bool",
        ),
    ],
)
def test_returns_of_wrong_arguments_are_refused(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        discounted_returns(torch.ones(2, 3), **arguments)


def test_generalized_advantages_of_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match=r"values have shape \(2, 2\)"):
        generalized_advantages(torch.ones(2, 3), torch.ones(2, 2), discount=0.9, gae_lambda=0.9)
    with pytest.raises(ValueError, match=r"gae_lambda is -0\.1"):
        generalized_advantages(torch.ones(2, 3), torch.ones(2, 3), discount=0.9, gae_lambda=-0.1)
    with pytest.raises(ValueError, match=r"rewards have shape \(3,\)"):
        discounted_returns(torch.ones(3), discount=0.9)


def test_credit_changes_nothing_in_place_and_keeps_the_dtype():
    for dtype in (torch.float32, torch.float64):
        x = torch.ones(2, 5, dtype=dtype)
        assert generalized_advantages(x, x, discount=0.9, gae_lambda=0.9).dtype == dtype
        assert discounted_sums(x, 0.5).dtype == dtype
        assert torch.equal(x, torch.ones(2, 5, dtype=dtype))
