"""From the tick table to advantages (rules 1, 2, 8; B15, B64)."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from run_fakes import make_tree, table_of

from coplay.training.credit import generalized_advantages
from coplay.training.estimators import CriticNotApplicableError, estimate, values_per_tick
from coplay.training.extract import value_batch
from coplay.training.records import TickTable, TickValues
from coplay.training.schemes import CriticEstimator, ReturnsEstimator


def advantages(table: TickTable, player: str, **settings: Any) -> list[list[float]]:
    found = estimate(ReturnsEstimator(**settings), table, running_means={})
    return [found.advantages[n].tolist() for n, key in enumerate(table.keys) if key.player == player]


def test_returns_when_no_baseline_then_discounted_reward_to_go() -> None:
    _, table = table_of(make_tree({"Ada": [1.0, 0.0, 2.0], "Bo": [0.0] * 3}))
    assert advantages(table, "Ada", discount=0.9, baseline="none")[0] == pytest.approx([2.62, 1.8, 2.0])


def test_returns_when_truncated_then_nothing_is_guessed_beyond() -> None:
    """Without a critic there is no value to bootstrap from."""
    for truncated in (False, True):
        _, table = table_of(make_tree({"Ada": [1.0, 1.0], "Bo": [0.0] * 2}, truncated=truncated))
        assert advantages(table, "Ada", discount=0.5, baseline="none")[0] == [1.5, 1.0]


@pytest.mark.parametrize("baseline", ["leave_one_out", "running_mean", "none"])
def test_estimate_when_done_then_advantage_is_return_minus_baseline(baseline: str) -> None:
    trees = [make_tree({"Ada": [n, 1.0], "Bo": [1.0, n]}, episode=f"e{n}") for n in (1.0, 2.0, 4.0)]
    _, table = table_of(*trees)
    found = estimate(ReturnsEstimator(baseline=baseline), table, running_means={})
    assert torch.allclose(found.advantages, found.returns - found.baseline)


def test_running_mean_when_asked_for_then_of_earlier_batches_only() -> None:
    trees = [make_tree({"Ada": [n], "Bo": [0.0]}, episode=f"e{n}") for n in (1.0, 3.0)]
    _, table = table_of(*trees)
    settings = ReturnsEstimator(baseline="running_mean")
    first = estimate(settings, table, running_means={})
    assert first.advantages[::2, 0].tolist() == [1.0, 3.0]
    second = estimate(settings, table, running_means=first.running_means)
    assert second.advantages[::2, 0].tolist() == [-1.0, 1.0]


def test_reply_when_it_has_no_action_token_then_its_reward_still_counts_in_the_group_b64() -> None:
    """Rewards 5 (nothing to train), 1, 3: the others' mean of the 1 is 4, of the 3 it is 3 (B64)."""
    rewards = {"e0": 5.0, "e1": 1.0, "e2": 3.0}
    trees = [
        make_tree({"Ada": [r], "Bo": [0.0]}, episode=name, silent=["Ada"] if name == "e0" else [])
        for name, r in rewards.items()
    ]
    _, table = table_of(*trees)
    assert [row[0] for row in advantages(table, "Ada")] == [3.0, -3.0, 0.0]


def laid(table: TickTable, values: list[list[float]], bootstrap: float = 0.0) -> TickValues:
    rows, ticks = table.mask.shape
    padded = torch.full((rows, ticks), float("nan"), dtype=torch.float64)
    for n, row in enumerate(values):
        padded[n, : len(row)] = torch.tensor(row)
    return TickValues(values=padded, bootstrap=torch.full((rows,), bootstrap, dtype=torch.float64))


def test_critic_when_values_are_known_then_gae_targets_and_baseline_g6_g11() -> None:
    _, table = table_of(make_tree({"Ada": [1.0, 0.0, 2.0], "Bo": [1.0, 0.0, 2.0]}))
    values = laid(table, [[0.5, 1.0, -0.5]] * 2)
    found = estimate(CriticEstimator(gae_lambda=0.95), table, running_means={}, values=values)
    assert found.advantages[0].tolist() == pytest.approx([1.9878125, 0.6875, 2.5])
    assert found.targets is not None
    assert found.targets[0].tolist() == pytest.approx([2.4878125, 1.6875, 2.0])
    assert found.baseline[0].tolist() == [0.5, 1.0, -0.5]


