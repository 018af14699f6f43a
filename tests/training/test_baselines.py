"""Baselines from other episodes: by ids, over the rows alive, without gradient spikes."""

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coplay.training.baselines import group_relative, leave_one_out, running_mean_baseline, running_mean_key
from coplay.training.masked import masked_mean, masked_std


@st.composite
def groups(draw):
    """Returns (B, S), ids and a right-padded mask."""
    rows, ticks = draw(st.integers(1, 8)), draw(st.integers(1, 4))
    random = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    returns = torch.randn(rows, ticks, generator=random, dtype=torch.float64)
    ids = draw(st.lists(st.sampled_from(["a", "b", "c"]), min_size=rows, max_size=rows))
    lengths = torch.tensor(draw(st.lists(st.integers(0, ticks), min_size=rows, max_size=rows)))
    return returns, ids, torch.arange(ticks) < lengths[:, None]


ESTIMATORS = {
    "leave one out": leave_one_out,
    "mean": group_relative,
    "population": lambda *a, **k: group_relative(*a, **k, deviation="population"),
    "sample": lambda *a, **k: group_relative(*a, **k, deviation="sample"),
}


@settings(max_examples=25)
@given(groups())
def test_leave_one_out_equals_the_mean_of_the_others_cell_by_cell(case):
    """Rule 1: over the rows alive at the tick; a row alone stays raw."""
    returns, ids, mask = case
    got = leave_one_out(returns, ids, mask=mask)
    for row, tick in [(r, s) for r in range(len(ids)) for s in range(returns.shape[1])]:
        others = [
            float(returns[j, tick])
            for j in range(len(ids))
            if j != row and ids[j] == ids[row] and mask[j, tick]
        ]
        expected = float(returns[row, tick]) - (sum(others) / len(others) if others else 0.0)
        assert float(got[row, tick]) == pytest.approx(expected if mask[row, tick] else 0.0, abs=1e-12)


@settings(max_examples=25)
@given(groups())
def test_leave_one_out_sums_to_zero_in_each_group_of_several(case):
    returns, ids, mask = case
    got = leave_one_out(returns, ids, mask=mask)
    for group in set(ids):
        rows = torch.tensor([i == group for i in ids])
        several = (mask & rows[:, None]).sum(0) > 1
        assert (got[rows].sum(0)[several].abs() < 1e-9).all()


@pytest.mark.parametrize("name", ESTIMATORS)
@settings(max_examples=25)
@given(case=groups(), random=st.randoms())
def test_baseline_of_shuffled_rows_and_renamed_groups_is_shuffled(name, case, random):
    """Law 5; B10: ids, not positions; uneven group sizes."""
    returns, ids, mask = case
    plain = ESTIMATORS[name](returns, ids, mask=mask)
    order = random.sample(range(len(ids)), len(ids))
    renamed = [{"a": ("z", 1), "b": ("y", 2), "c": ("x", 3)}[ids[i]] for i in order]
    shuffled = ESTIMATORS[name](returns[order], renamed, mask=mask[order])
    assert torch.allclose(shuffled, plain[order], atol=1e-12)
    numbers = torch.tensor([{"a": 70, "b": -4, "c": 10**12}[i] for i in ids])
    assert torch.allclose(ESTIMATORS[name](returns, numbers, mask=mask), plain, atol=1e-12)


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("poison", [float("nan"), 1e9])
@settings(max_examples=25)
@given(case=groups())
def test_baseline_of_poisoned_padding_changes_no_value_and_no_gradient(name, poison, case):
    """Law 3."""
    returns, ids, mask = case
    outcomes = []
    for filler in (0.0, poison):
        x = torch.where(mask, returns, filler).requires_grad_()
        got = ESTIMATORS[name](x, ids, mask=mask)
        (gradient,) = torch.autograd.grad(
            (got * torch.arange(1.0, got.numel() + 1).reshape(got.shape)).sum(), x
        )
        outcomes.append((got, gradient))
    assert all(torch.equal(a, b) for a, b in zip(*outcomes, strict=True))
    assert torch.isfinite(outcomes[1][1]).all()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_group_of_one_is_never_nan(name):
    """B11."""
    got = ESTIMATORS[name](torch.tensor([[3.0, 4.0]]), ["only"])
    assert got.tolist() == ([[3.0, 4.0]] if name == "leave one out" else [[0.0, 0.0]])


@pytest.mark.parametrize("deviation", ["population", "sample"])
def test_group_relative_of_equal_rewards_does_not_blow_up(deviation):
    """B62: eight times 0.95 in float32, and equal only up to rounding."""
    equal = torch.full((8, 1), 0.95)
    assert group_relative(equal, [0] * 8, deviation=deviation).abs().max() < 1e-6
    nudged = equal * (1 + 1e-7 * torch.tensor([0.0, 1, -1, 0, 1, 0, 0, -1])[:, None])
    assert group_relative(nudged, [0] * 8, deviation=deviation).abs().max() < 1e-6


