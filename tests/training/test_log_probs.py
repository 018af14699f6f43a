"""Log-probs under temperature and grammar: against the dense softmax, with gradients, and what is refused."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coplay.training.draws import AllowedSets
from coplay.training.log_probs import EntropyOf, token_log_probs

V = 7


@st.composite
def cases(draw):
    """Logits (N, V), allowed lists, targets within them, temperatures."""
    count = draw(st.integers(1, 6))
    logits = torch.randn(
        count, V, generator=torch.Generator().manual_seed(draw(st.integers(0, 1000))), dtype=torch.float64
    )
    some = st.lists(st.integers(0, V - 1), min_size=1, max_size=4, unique=True).map(sorted)
    allowed = draw(st.lists(st.none() | some, min_size=count, max_size=count))
    targets = [draw(st.sampled_from(ids or range(V))) for ids in allowed]
    temperature = draw(st.lists(st.sampled_from([0.5, 1.0, 1.7]), min_size=count, max_size=count))
    return logits, allowed, torch.tensor(targets), torch.tensor(temperature, dtype=torch.float64)


def dense(logits, allowed, temperature):
    """Log-softmax over (N, V) with −inf at forbidden tokens."""
    rows = []
    for z, ids, t in zip(logits, allowed, temperature, strict=True):
        forbidden = torch.tensor([ids is not None and i not in ids for i in range(V)])
        rows.append(torch.log_softmax((z / t).masked_fill(forbidden, -torch.inf), -1))
    return torch.stack(rows)


@settings(max_examples=50)
@given(cases())
def test_log_probs_and_entropies_equal_those_of_the_dense_softmax_with_gradients(case):
    """Rule 10: renormalised over the allowed tokens, for log-prob and entropy alike."""
    logits, allowed, targets, temperature = case
    z = logits.clone().requires_grad_()
    got = token_log_probs(
        z, targets, temperature=temperature, allowed=AllowedSets.from_lists(allowed), entropy_of=EntropyOf()
    )
    entropies = got.entropies
    weights = torch.arange(1.0, len(targets) + 1, dtype=torch.float64)
    (gradient,) = torch.autograd.grad((weights * (got.log_probs + 0.3 * entropies)).sum(), z)

    y = logits.clone().requires_grad_()
    log_p = dense(y, allowed, temperature)
    plain = log_p.gather(1, targets[:, None]).squeeze(1)
    finite = torch.where(log_p > -torch.inf, log_p, 0.0)
    h = -(log_p.exp() * finite).sum(-1)
    (expected,) = torch.autograd.grad((weights * (plain + 0.3 * h)).sum(), y)
    assert torch.allclose(got.log_probs, plain, atol=1e-12)
    assert torch.allclose(entropies, h, atol=1e-12)
    assert torch.allclose(gradient, expected, atol=1e-12)


@settings(max_examples=25)
@given(cases(), st.randoms())
def test_log_probs_of_shuffled_tokens_are_shuffled(case, random):
    """Laws 4 and 5: which tokens share a forward pass changes nothing."""
    logits, allowed, targets, temperature = case
    sets = AllowedSets.from_lists(allowed)
    two = EntropyOf(top_k=2)
    plain = token_log_probs(logits, targets, temperature=temperature, allowed=sets, entropy_of=two)
    order = torch.tensor(random.sample(range(len(targets)), len(targets)))
    got = token_log_probs(
        logits[order],
        targets[order],
        temperature=temperature[order],
        allowed=sets.select(order),
        entropy_of=two,
    )
    assert torch.allclose(got.log_probs, plain.log_probs[order], atol=1e-12)
    assert torch.allclose(got.entropies, plain.entropies[order], atol=1e-12)


def test_log_probs_of_a_restricted_token_do_not_touch_the_rest_of_the_vocabulary():
    """Rule 10, law 3: forbidden logits may hold anything."""
    logits = torch.tensor([[0.0, 1.0, float("nan"), 1e9]], requires_grad=True)
    got = token_log_probs(
        logits, torch.tensor([1]), allowed=AllowedSets.from_lists([[0, 1]]), entropy_of=EntropyOf()
    )
    (got.log_probs + got.entropies).sum().backward()
    assert got.log_probs.item() == pytest.approx(-0.313262, abs=1e-6)
    assert torch.isfinite(logits.grad).all()
    assert logits.grad[0, 2:].tolist() == [0, 0]


def test_log_prob_of_the_only_allowed_token_is_zero_without_gradient():
    logits = torch.randn(1, V, requires_grad=True)
    got = token_log_probs(
        logits, torch.tensor([3]), allowed=AllowedSets.from_lists([[3]]), entropy_of=EntropyOf()
    )
    (got.log_probs + got.entropies).sum().backward()
    assert got.log_probs.item() == 0
    assert torch.equal(logits.grad, torch.zeros(1, V))


def test_target_outside_its_allowed_set_is_refused_with_its_place():
    """B24: a sampled token that is forbidden under the trainer's set raises."""
    sets = AllowedSets.from_lists([None, [1, 2], [4, 5, 6]])
    with pytest.raises(
        ValueError, match=r"token 3 at place 2 is not allowed there; expected one of \[4, 5, 6\]"
    ):
        token_log_probs(torch.zeros(3, V), torch.tensor([0, 1, 3]), allowed=sets)
    # The table is padded with 0, which allows nothing.
    with pytest.raises(ValueError, match="token 0 at place 1"):
        token_log_probs(torch.zeros(3, V), torch.tensor([0, 0, 4]), allowed=sets)