def test_lambda_when_annealed_then_by_update() -> None:
    _, table = table_of(make_tree({"Ada": [1.0, 0.0, 2.0], "Bo": [0.0] * 3}))
    values = laid(table, [[0.5, 1.0, -0.5]] * 2)
    settings = CriticEstimator(gae_lambda={"kind": "linear", "initial": 0.0, "final": 1.0, "end": 10})
    for update, lam in ((0, 0.0), (5, 0.5), (10, 1.0)):
        found = estimate(settings, table, running_means={}, values=values, update=update)
        expected = generalized_advantages(
            table.rewards, values.values, discount=0.9, gae_lambda=lam, mask=table.mask
        )
        assert torch.allclose(found.advantages, expected)
        assert found.metrics["critic/gae_lambda"] == lam


def test_critic_when_a_player_has_no_tokens_then_his_advantages_come_from_returns() -> None:
    trees = [
        make_tree(
            {"Ada": [1.0], "Bo": [n]}, episode=f"e{n}", silent=["Bo"], seats={"Ada": "a@0", "Bo": "grim"}
        )
        for n in (2.0, 6.0)
    ]
    trajectories, table = table_of(*trees)
    batch = value_batch(trajectories)
    values = values_per_tick(table, batch, torch.full((len(batch.row),), 0.25))
    found = estimate(CriticEstimator(), table, running_means={}, values=values)
    assert found.advantages[:, 0].tolist() == [0.75, -4.0, 0.75, 4.0]
    assert found.targets is not None
    assert found.targets[1::2, 0].tolist() == [0.0, 0.0]


def test_critic_when_a_tick_has_no_value_then_refused_with_the_place() -> None:
    trajectories, table = table_of(make_tree({"Ada": [1.0, 2.0], "Bo": [0.0, 0.0]}))
    batch = value_batch(trajectories)
    values = values_per_tick(table, batch, torch.zeros(len(batch.row)))
    values.values[1, 1] = float("nan")
    with pytest.raises(
        CriticNotApplicableError, match=r"player 'Bo' of episode '000000/00000' has no reply at tick 1"
    ):
        estimate(CriticEstimator(), table, running_means={}, values=values)


def test_two_episodes_when_back_to_back_then_the_numbers_of_each_alone_b15() -> None:
    settings = CriticEstimator(discount=0.5, gae_lambda=1.0)
    one = make_tree({"Ada": [1.0] * 3, "Bo": [1.0] * 3}, episode="e0")
    other = make_tree({"Ada": [1.0] * 3, "Bo": [1.0] * 3}, episode="e1", truncated=True)
    trajectories, table = table_of(one, other)
    batch = value_batch(trajectories)
    values = values_per_tick(table, batch, torch.where(batch.tick == 3, 4.0, 0.0))
    found = estimate(settings, table, running_means={}, values=values)
    assert found.advantages[0].tolist() == [1.75, 1.5, 1.0]
    assert found.advantages[2].tolist() == [2.25, 2.5, 3.0]


@pytest.mark.parametrize("settings", [ReturnsEstimator(), CriticEstimator()])
def test_table_when_empty_then_empty_estimate(settings: Any) -> None:
    trajectories, table = table_of()
    values = values_per_tick(table, value_batch(trajectories), torch.zeros(0))
    found = estimate(settings, table, running_means={}, values=values)
    assert found.advantages.shape == (0, 0)


def test_rows_when_their_policy_is_renamed_then_only_groups_change() -> None:
    trees = [make_tree({"Ada": [n], "Bo": [0.0]}, episode=f"e{n}") for n in (1.0, 3.0)]
    _, table = table_of(*trees)
    apart = replace(table, group_ids=torch.arange(4))
    assert advantages(table, "Ada") == [[-2.0], [2.0]]
    assert advantages(apart, "Ada") == [[1.0], [3.0]]