def test_leave_one_out_over_the_spread_of_the_others_stays_bounded():
    """B62's numbers: 0 and seven times 0.95; the odd one's others have no spread, so it is unscaled."""
    returns = torch.tensor([[0.0]] + [[0.95]] * 7)
    advantages = leave_one_out(returns, [0] * 8)
    scaled = []
    for row in range(8):
        spread = masked_std(returns, torch.arange(8)[:, None] != row)
        scaled.append(float(advantages[row] / spread if spread > 0 else advantages[row]))
    assert scaled[0] == pytest.approx(-0.95, abs=1e-6)
    assert max(map(abs, scaled[1:])) < 3


def test_leave_one_out_leaves_a_failed_episode_to_the_survivors():
    """Rule 12: without the failed row the baselines are those of the survivors, as if it had never been."""
    returns, ids = torch.tensor([[1.0], [5.0], [9.0]]), ["g", "g", "g"]
    failed = torch.tensor([[True], [False], [True]])
    kept = leave_one_out(returns, ids, mask=failed)[[0, 2]]
    assert torch.equal(kept, leave_one_out(returns[[0, 2]], ["g", "g"]))


def test_baselines_with_wrong_ids_or_names_are_refused():
    with pytest.raises(ValueError, match="1 group ids for 2 rows"):
        leave_one_out(torch.ones(2, 3), ["a"])
    with pytest.raises(ValueError, match=r"returns have shape \(2,\)"):
        leave_one_out(torch.ones(2), ["a", "b"])
    with pytest.raises(ValueError, match="deviation is 'std'"):
        group_relative(torch.ones(2, 3), ["a", "a"], deviation="std")


def test_running_mean_is_read_before_it_is_updated():
    """Rule 1: the baseline never saw the return it is subtracted from."""
    keys = [running_mean_key("seller", ["buyer"]), running_mean_key("buyer", ["seller"])]
    first = running_mean_baseline({}, [keys[0], keys[1], keys[0]], torch.tensor([[1.0, 2], [10, 20], [3, 4]]))
    assert first.baselines.tolist() == [[0, 0]] * 3
    second = running_mean_baseline(first.state, keys, torch.tensor([[5.0, 6], [0, 0]]))
    assert second.baselines.tolist() == [[2, 3], [10, 20]]
    third = running_mean_baseline(second.state, keys, torch.zeros(2, 2))
    assert third.baselines.tolist() == [[3, 4], [5, 10]]


def test_running_mean_survives_json_and_shuffling_and_leaves_the_old_state_alone():
    """Laws 3, 5 and 8."""
    returns = torch.tensor([[1.0, 2.0], [3.0, float("nan")], [5.0, 6.0]])
    mask = torch.tensor([[True, True], [True, False], [True, True]])
    state = running_mean_baseline({}, ["a", "b", "a"], returns, mask=mask).state
    before = json.dumps(state)
    one = running_mean_baseline(json.loads(before), ["a", "b", "c"], returns, mask=mask)
    order = [2, 0, 1]
    two = running_mean_baseline(state, ["c", "a", "b"], returns[order], mask=mask[order])
    assert json.dumps(state) == before
    assert torch.equal(two.baselines, one.baselines[order])
    assert {k: tuple(map(list, v)) for k, v in one.state.items()} == {
        k: tuple(map(list, v)) for k, v in two.state.items()
    }
    assert one.baselines.tolist() == [[3, 4], [3, 0], [0, 0]]


def test_running_mean_of_longer_and_shorter_games_counts_each_tick():
    state = running_mean_baseline({}, ["a"], torch.tensor([[2.0]])).state
    state = running_mean_baseline(state, ["a"], torch.tensor([[4.0, 6.0]])).state
    assert state == {"a": ([3.0, 6.0], [2.0, 1.0])}
    read = running_mean_baseline(state, ["a"], torch.tensor([[0.0]]))
    assert read.baselines.tolist() == [[3.0]]
    assert read.state["a"][1] == [3.0, 1.0]


def test_running_mean_equals_the_plain_mean_of_all_returns():
    returns = torch.randn(50, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    state = {}
    for start in range(0, 50, 5):
        state = running_mean_baseline(state, ["k"] * 5, returns[start : start + 5]).state
    assert state["k"][0] == pytest.approx(masked_mean(returns, None, 0).tolist(), abs=1e-12)


def test_leave_one_out_is_unbiased_where_a_row_decides_how_long_it_plays_b61() -> None:
    """Stop or continue, at most twice, 1 for each continuing: the expected gradient by enumeration is the exact one."""
    p = 0.3
    paths = [  # (probability, returns to go, gradient of log pi at each tick played)
        (1 - p, [0.0], [-p]),
        (p * (1 - p), [1.0, 0.0], [1 - p, -p]),
        (p * p, [2.0, 1.0], [1 - p, 1 - p]),
    ]
    expected = 0.0
    for chance, own, gradients in paths:
        for other_chance, other, _ in paths:
            rows = [[*row, *[0.0] * (2 - len(row))] for row in (own, other)]
            mask = torch.tensor([[tick < len(row) for tick in range(2)] for row in (own, other)])
            advantages = leave_one_out(torch.tensor(rows, dtype=torch.float64), [0, 0], mask=mask)[0].tolist()
            gradient = sum(a * g for a, g in zip(advantages, gradients, strict=False))
            expected += chance * other_chance * gradient
    assert expected == pytest.approx((1 + 2 * p) * p * (1 - p), abs=1e-12)
