"""Several steps of an update: what they are on, where they end, and that stopping changes nothing."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from run_fakes import differences, play_iteration, run_bytes, tiny_run

from coplay.training.critic_updates import critic_values
from coplay.training.estimators import explained_variance
from coplay.training.loop import train
from coplay.training.losses import clipped_values
from coplay.training.metrics import read_metrics
from coplay.training.mini_batches import Dealing, deal
from coplay.training.passes import reading_of
from coplay.training.run import Run, resume_run
from coplay.training.stages import update_critic

CRITIC = {"kind": "critic", "reward_scale": 5.0, "lr": 1e-2}
PPO = {"kind": "ppo", "largest_gap": None}


def changed(run: Run, **updates: Any) -> None:
    """Other settings of section `update`, after the run was built."""
    run.config = run.config.model_copy(update={"update": run.config.update.model_copy(update=updates)})
    for trainer in run.trainers:
        trainer.config = run.config


@given(
    owners=st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=12),
    parts=st.integers(1, 9),
    shuffle=st.randoms(use_true_random=False),
)
def test_mini_batches_when_dealt_then_whole_trajectories_each_once_an_epoch_whatever_their_order_laws_5_7(
    owners: list[str], parts: int, shuffle: Any
) -> None:
    """Paths of one trajectory (branches) stay together; parts differ by one trajectory at most."""
    dealing = Dealing(num_epochs=2, num_mini_batches=parts, seed=5)
    path = torch.tensor([row for row in range(len(owners)) for _ in range(3)])
    found = list(deal(dealing, path, owners))
    names = set(owners)
    steps = min(parts, len(names))
    assert len(found) == 2 * steps
    for epoch in (found[:steps], found[steps:]):
        places = torch.cat([part.places for part in epoch])
        assert sorted(places.tolist()) == list(range(len(path)))
        held = [{owners[int(row)] for row in path[part.places]} for part in epoch]
        assert sum(map(len, held)) == len(names)
        assert max(map(len, held)) - min(map(len, held)) <= 1
        assert [len(one) for one in held] == [part.num_trajectories for part in epoch]
    order = list(range(len(owners)))
    shuffle.shuffle(order)
    moved = torch.tensor([order.index(int(row)) for row in path])
    again = deal(dealing, moved, [owners[row] for row in order])
    assert [part.places.tolist() for part in again] == [part.places.tolist() for part in found]


def test_mini_batches_when_another_epoch_or_update_then_another_order() -> None:
    owners, path = [f"game {number}" for number in range(20)], torch.arange(20)
    halves = [
        part.places.tolist()
        for seed in (1, 2)
        for part in deal(Dealing(num_epochs=2, num_mini_batches=2, seed=seed), path, owners)
    ]
    assert len({tuple(one) for one in halves}) == 8


def test_batch_when_selected_then_only_its_rows_and_tokens(tmp_path: Path) -> None:
    run = tiny_run(tmp_path)
    batch = play_iteration(run).credit(run).batch
    chosen = (batch.path % 3 == 1).nonzero().squeeze(1)
    part = batch.select(chosen, num_trajectories=7)
    assert part.num_tokens == len(chosen) and part.num_trajectories == 7
    assert torch.equal(part.ids[part.row, part.column], batch.targets[chosen])
    assert set(part.row.tolist()) == set(range(len(part.ids)))
    assert torch.equal(part.behaviour, batch.behaviour[chosen])
    assert len(part.allowed.index) == len(chosen)


def test_update_when_it_has_epochs_and_mini_batches_then_so_many_steps_and_old_log_probs_from_before_b29(
    tmp_path: Path,
) -> None:
    run = tiny_run(tmp_path, {"objective": PPO})
    credit = play_iteration(run).credit(run)
    one = run.trainers[0].step(credit, update=0, folder=tmp_path)
    other = tiny_run(tmp_path / "other", {"objective": PPO})
    changed(other, num_epochs=3, num_mini_batches=2)
    many = other.trainers[0].step(credit, update=0, folder=tmp_path)
    assert many.metrics["steps"] == 6 and many.metrics["stopped"] == 0
    assert torch.allclose(many.log_probs, one.log_probs, atol=1e-6)
    assert torch.allclose(many.entropies, one.entropies, atol=1e-6)
    assert torch.allclose(many.weights, one.weights, atol=1e-6)
    told = ("ratio_gap_mean", "importance_ess", "tokens", "trajectories", "log_prob")
    assert {name: many.metrics[name] for name in told} == pytest.approx(
        {name: one.metrics[name] for name in told}, abs=1e-6
    )
    assert other.policies["shared"].version == run.policies["shared"].version == 1
    moved = [run.policies["shared"].state(), other.policies["shared"].state()]
    assert any(not torch.equal(moved[0][name], moved[1][name]) for name in moved[0])


def test_update_when_the_policy_is_far_enough_then_the_rest_is_left_out(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, {"objective": PPO, "update.lr": 0.05})
    credit = play_iteration(run).credit(run)
    changed(run, num_epochs=10, max_kl=0.1)
    result = run.trainers[0].step(credit, update=0, folder=tmp_path)
    assert result.metrics["stopped"] == 1 and 1 < result.metrics["steps"] < 10
    free = tiny_run(tmp_path / "free", {"objective": PPO, "update.lr": 0.05})
    changed(free, num_epochs=int(result.metrics["steps"]))
    assert free.trainers[0].step(credit, update=0, folder=tmp_path).metrics["stopped"] == 0
    states = [one.policies["shared"].state() for one in (run, free)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


@pytest.mark.parametrize(
    "changes",
    [
        {"objective": PPO | {"ratio": "sequence"}, "estimator": {"kind": "grpo"}},
        {"objective": PPO, "estimator": CRITIC | {"value_clip": 0.1}, "update.critic_warmup": 2},
    ],
)
def test_run_when_stopped_and_resumed_then_as_never_stopped_law_8(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    settings = changes | {"update.num_epochs": 2, "update.num_mini_batches": 3, "update.num_updates": 4}
    whole = tiny_run(tmp_path / "whole", settings)
    train(whole, lambda update, metrics: None)
    cut = tiny_run(tmp_path / "cut", settings)

    def stop(update: int, metrics: Any) -> None:
        if update == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(cut, stop)
    train(resume_run(cut.folder), lambda update, metrics: None)
    assert differences(run_bytes(whole.folder), run_bytes(cut.folder)) == []


def test_critic_warm_up_when_on_then_only_the_critic_moves_and_it_is_counted(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, {"estimator": CRITIC, "update.critic_warmup": 2, "update.num_updates": 3})
    assert run.critic is not None
    states = [(run.policies["shared"].state(), run.critic.state())]

    def note(update: int, metrics: Any) -> None:
        assert run.critic is not None
        states.append((run.policies["shared"].state(), run.critic.state()))

    train(run, note)
    moved = [
        tuple(any(not torch.equal(a[name], b[name]) for name in a) for a, b in zip(one, other, strict=True))
        for one, other in pairwise(states)
    ]
    assert moved == [(False, True), (False, True), (True, True)]
    lines = list(read_metrics(run.folder / "metrics.jsonl"))
    assert [line["policy/shared/frozen"] for line in lines] == [1.0, 1.0, 0.0]
    assert all(line["policy/shared/gradient_norm"] > 0 for line in lines)
    assert run.policies["shared"].version == 1


def test_values_when_clipped_then_the_larger_loss_counts(tmp_path: Path) -> None:
    """Within the clip as without it; beyond it the gradient ends only if going on would help."""
    old = torch.zeros(4)
    values = torch.tensor([0.1, 0.5, 0.5, -0.5], requires_grad=True)
    targets = torch.tensor([1.0, 1.0, -1.0, -1.0])
    losses = torch.maximum((values - targets) ** 2, (clipped_values(values, old, 0.2) - targets) ** 2)
    losses.sum().backward()
    assert losses.tolist() == pytest.approx([0.81, 0.64, 2.25, 0.64])
    assert values.grad is not None and values.grad.tolist() == pytest.approx([-1.8, 0.0, 3.0, 0.0])


def test_critic_when_it_steps_often_then_value_clip_holds_its_values(tmp_path: Path) -> None:
    gone = {}
    for clip in (None, 1e-3):
        run = tiny_run(tmp_path / str(clip), {"estimator": CRITIC | {"value_clip": clip}})
        played = play_iteration(run)
        changed(run, num_epochs=20, num_mini_batches=2)
        told = update_critic(run, played.reading, played.table, played.estimate, update=0)
        assert told["critic/steps"] == 40
        assert run.critic is not None and played.reading.batch is not None
        read = critic_values(run.critic, played.reading.batch, reading_of(run.config.update))
        gone[clip] = float(read.abs().max())  # a fresh critic says 0 everywhere
    assert gone[1e-3] < gone[None] / 3


def test_critic_when_dealt_by_trajectories_then_each_point_once_an_epoch(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, {"estimator": CRITIC})
    batch = play_iteration(run).reading.batch
    assert batch is not None
    parts = list(deal(Dealing(num_epochs=1, num_mini_batches=3, seed=1), batch.path, batch.owners))
    assert sorted(torch.cat([part.places for part in parts]).tolist()) == list(range(len(batch.row)))
    for part in parts:
        chosen = batch.select(part.places)
        assert torch.equal(
            chosen.ids[chosen.row, chosen.column],
            batch.ids[batch.row[part.places], batch.column[part.places]],
        )


def test_explained_variance_when_worked_out_by_hand_then_so() -> None:
    targets = torch.tensor([[1.0, 2.0, 3.0, float("nan")]])
    mask = torch.tensor([[True, True, True, False]])
    assert explained_variance(targets.clone(), targets, mask) == 1.0
    assert explained_variance(torch.full_like(targets, 7.0), targets, mask) == 0.0
    half = torch.tensor([[0.5, 1.0, 1.5, 9.0]])
    assert explained_variance(half, targets, mask) == pytest.approx(0.75)
    assert explained_variance(half, torch.ones_like(half), mask) != explained_variance(half, targets, mask)


def test_zero_credit_when_repeated_then_weights_stay(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, {"objective": PPO})
    credit = play_iteration(run).credit(run)
    changed(run, num_epochs=2, num_mini_batches=2)
    before = run.policies["shared"].state()
    run.trainers[0].step(replace(credit, tokens=torch.zeros_like(credit.tokens)), update=0, folder=tmp_path)
    after = run.policies["shared"].state()
    assert all(torch.equal(before[name], after[name]) for name in before)
