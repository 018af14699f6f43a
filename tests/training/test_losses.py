"""Losses per token: direction of the gradient, divergences, restricted entropy, nothing to train on."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coplay.training.log_probs import token_log_probs
from coplay.training.losses import entropy, huber, kl_k1, kl_k2, kl_k3, mse, normaliser, reinforce
from coplay.training.masked import masked_sum

INFINITY = float("inf")


@pytest.mark.parametrize(("credit", "direction"), [(1.0, 1), (-1.0, -1), (0.0, 0)])
def test_reinforce_moves_the_sampled_action_with_the_sign_of_its_credit(credit, direction):
    """B65: a one-token bandit with two actions; the weight is detached, the log-prob is not."""
    logits = torch.zeros(1, 2, requires_grad=True)
    log_probs = token_log_probs(logits, torch.tensor([0])).log_probs
    reinforce(log_probs, torch.tensor([credit]), log_probs.exp() / log_probs.exp().detach()).sum().backward()
    moved = torch.softmax(logits.detach() - 0.1 * logits.grad, -1)[0, 0]
    assert int(torch.sign(moved - 0.5)) == direction
    assert logits.grad.abs().max() == pytest.approx(abs(credit) / 2)


@pytest.mark.parametrize("estimator", [kl_k2, kl_k3])
def test_kl_term_alone_shrinks_the_distance_to_the_reference(estimator):
    """B65: the sign of the KL term, on all tokens weighted by their probability at sampling."""
    logits, reference = (
        torch.tensor([1.0, 0.0, -1.0], requires_grad=True),
        torch.log_softmax(torch.zeros(3), 0),
    )

    def distance(z):
        p = torch.log_softmax(z, 0)
        return float((p.exp() * (p - reference)).sum())

    p = torch.log_softmax(logits, 0)
    (p.exp().detach() * estimator(p, reference)).sum().backward()
    assert distance(logits.detach() - 0.1 * logits.grad) < distance(logits.detach())


@settings(max_examples=25)
@given(st.lists(st.floats(-5, 0), min_size=1, max_size=6), st.integers(0, 1000))
def test_kl_estimators_are_zero_at_the_reference_and_k3_is_never_negative(log_probs, seed):
    x = torch.tensor(log_probs, dtype=torch.float64)
    other = x + torch.randn(len(x), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    for estimator in (kl_k1, kl_k2, kl_k3):
        assert (estimator(x, x) == 0).all()
        assert (estimator(x, other, drop_likelier=True)[other > x] == 0).all()
    assert (kl_k3(x, other) >= 0).all()
    assert torch.equal(kl_k1(x, other), x - other) or torch.allclose(kl_k1(x, other), x - other, atol=1e-12)


@pytest.mark.parametrize("estimator", [kl_k1, kl_k2, kl_k3])
def test_kl_of_far_apart_log_probs_does_not_overflow(estimator):
    policy = torch.tensor([-900.0, 0.0], requires_grad=True)
    value = estimator(policy, torch.tensor([0.0, -900.0]))
    value.sum().backward()
    assert torch.isfinite(value).all()
    assert torch.isfinite(policy.grad).all()


@pytest.mark.parametrize("poison", [float("nan"), INFINITY, -INFINITY, 1e9])
def test_losses_with_poison_at_masked_entries_change_no_value_and_no_gradient(poison):
    """Law 3; B23."""
    mask = torch.tensor([True, False, True])
    functions = {
        "reinforce": lambda x, y: reinforce(x, y, y, mask=mask),
        "k1": lambda x, y: kl_k1(x, y, mask=mask),
        "k2": lambda x, y: kl_k2(x, y, mask=mask),
        "k3": lambda x, y: kl_k3(x, y, mask=mask, drop_likelier=True),
        "mse": lambda x, y: mse(x, y, mask=mask),
        "huber": lambda x, y: huber(x, y, mask=mask),
        "entropy": lambda x, y: entropy(torch.stack([x, y, x + y], -1), mask=mask),
    }
    for name, function in functions.items():
        outcomes = []
        for filler in (0.0, poison):
            x = torch.where(mask, torch.tensor([-1.0, 0.0, -2.0]), filler).requires_grad_()
            y = torch.where(mask, torch.tensor([-1.5, 0.0, -3.0]), filler)
            value = function(x, y)
            outcomes.append((value, *torch.autograd.grad(masked_sum(value, mask), x)))
        assert all(torch.equal(a, b) for a, b in zip(*outcomes, strict=True)), name
        assert outcomes[1][0][1] == 0, name


def test_losses_of_a_fully_masked_micro_batch_leave_the_other_one_alone():
    """B25: loss 0, gradients present and 0; the normal micro-batch is unchanged."""
    weight = torch.tensor([0.3, -0.2], requires_grad=True)
    nothing, everything = torch.zeros(2, dtype=torch.bool), torch.ones(2, dtype=torch.bool)
    divisor = normaliser("tokens", num_trajectories=1, num_tokens=2)

    def backward(*masks):
        weight.grad = None
        for mask in masks:
            loss = (
                masked_sum(reinforce(torch.log_softmax(weight, 0), torch.ones(2), mask=mask), mask) / divisor
            )
            loss.backward()
        return weight.grad.clone()

    assert torch.equal(backward(nothing), torch.zeros(2))
    assert torch.equal(backward(everything, nothing), backward(everything))
    assert torch.equal(backward(nothing, everything), backward(everything))


def test_normaliser_of_an_empty_batch_is_one():
    """B25."""
    assert normaliser("tokens", num_trajectories=0, num_tokens=0) == 1.0
    with pytest.raises(
        ValueError,
        match=r"normaliser is 'batch'; expected one of \['constant', 'sequence', 'tokens', 'trajectories'\]",
    ):
        normaliser("batch", num_trajectories=1, num_tokens=1)


def test_entropy_of_two_allowed_of_three_tokens_is_log_two_with_finite_gradient():
    """B24's numbers."""
    logits = torch.tensor([[1.0, 1.0, -INFINITY]], requires_grad=True)
    value = entropy(logits)
    value.sum().backward()
    assert value.item() == pytest.approx(0.6931, abs=1e-4)
    assert torch.isfinite(logits.grad).all()
    assert logits.grad[0, 2] == 0