def test_allowed_sets_share_a_table_row_when_equal():
    sets = AllowedSets.from_lists([[1, 2], None, [1, 2], [3]])
    assert sets.index.tolist() == [0, -1, 0, 1]
    assert sets.table.tolist() == [[1, 2], [3, 0]]
    assert sets.table_mask.tolist() == [[True, True], [True, False]]
    assert AllowedSets.from_lists([None]).table.shape == (0, 1)
    with pytest.raises(ValueError, match="token 1 has no allowed id"):
        AllowedSets.from_lists([None, []])


@pytest.mark.parametrize("allowed", [None, [None], [[0, 1]]])
def test_log_probs_of_no_tokens_keep_the_graph(allowed):
    """B25: a gather of zero rows must not detach the loss from the weights."""
    logits = torch.zeros(0, V, requires_grad=True)
    sets = (
        None if allowed is None else AllowedSets.from_lists(allowed).select(torch.zeros(0, dtype=torch.long))
    )
    got = token_log_probs(logits, torch.zeros(0, dtype=torch.long), allowed=sets, entropy_of=EntropyOf())
    got.log_probs.sum().backward()
    assert logits.grad.shape == (0, V)
    assert got.entropies.shape == (0,)


def test_log_probs_of_half_types_are_computed_in_float32():
    logits = torch.randn(3, V).bfloat16()
    got = token_log_probs(
        logits, torch.tensor([0, 1, 2]), allowed=AllowedSets.from_lists([None, [1, 2], None])
    )
    assert got.log_probs.dtype == torch.float32


@pytest.mark.parametrize("temperature", [0.0, -1.0, torch.tensor([1.0, 0.0])])
def test_temperature_of_zero_is_refused(temperature):
    with pytest.raises(ValueError, match="expected above 0"):
        token_log_probs(torch.zeros(2, V), torch.tensor([0, 1]), temperature=temperature)


def test_log_probs_of_wrong_shapes_are_refused():
    with pytest.raises(ValueError, match=r"logits are \(2, 7\), targets \(3,\)"):
        token_log_probs(torch.zeros(2, V), torch.tensor([0, 1, 2]))
    with pytest.raises(ValueError, match=r"temperature \(3,\).*expected \(N,\)"):
        token_log_probs(torch.zeros(2, V), torch.tensor([0, 1]), temperature=torch.ones(3))