def test_entropy_of_fewer_allowed_tokens_than_top_k_is_finite():
    logits = torch.tensor([[0.5, -INFINITY, -INFINITY], [0.1, 0.2, 0.3]], requires_grad=True)
    value = entropy(logits, top_k=2)
    value.sum().backward()
    assert value[0] == 0
    assert torch.isfinite(logits.grad).all()


@settings(max_examples=25)
@given(st.integers(1, 4), st.integers(2, 7), st.integers(0, 1000))
def test_entropy_gradient_is_minus_p_times_log_p_plus_h(rows, tokens, seed):
    """Worked out by hand."""
    logits = torch.randn(rows, tokens, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    logits.requires_grad_()
    value = entropy(logits)
    value.sum().backward()
    log_p = torch.log_softmax(logits.detach(), -1)
    assert torch.allclose(logits.grad, -log_p.exp() * (log_p + value.detach()[:, None]), atol=1e-12)
    assert (value >= 0).all()
    assert (value <= math.log(tokens) + 1e-12).all()


def test_entropy_of_half_types_is_computed_in_float32():
    assert entropy(torch.zeros(1, 3, dtype=torch.bfloat16)).dtype == torch.float32
    assert entropy(torch.zeros(1, 3, dtype=torch.float64)).dtype == torch.float64
    with pytest.raises(ValueError, match="top_k is 0"):
        entropy(torch.zeros(1, 3), top_k=0)


def test_critic_losses_leave_the_targets_without_gradient():
    values, targets = (
        torch.tensor([0.0, 3.0], requires_grad=True),
        torch.tensor([0.5, 0.0], requires_grad=True),
    )
    (mse(values, targets) + huber(values, targets)).sum().backward()
    assert targets.grad is None
    assert mse(values, targets).tolist() == [0.25, 9.0]
    assert huber(values, targets).tolist() == [0.125, 2.5]
    assert huber(values, targets, delta=5.0).tolist() == [0.125, 4.5]
