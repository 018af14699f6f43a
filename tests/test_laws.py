"""The laws of CONTRIBUTING.md, through the assembled loop: each test fails when its law is broken."""

import hashlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from run_fakes import (
    FULL,
    LORA,
    Iteration,
    RecordingEngine,
    Sayer,
    differences,
    distance,
    gradients,
    in_double,
    make_tree,
    permuted,
    play_iteration,
    reckon,
    run_bytes,
    table_of,
    tiny_config,
    tiny_run,
    tiny_settings,
    unmerged,
)

from coplay.games import Chance
from coplay.rollout_tree import RolloutTree, collect_sync, plan_episodes, read_rollouts, render_text
from coplay.rollout_tree.plan import CollectPlan
from coplay.training import critic_updates, estimators
from coplay.training.config import RunConfig
from coplay.training.extract import path_key
from coplay.training.loop import train
from coplay.training.messages import ConfigError
from coplay.training.metrics import read_metrics
from coplay.training.packets import exchange, make_packets
from coplay.training.passes import ReadPlan, all_log_probs, token_passes
from coplay.training.run import Run, new_run, resume_run
from coplay.training.schemes import CriticEstimator, ReturnsEstimator
from coplay.training.stages import NothingToTrainError, collect_rollouts, update_critic
from coplay.training.trainer import Trainer
from coplay.training.updates import NonFiniteLossError

CRITIC = {"kind": "critic", "reward_scale": 5.0, "lr": 1e-2}
ALIGNED = {"kind": "advantage_alignment", "beta": 0.7}
TRUST = {"kind": "trust_and_split", "wording": "terse", "num_rounds": 2, "max_message_characters": 12}
SPLIT = {"kind": "split", "wording": "terse", "num_rounds": 2, "items": ["hats", "books"], "stock": 4}
WINDOW = {"max_new_tokens": 4, "max_context": 64, "overflow": "window"}
TWO_POLICIES = {
    "agents.policies": {"ada": {"weights": LORA}, "bo": {"weights": FULL}},
    "agents.seats": {"Ada": "ada", "Bo": "bo"},
}


def silent(update: int, metrics: Mapping[str, float]) -> None:
    """Hears what the loop reports."""


# --- Law 1: tokens in, tokens out ---


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="constrained"),
        pytest.param({"agents.sampling.constrained": False}, id="free"),
        pytest.param({"game": TRUST}, id="messages"),
        pytest.param(
            {"game": TRUST | {"retries": 1, "penalty": 0.5}, "agents.sampling.constrained": False},
            id="retries",
        ),
        pytest.param({"game": SPLIT, "agents.sampling.max_new_tokens": 8}, id="forced-tokens"),
        pytest.param({"game.num_rounds": 30, "agents.sampling": WINDOW}, id="windows"),
        pytest.param(TWO_POLICIES, id="two-policies"),
    ],
)
def test_law_1_rows_hold_the_sampled_ids_in_the_context_the_engine_saw(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    run = tiny_run(tmp_path, changes)
    engine = run.engine = RecordingEngine(run.engine)  # type: ignore[assignment]
    played = play_iteration(run)
    answers = {request.key: (request, sample) for request, sample in engine.seen}
    assert len(answers) == len(engine.seen) > 0
    for trajectory in played.trajectories:
        starts: list[int] = [0] * len(trajectory.rows)
        rows_of_turn = {int(turn): n for n, row in enumerate(trajectory.rows) for turn in np.unique(row.turn)}
        attempts: dict[int, int] = {}
        for number, turn in enumerate(trajectory.turns):
            step = next(
                s.index
                for tree in played.trees
                if tree.episode == trajectory.episode
                for s in tree.steps
                if any(t is turn for t in s.turns)
            )
            key = (trajectory.episode, "", trajectory.player, step, 0, turn.attempt)
            attempts[step] = turn.attempt
            request, sample = answers.pop(key)
            row = trajectory.rows[rows_of_turn[number]]
            begin, end = len(request.context), len(request.context) + len(sample.ids)
            assert row.ids[:begin].tolist() == list(request.context)
            assert row.ids[begin:end].tolist() == list(sample.ids)
            assert row.sampled[begin:end].tolist() == list(sample.sampled)
            chosen = np.array(sample.sampled)
            reported = np.array(sample.log_probs, dtype=np.float32)
            assert row.log_probs[begin:end][chosen].tobytes() == reported[chosen].tobytes()
            assert not row.sampled[starts[rows_of_turn[number]] : begin].any()
            starts[rows_of_turn[number]] = end
        for row, read in zip(trajectory.rows, starts, strict=True):
            assert not row.sampled[read:].any()
    assert not answers, "every sampled reply is trained on"
    for trainer in run.trainers:
        credit = trainer.credit(played.trajectories, played.table, played.estimate, played.packets, update=0)
        assert credit is not None
        batch = credit.batch
        for n in range(batch.num_tokens):
            trajectory = played.trajectories[int(batch.path[n])]
            row, place = trajectory.rows[int(batch.place[n, 0])], int(batch.column[n])
            assert trajectory.policy == trainer.policy.label
            assert row.sampled[place] and row.ids[place] == batch.targets[n]
            assert row.ids.tolist() == batch.ids[batch.row[n], : batch.lengths[batch.row[n]]].tolist()
            assert row.log_probs[place] == batch.behaviour[n].numpy()
        mine = [t for t in played.trajectories if t.policy == trainer.policy.label]
        assert batch.num_tokens == sum(int(row.sampled.sum()) for t in mine for row in t.rows)


def test_law_1_forced_tokens_are_no_actions(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, {"game": SPLIT, "agents.sampling.max_new_tokens": 8, "game.kind": "split"})
    engine = run.engine = RecordingEngine(run.engine)  # type: ignore[assignment]
    # One of a kind: only one label begins with a given letter once its first token is drawn.
    game = {"kind": "iterated_matrix", "wording": "terse", "num_rounds": 3, "moves": ["A A", "B B"]}
    run = tiny_run(tmp_path, {"game": game, "name": "forced"})
    engine = run.engine = RecordingEngine(run.engine)  # type: ignore[assignment]
    played = play_iteration(run)
    forced = sum(sample.sampled.count(False) for _, sample in engine.seen)
    chosen = sum(sample.sampled.count(True) for _, sample in engine.seen)
    assert forced > 0
    assert played.credit(run).batch.num_tokens == chosen
    assert all(t.rows[0].log_probs[~t.rows[0].sampled].tolist() == [0.0] * int((~t.rows[0].sampled).sum())
               for t in played.trajectories)  # fmt: skip


def test_law_1_control_tokens_inside_observations_are_text(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, {"game.moves": ["<|end|>", "<|start|>"], "agents.sampling.max_new_tokens": 16})
    controls = {
        run.base.tokenizer.convert_tokens_to_ids(text) for text in ("<|end|>", "<|start|>", "<|pad|>")
    }
    played = play_iteration(run)
    assert any("<|end|>" in t.observation.text for s in played.trees[0].steps for t in s.turns) or any(
        "<|start|>" in t.observation.text for s in played.trees[0].steps for t in s.turns
    )
    for trajectory in played.trajectories:
        for row in trajectory.rows:
            inside = [token for token in row.ids.tolist()[1:] if token in controls]
            assert not inside, "only the template's own first token is a control token"
            assert "<|start|>" in run.base.tokenizer.decode(row.ids.tolist()[1:])


def test_law_1_fresh_context_starts_a_row_and_every_row_is_scored_alone(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, {"game.num_rounds": 30, "agents.sampling": WINDOW})
    played = play_iteration(run)
    assert any(len(t.rows) > 1 for t in played.trajectories)
    for trajectory in played.trajectories:
        fresh = [turn.fresh_context for turn in trajectory.turns]
        assert len(trajectory.rows) == sum(fresh)
        assert all(len(row.ids) <= 64 for row in trajectory.rows)


def test_law_1_rows_from_the_stored_tables_are_those_that_were_trained_on(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, {"game": TRUST, "update.num_updates": 1})
    kept: list[Iteration] = []

    class Keeps(Trainer):
        def credit(self, trajectories: Any, *rest: Any, **more: Any) -> Any:
            kept.append(trajectories)
            return super().credit(trajectories, *rest, **more)

    run.trainers = [Keeps(t.policy, t.config, t.players) for t in run.trainers]
    train(run, silent)
    stored = reckon(run, list(read_rollouts(run.folder))).trajectories
    assert len(stored) == len(kept[0])  # type: ignore[arg-type]
    for one, other in zip(stored, kept[0], strict=True):  # type: ignore[call-overload]
        for a, b in zip(one.rows, other.rows, strict=True):
            assert all(
                getattr(a, f).tobytes() == getattr(b, f).tobytes() for f in ("ids", "sampled", "log_probs")
            )


# --- Law 2: ratio one ---


@pytest.mark.parametrize("weights", [LORA, FULL], ids=["lora", "full"])
@pytest.mark.parametrize("constrained", [True, False], ids=["constrained", "free"])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_law_2_trainer_and_sampler_agree_before_and_after_updates(
    tmp_path: Path, weights: dict[str, Any], constrained: bool, temperature: float
) -> None:
    changes = {
        "agents.policies": {"shared": {"weights": weights}},
        "agents.sampling": {"max_new_tokens": 6, "constrained": constrained, "temperature": temperature},
        "game": TRUST,
        "objective.entropy_coefficient": 0.1,  # free replies earn nothing; something has to move the weights
        "update.lr": 5e-2,
    }
    run = tiny_run(tmp_path, changes)
    train(run, silent)
    lines = list(read_metrics(run.folder / "metrics.jsonl"))
    assert len(lines) == 3
    assert max(line["policy/shared/ratio_gap_max"] for line in lines) <= 1e-4
    assert min(line["policy/shared/gradient_norm"] for line in lines) > 1e-6


def test_law_2_holds_in_windows_retries_and_with_two_policies(tmp_path: Path) -> None:
    game = {"kind": "trust_and_split", "wording": "terse", "num_rounds": 3, "retries": 2, "penalty": 1.0}
    sampling = {"max_new_tokens": 6, "constrained": False, "max_context": 160, "overflow": "window"}
    run = tiny_run(tmp_path, TWO_POLICIES | {"game": game, "agents.sampling": sampling})
    train(run, silent)
    for line in read_metrics(run.folder / "metrics.jsonl"):
        assert line["policy/ada/ratio_gap_max"] <= 1e-4
        assert line["policy/bo/ratio_gap_max"] <= 1e-4


# --- Law 3: what is masked is invisible ---


def jagged() -> list[RolloutTree]:
    """Three games of 1, 2 and 4 ticks, so that most of the table is padding."""
    return [
        make_tree({"Ada": [1.0], "Bo": [3.0]}, episode="e0", group="a"),
        make_tree({"Ada": [0.0, 2.0], "Bo": [1.0, 5.0]}, episode="e1", group="a", truncated=True),
        make_tree({"Ada": [4.0, 1.0, 2.0, 0.5], "Bo": [0.0, 1.0, 1.0, 2.0]}, episode="e2", group="a"),
    ]


@pytest.mark.parametrize("poison", [float("nan"), 1e9, float("inf")], ids=["nan", "1e9", "inf"])
@pytest.mark.parametrize("estimator", ["returns", "critic"])
@pytest.mark.parametrize("shaping", ["independent", "shared_reward", "advantage_alignment"])
def test_law_3_padded_cells_change_no_credit_gradient_or_metric(
    tmp_path: Path, poison: float, estimator: str, shaping: str
) -> None:
    whitened = {"whiten_before": "tick", "whiten_after": "batch", "centre_after": "tick"}
    run = tiny_run(
        tmp_path,
        {
            "estimator": {"kind": estimator, "gae_lambda": 0.8}
            if estimator == "critic"
            else {"kind": estimator},
            "shaping": {"kind": shaping, **whitened},
        },
    )
    clean = reckon(run, jagged())
    table, values = clean.table, clean.reading.values
    bad_table = replace(table, rewards=torch.where(table.mask, table.rewards, poison))
    if values is not None:
        beyond = torch.where(table.mask, values.values, poison)
        values = replace(values, values=beyond)
    found = estimators.estimate(run.config.estimator, bad_table, running_means={}, values=values)
    found = estimators.normalise_by_player(run.config.shaping, bad_table, found)
    for name in ("returns", "baseline", "advantages", "targets"):
        one, other = getattr(clean.estimate, name), getattr(found, name)
        assert (one is None) == (other is None)
        if one is not None:
            assert torch.equal(one[table.mask], other[table.mask]), name
    assert dict(found.metrics) == dict(clean.estimate.metrics)
    assert found.running_means == clean.estimate.running_means

    spoilt = replace(found, advantages=torch.where(table.mask, found.advantages, poison))
    packets = make_packets(bad_table, spoilt.advantages)
    credit = run.trainers[0].credit(clean.trajectories, bad_table, spoilt, packets, update=0)
    expected = clean.credit(run)
    assert credit is not None
    assert torch.equal(credit.tokens, expected.tokens)
    assert torch.isfinite(credit.tokens).all()

    garbage = spoil_padding(credit.batch)
    step = run.trainers[0]
    before = gradients(run, expected, tmp_path)
    after = gradients(run, replace(credit, batch=garbage), tmp_path)
    assert all(torch.equal(before[name], after[name]) for name in before)
    metrics = step.step(replace(credit, batch=garbage), update=0, folder=tmp_path).metrics
    other = tiny_run(
        tmp_path / "other",
        {"estimator": run.config.estimator.model_dump(), "shaping": {"kind": shaping, **whitened}},
    )
    assert dict(other.trainers[0].step(expected, update=0, folder=tmp_path).metrics) == dict(metrics)

    if clean.reading.batch is not None:
        bad_reading = replace(clean.reading, batch=spoil_padding(clean.reading.batch), values=values)
        assert found.targets is not None
        bad_targets = replace(found, targets=torch.where(table.mask, found.targets, poison))
        one_loss = update_critic(run, bad_reading, bad_table, bad_targets, update=0)
        other_loss = update_critic(other, clean.reading, table, clean.estimate, update=0)
        assert one_loss == other_loss
        assert run.critic is not None and other.critic is not None
        states = run.critic.state(), other.critic.state()
        assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def spoil_padding(batch: Any) -> Any:
    """Two more columns, and another id in every padded cell, also of the allowed sets."""
    ids = torch.nn.functional.pad(batch.ids, (0, 2))
    padding = torch.arange(ids.shape[1])[None] >= batch.lengths[:, None]
    spoilt = replace(batch, ids=torch.where(padding, 7, ids))
    if hasattr(batch, "allowed"):
        allowed = batch.allowed
        table = torch.where(allowed.table_mask, allowed.table, 11)
        spoilt = replace(spoilt, allowed=replace(allowed, table=table))
    return spoilt


@pytest.mark.parametrize("where", ["entropy", "bootstrap"])
def test_law_3_masked_tokens_and_points_have_no_part(tmp_path: Path, where: str) -> None:
    if where == "entropy":
        run = tiny_run(
            tmp_path, {"objective.entropy_coefficient": 0.5, "objective.entropy_mask_regex": "nothing"}
        )
        credit = play_iteration(run).credit(run)
        assert not credit.batch.entropy_mask.any()
        assert (
            distance(
                gradients(run, credit, tmp_path, entropy_coefficient=0.0), gradients(run, credit, tmp_path)
            )
            == 0
        )
        return
    run = tiny_run(tmp_path, {"estimator": CRITIC})
    played = reckon(run, jagged())
    assert played.reading.batch is not None and run.critic is not None
    batch = played.reading.batch
    beyond = batch.tick >= played.table.mask.sum(1)[batch.path]
    assert beyond.any()
    settings = CriticEstimator()
    still = torch.optim.SGD(list(run.critic.named_parameters().values()), lr=0.0)
    numbers = [
        critic_updates.critic_step(
            run.critic,
            still,
            batch,
            torch.where(beyond, poison, torch.ones(len(beyond))),
            ~beyond,
            settings,
            ReadPlan(micro_batch_tokens=64),
        )
        for poison in (0.0, float("nan"))
    ]
    assert numbers[0] == numbers[1]


# --- Law 4: partition blind ---


@pytest.mark.parametrize("importance", ["token", "turn", "sequence", "none"])
@pytest.mark.parametrize("normaliser", ["trajectories", "tokens"])
def test_law_4_gradient_depends_on_no_order_padding_cut_or_merging(
    tmp_path: Path, importance: str, normaliser: str
) -> None:
    objective = {
        "largest_gap": None,  # the rows are scored by moved weights on purpose
        "importance": importance,
        "normaliser": normaliser,
        "entropy_coefficient": 0.1,
        "kl": {"coefficient": 0.2},
    }
    changes = {"objective": objective, "game": TRUST, "agents.sampling.max_new_tokens": 6, "shaping": ALIGNED}
    run = tiny_run(tmp_path, changes)
    train_once(run)  # the reference and the behaviour differ from the policy now
    played = play_iteration(run, 0)
    credit = played.credit(run)
    off = replace(credit.batch, behaviour=credit.batch.behaviour - 0.05 * (credit.batch.tick + 1))
    credit = replace(credit, batch=off)
    in_double(run.policies["shared"])
    whole = gradients(run, credit, tmp_path)
    assert torch.cat([g.flatten() for g in whole.values()]).norm() > 1e-3
    order = torch.tensor(random.Random(1).sample(range(len(off.ids)), len(off.ids)))
    padded = torch.nn.functional.pad(off.ids, (0, 9), value=5)
    others: dict[str, Any] = {
        "permuted": (permuted(off, order), {}),
        "cut small": (off, {"micro_batch_tokens": 1}),
        "cut in two": (off, {"micro_batch_tokens": int(off.lengths.sum()) // 2}),
        "padded": (replace(off, ids=padded), {}),
        "unmerged": (unmerged(off), {}),
        "everything": (
            permuted(unmerged(off), torch.randperm(len(unmerged(off).ids))),
            {"micro_batch_tokens": 99},
        ),
    }
    for name, (batch, arguments) in others.items():
        found = gradients(run, replace(credit, batch=batch), tmp_path, **arguments)
        assert distance(whole, found) <= TOLERANCE, name


TOLERANCE = 1e-6


def train_once(run: Run) -> None:
    """One update outside the loop, sampled from afterwards."""
    credit = play_iteration(run).credit(run)
    run.trainers[0].step(credit, update=0, folder=run.folder)
    run.engine.publish(run.trainers[0].policy.name)


def test_law_4_alike_dialogues_share_a_row_and_keep_their_own_tokens(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, {"game.num_rounds": 1, "collect": {"num_groups": 1, "group_size": 8}})
    batch = play_iteration(run).credit(run).batch
    assert len(batch.ids) < 16
    assert batch.num_tokens == batch.num_trajectories == 16


def test_law_4_critic_gradient_depends_on_no_cut(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, {"estimator": CRITIC, "game": TRUST})
    played = play_iteration(run)
    assert run.critic is not None and played.reading.batch is not None
    in_double(run.critic)
    run.critic.named_parameters()["head.weight"].data.fill_(
        0.1
    )  # 0 at first: no gradient would reach the trunk
    batch = played.reading.batch
    targets = torch.linspace(1, 3, len(batch.row))
    found = []
    for size in (1, 100, 100_000):
        still = torch.optim.SGD(list(run.critic.named_parameters().values()), lr=0.0)
        critic_updates.critic_step(
            run.critic,
            still,
            batch,
            targets,
            torch.ones(len(targets), dtype=torch.bool),
            CriticEstimator(gradient_clip=None),
            ReadPlan(micro_batch_tokens=size),
        )
        found.append(
            {name: p.grad.clone() for name, p in run.critic.named_parameters().items() if p.grad is not None}
        )
    assert distance(found[2], found[0]) <= TOLERANCE
    assert distance(found[2], found[1]) <= TOLERANCE


# --- Law 5: ids, not positions ---


@pytest.mark.parametrize("estimator", [{"kind": "returns"}, CRITIC], ids=["returns", "critic"])
def test_law_5_shuffled_games_packets_and_rows_change_nothing(
    tmp_path: Path, estimator: dict[str, Any]
) -> None:
    run = tiny_run(
        tmp_path,
        {"estimator": estimator, "shaping": ALIGNED, "game": SPLIT, "agents.sampling.max_new_tokens": 8},
    )
    played = play_iteration(run)
    expected = by_token(played.credit(run), played)
    lots = random.Random(5)

    trees = lots.sample(played.trees, len(played.trees))
    again = reckon(run, trees)
    assert by_token(again.credit(run), again) == expected

    packets = lots.sample(played.packets, len(played.packets))
    shuffled = replace(played, packets=tuple(packets))
    assert by_token(shuffled.credit(run), shuffled) == expected


def test_law_5_shuffled_trajectories_keep_their_credit(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, {"shaping": ALIGNED, "game": SPLIT, "agents.sampling.max_new_tokens": 8})
    played = play_iteration(run)
    order = random.Random(2).sample(range(len(played.trajectories)), len(played.trajectories))
    shuffled = replace(played, trajectories=tuple(played.trajectories[n] for n in order))
    assert by_token(shuffled.credit(run), shuffled) == by_token(played.credit(run), played)


def by_token(credit: Any, played: Iteration) -> dict[Any, float]:
    """Credit by (path, tick, position), to 12 digits."""
    batch = credit.batch
    paths = {path_key(trajectory): trajectory for trajectory in played.trajectories}
    keys = []
    for n in range(batch.num_tokens):
        key = played.table.keys[int(batch.path[n])]
        (row, turn), column = batch.place[n].tolist(), int(batch.column[n])
        lived = paths[key].rows[row]
        assert (lived.ids[column], lived.turn[column], lived.tick[column]) == (
            batch.targets[n],
            turn,
            batch.tick[n],
        )
        assert lived.log_probs[column] == batch.behaviour[n].numpy(), (
            f"token {n} belongs to another path than {key}"
        )
        keys.append((*key, row, column))
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, [round(float(c), 12) for c in credit.tokens], strict=True))


def test_law_5_groups_are_joined_by_id_b10() -> None:
    """Groups of unequal size, interleaved: 7, 9, 7, 9, 9 (G18, B10)."""
    returns = {"7a": ("7", 10.0), "9a": ("9", 1.0), "7b": ("7", 12.0), "9b": ("9", 3.0), "9c": ("9", 5.0)}
    trees = [
        make_tree({"Ada": [reward], "Bo": [0.0]}, episode=name, group=group)
        for name, (group, reward) in returns.items()
    ]
    for order in (trees, trees[::-1]):
        _, table = table_of(*order)
        found = estimators.estimate(ReturnsEstimator(discount=1.0), table, running_means={})
        rows = {key.episode: n for n, key in enumerate(table.keys) if key.player == "Ada"}
        got = {name: float(found.advantages[row, 0]) for name, row in rows.items()}
        assert got == {"7a": -2.0, "9a": -3.0, "7b": 2.0, "9b": 0.0, "9c": 3.0}


def test_law_5_packets_find_their_game_whatever_their_order() -> None:
    trees = [make_tree({"Ada": [n, n + 1.0], "Bo": [10.0 * n, 1.0]}, episode=f"e{n}") for n in range(4)]
    _, table = table_of(*trees)
    packets = make_packets(table, table.rewards)
    for order in (packets, packets[::-1]):
        others = exchange(table.keys, order, ("Ada", "Bo"))
        for row, key in enumerate(table.keys):
            n = int(key.episode[1:])
            expected = [10.0 * n, 1.0] if key.player == "Ada" else [n, n + 1.0]
            assert others[row].tolist() == expected


# --- Law 6: the right policy moves ---


def weights_of(run: Run) -> dict[str, bytes]:
    """One digest of each policy's weights."""
    return {name: digest(policy.state()) for name, policy in run.policies.items()}


def digest(state: Mapping[str, torch.Tensor]) -> bytes:
    whole = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        whole.update(name.encode() + tensor.numpy().tobytes())
    return whole.digest()


@pytest.mark.parametrize(
    "kinds", [(LORA, FULL), (LORA, LORA), (FULL, FULL)], ids=["lora-full", "lora-lora", "full-full"]
)
def test_law_6_a_step_moves_its_own_policy_and_no_other(tmp_path: Path, kinds: tuple[Any, Any]) -> None:
    run = tiny_run(
        tmp_path,
        {
            "agents.policies": {"ada": {"weights": kinds[0]}, "bo": {"weights": kinds[1]}},
            "agents.seats": {"Ada": "ada", "Bo": "bo"},
            "estimator": CRITIC,
        },
    )
    played = play_iteration(run)
    credits = [
        t.credit(played.trajectories, played.table, played.estimate, played.packets, update=0)
        for t in run.trainers
    ]
    assert run.critic is not None
    for trainer, credit in zip(run.trainers, credits, strict=True):
        before, base, critic = weights_of(run), base_of(run), digest(run.critic.state())
        assert credit is not None
        trainer.step(credit, update=0, folder=tmp_path)
        after = weights_of(run)
        assert {name for name in after if after[name] != before[name]} == {trainer.policy.name}
        assert base_of(run) == base
        assert digest(run.critic.state()) == critic
    before = weights_of(run)
    critic = digest(run.critic.state())
    update_critic(run, played.reading, played.table, played.estimate, update=0)
    assert weights_of(run) == before
    assert digest(run.critic.state()) != critic


def base_of(run: Run) -> bytes:
    """The base model without adapters."""
    state = {n: t for n, t in run.base.model.state_dict().items() if "lora" not in n}
    return digest(state)


@pytest.mark.parametrize("weights", [LORA, FULL], ids=["lora", "full"])
def test_law_6_next_replies_come_from_the_new_weights(tmp_path: Path, weights: dict[str, Any]) -> None:
    run = tiny_run(tmp_path, {"agents.policies": {"shared": {"weights": weights}}, "update.lr": 0.5})
    engine = run.engine = RecordingEngine(run.engine)  # type: ignore[assignment]
    first = play_iteration(run)
    run.trainers[0].step(first.credit(run), update=0, folder=tmp_path)
    run.engine.publish("shared")
    start = len(engine.seen)
    again = play_iteration(run)  # the same luck and the same first contexts
    old = {r.key: (r, s) for r, s in engine.seen[:start]}
    new = {r.key: (r, s) for r, s in engine.seen[start:]}
    assert {r.policy for r, _ in new.values()} == {"shared@1"}
    opening = [key for key in new if key[3] == 0]
    assert all(old[key][0].context == new[key][0].context for key in opening)
    assert any(
        old[key][1].log_probs != new[key][1].log_probs
        for key in opening
        if old[key][1].ids == new[key][1].ids
    )
    batch = again.credit(run).batch
    policy, how = run.policies["shared"], ReadPlan(micro_batch_tokens=16384)
    scored = all_log_probs(policy, token_passes(batch, policy, how), how)
    assert (scored - batch.behaviour).abs().max() <= 1e-4


def test_law_6_frozen_opponent_stays_as_it_was_to_the_byte(tmp_path: Path) -> None:
    policies = {"learner": {"weights": LORA}, "frozen": {"weights": FULL, "trained": False}}
    run = tiny_run(
        tmp_path, {"agents.policies": policies, "agents.seats": {"Ada": "learner", "Bo": "frozen"}}
    )
    before = weights_of(run)
    train(run, silent)
    after = weights_of(run)
    assert [t.policy.name for t in run.trainers] == ["learner"]
    assert after["frozen"] == before["frozen"]
    assert after["learner"] != before["learner"]
    assert run.policies["frozen"].label == "frozen@0"
    saved = [
        run.folder / "checkpoints" / f"{n:06d}" / "policies" / "frozen" / "model.safetensors" for n in (1, 3)
    ]
    assert saved[0].read_bytes() == saved[1].read_bytes()


# --- Law 7: luck is a function, not a stream ---


def test_law_7_draws_depend_on_no_order_and_no_number_of_episodes(tmp_path: Path) -> None:
    changes = {"game": SPLIT, "agents.sampling.max_new_tokens": 8, "agents.seats": {"Bo": "random"}}
    small = tiny_run(tmp_path / "small", changes | {"collect": {"num_groups": 2, "group_size": 2}})
    large = tiny_run(tmp_path / "large", changes | {"collect": {"num_groups": 5, "group_size": 2}})
    few = {tree.episode: tree for tree in collect_rollouts(small, 4)}
    many = {tree.episode: tree for tree in collect_rollouts(large, 4)}
    assert set(few) < set(many)
    for name, tree in few.items():
        assert luck(tree) == luck(many[name])
    assert len({json.dumps(luck(tree)) for tree in many.values()}) == len(many)


def luck(tree: RolloutTree) -> list[Any]:
    """All that chance decided: the group, what was dealt, the sampling seeds, the random player's moves."""
    dealt = [step.info.get("values") for step in tree.steps]
    seeds = [t.sampling.seed for s in tree.steps for t in s.turns if t.sampling]
    said = [t.reply for s in tree.steps for t in s.turns if t.player == "Bo"]
    return [tree.group_seed, dealt, seeds, said]


def test_law_7_planned_order_of_episodes_changes_no_tree(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, {"game": SPLIT, "agents.sampling.max_new_tokens": 8})
    episodes = plan_episodes(
        run.game,
        run_seed=1,
        iteration=0,
        num_groups=3,
        group_size=2,
        seats={player: run.factory("shared", run_seed=1) for player in run.game.spec.players},
        seat_names=dict.fromkeys(run.game.spec.players, run.label("shared")),
    )
    shuffled = tuple(random.Random(3).sample(episodes, len(episodes)))
    first = collect_sync(CollectPlan(game=run.game, episodes=episodes))
    run.engine.clear()
    assert collect_sync(CollectPlan(game=run.game, episodes=shuffled)) == first


def test_law_7_every_name_of_a_draw_counts() -> None:
    one = Chance(5, 1)
    draws = [one, Chance(6, 1), Chance(5, 2), replace(one, branch="b")]
    names = [
        (chance.uniform(purpose, index=index)) for chance in draws for purpose in "ab" for index in (0, 1)
    ]
    assert len(set(names)) == len(names)


CHILD = """
import hashlib, json, sys
from pathlib import Path
from coplay.training.config import RunConfig
from coplay.training.extract import path_key
from coplay.training.loop import train
from coplay.training.run import new_run
run = new_run(RunConfig.model_validate(json.loads(sys.argv[1])))
train(run, lambda update, metrics: None)
"""


def test_law_7_hash_seed_of_the_process_changes_no_rollout(tmp_path: Path) -> None:
    changes = TWO_POLICIES | {"game": SPLIT, "agents.sampling.max_new_tokens": 8, "update.num_updates": 2}
    here = tiny_run(tmp_path / "here", changes)
    train(here, silent)
    settings = tiny_settings(tmp_path / "there", changes)
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps(settings)],
        env=os.environ | {"PYTHONHASHSEED": seed},
        check=True,
    )
    one, other = run_bytes(here.folder), run_bytes(tmp_path / "there" / "tiny")
    assert differences(one, other) == []


# --- Law 8: resume equals no stop ---

EVERYTHING = TWO_POLICIES | {
    "estimator": CRITIC | {"gae_lambda": {"kind": "tanh", "limit": 0.95, "tau": 2.0}},
    "shaping": {"kind": "advantage_alignment", "beta": {"kind": "decay", "start": 1.0, "every": 2}},
    "objective": {
        "entropy_coefficient": {"kind": "linear", "initial": 0.2, "final": 0.0, "end": 6},
        "kl": {"coefficient": 0.1},
    },
    "update": {"num_updates": 6, "lr": {"kind": "linear", "initial": 1e-2, "final": 1e-3, "end": 6}},
    "evaluate": {"every": 2, "num_games": 2, "anchors": ["tit_for_tat"]},
    "collect": {"num_groups": 1, "group_size": 3},
}


class Crash(Exception):
    """Stands for whatever stops a run."""


def crash_at(last: int) -> Any:
    def report(update: int, metrics: Mapping[str, float]) -> None:
        if update == last:
            raise Crash

    return report


@pytest.mark.parametrize("checkpoint_every", [1, 2])
@pytest.mark.parametrize("estimator", ["critic", "running_mean"])
def test_law_8_three_and_three_iterations_are_six(
    tmp_path: Path, checkpoint_every: int, estimator: str
) -> None:
    changes = EVERYTHING | {"storage.checkpoint_every": checkpoint_every}
    if estimator == "running_mean":
        changes |= {"estimator": {"kind": "returns", "baseline": "running_mean", "reward_scale": 5.0}}
    whole = tiny_run(tmp_path / "whole", changes)
    train(whole, silent)
    cut = tiny_run(tmp_path / "cut", changes)
    with pytest.raises(Crash):
        train(cut, crash_at(2))
    resumed = resume_run(cut.folder)
    assert resumed.state.update in (2, 3)
    train(resumed, silent)
    one, other = run_bytes(whole.folder), run_bytes(cut.folder)
    assert one["updates"] == other["updates"] == list(range(6))
    assert any(name.endswith("critic.safetensors") for name in one) == (estimator == "critic")
    assert differences(one, other) == []


# --- Law 9: nothing silent ---


def test_law_9_unknown_key_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    from coplay.scripts.settings import check_settings

    with pytest.raises(ConfigError, match=r"unknown key 'collect.num_grups'; did you mean 'num_groups'"):
        check_settings(tiny_settings(tmp_path, {"collect.num_grups": 3}))


def spoil(run: Run, player: str, bad: Any) -> None:
    """Let a player's agent raise in the episodes that `bad(seat)` picks."""
    honest = run.factory

    def factory(agent: str, *, run_seed: int) -> Any:
        sit = honest(agent, run_seed=run_seed)

        def down(seat: Any) -> Any:
            if seat.player == player and bad(seat):
                return Sayer(seat, fail, run.label(agent))
            return sit(seat)

        return down

    run.factory = factory  # type: ignore[method-assign]


def fail(*_: Any) -> str:
    raise OSError("the line is dead")


def test_law_9_failed_games_are_counted_and_are_never_a_reward(tmp_path: Path) -> None:
    changes = {
        "collect": {"num_groups": 1, "group_size": 4, "max_failed_share": 0.5},
        "update.num_updates": 1,
    }
    run = tiny_run(tmp_path, changes)
    spoil(run, "Ada", lambda seat: seat.episode.endswith("2"))
    trees = collect_rollouts(run, 0)
    assert [tree.failure is not None for tree in trees] == [False, False, True, False]
    assert trees[2].failure is not None
    assert (trees[2].failure.player, trees[2].failure.step) == ("Ada", 0)
    played = reckon(run, trees)
    assert not any(key.episode.endswith("2") for key in played.table.keys)
    honest = reckon(run, [tree for tree in trees if tree.failure is None])
    assert torch.equal(played.estimate.advantages, honest.estimate.advantages)
    train(run, silent)
    (line,) = read_metrics(run.folder / "metrics.jsonl")
    assert line["rollout/count/failed"] == line["rollout/count/failed/Ada"] == 1
    alive = [tree for tree in read_rollouts(run.folder) if tree.failure is None]
    returns = [sum(step.rewards["Ada"] for step in tree.steps) for tree in alive]
    assert line["rollout/return/Ada"] == pytest.approx(np.mean(returns))


def test_law_9_too_many_failed_games_stop_the_run_with_the_first_cause(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, {"collect.max_failed_share": 0.3})
    spoil(run, "Bo", lambda seat: not seat.episode.endswith("0"))
    with pytest.raises(RuntimeError, match=r"'iterated_matrix'.*step 0.*player 'Bo'.*the line is dead"):
        train(run, silent)
    assert not list(read_metrics(run.folder / "metrics.jsonl"))


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_law_9_loss_that_is_no_number_is_refused_and_its_batch_saved(tmp_path: Path, poison: float) -> None:
    from safetensors.torch import load_file

    run = tiny_run(tmp_path)
    credit = play_iteration(run).credit(run)
    tokens = credit.tokens.clone()
    tokens[3] = poison
    before, optimiser = weights_of(run), run.trainers[0].optimizer_state()
    with pytest.raises(NonFiniteLossError, match="refused and its batch saved to"):
        run.trainers[0].step(replace(credit, tokens=tokens), update=0, folder=run.folder)
    assert weights_of(run) == before
    assert run.trainers[0].optimizer_state() == optimiser == {}
    assert run.policies["shared"].label == "shared@0"
    (saved,) = run.folder.glob("refused/*.safetensors")
    assert torch.equal(load_file(saved)["ids"], credit.batch.ids)
    assert not torch.isfinite(load_file(saved)["credits"]).all()


def test_law_9_critic_loss_that_is_no_number_is_refused(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, {"estimator": CRITIC})
    played = play_iteration(run)
    assert run.critic is not None and played.estimate.targets is not None
    before = digest(run.critic.state())
    bad = replace(played.estimate, targets=played.estimate.targets * float("nan"))
    with pytest.raises(NonFiniteLossError, match="critic"):
        update_critic(run, played.reading, played.table, bad, update=0)
    assert digest(run.critic.state()) == before


def test_law_9_update_with_nothing_to_train_on_is_counted(tmp_path: Path) -> None:
    """Every game of Ada's policy fails: no step, no new version, no momentum, and the metrics say so (B25)."""
    changes = TWO_POLICIES | {"collect.max_failed_share": 1.0, "update.num_updates": 2}
    run = tiny_run(tmp_path, changes)
    spoil(run, "Ada", lambda seat: seat.episode.startswith("000000"))
    before = weights_of(run)
    lines: list[Mapping[str, float]] = []
    labels: list[str] = []

    def report(update: int, metrics: Mapping[str, float]) -> None:
        lines.append(metrics)
        labels.append(run.label("ada"))

    train(run, report)
    assert lines[0]["policy/ada/skipped"] == lines[0]["policy/bo/skipped"] == 1
    assert lines[1]["policy/ada/skipped"] == lines[1]["policy/bo/skipped"] == 0
    assert labels == ["ada@0", "ada@1"]
    assert weights_of(run) != before


def test_law_9_run_that_never_finds_anything_to_train_on_stops_with_the_reason(tmp_path: Path) -> None:
    """A single dead update is normal; a row of them ends the run (B90)."""
    run = tiny_run(tmp_path, TWO_POLICIES | {"collect.max_failed_share": 1.0, "update.num_updates": 50})
    spoil(run, "Ada", lambda seat: True)
    with pytest.raises(NothingToTrainError, match=r"in 5 updates in a row.*rollout/count"):
        train(run, silent)
    assert run.state.update == 4


def test_law_9_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    """One layer's tensors renamed in a checkpoint: resume names them (B77)."""
    from safetensors.torch import load_file, save_file

    run = tiny_run(tmp_path, {"update.num_updates": 1})
    train(run, silent)
    path = run.folder / "checkpoints" / "000001" / "policies" / "shared" / "model.safetensors"
    state = load_file(path)
    name = next(name for name in state if "q_proj" in name)
    state[name.replace("q_proj", "qq_proj")] = state.pop(name)
    save_file(state, path, metadata={"format": "pt"})
    with pytest.raises(ValueError, match="q_proj"):
        resume_run(run.folder)


# --- Law 10: no code from data ---


def test_law_10_run_folders_hold_only_tensors_tables_and_text(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, EVERYTHING | {"update.num_updates": 2})
    train(run, silent)
    suffixes = {path.suffix for path in run.folder.rglob("*") if path.is_file() and path.name != "COMPLETE"}
    assert suffixes <= {".json", ".jsonl", ".safetensors", ".parquet", ".jinja"}
    for path in run.folder.rglob("*"):
        if path.is_file() and path.suffix in (".json", ".jsonl", ".jinja"):
            path.read_text(encoding="utf-8")


@pytest.mark.parametrize("place", ["policies/shared/model.safetensors", "optimizers/shared.safetensors"])
def test_law_10_tensors_that_are_a_pickle_are_refused_and_not_run(tmp_path: Path, place: str) -> None:
    run = tiny_run(tmp_path, {"update.num_updates": 1})
    train(run, silent)
    mark = tmp_path / "exploded"
    (run.folder / "checkpoints" / "000001" / place).write_bytes(f"cos\nmkdir\n(V{mark}\ntR.".encode())
    with pytest.raises(Exception, match=r"(?i)header|safetensor"):
        resume_run(run.folder)
    assert not mark.exists()


def test_law_10_settings_and_regexes_are_data(tmp_path: Path) -> None:
    from coplay.scripts.settings import parse_flags

    word = f"__import__('os').mkdir({str(tmp_path / 'made')!r})"
    assert parse_flags(["--name", word]) == [(["name"], word)]
    with pytest.raises(ConfigError):
        from coplay.scripts.settings import check_settings

        check_settings(tiny_settings(tmp_path, {"name": word}))
    assert not (tmp_path / "made").exists()


def test_law_10_hostile_rollout_text_is_escaped_where_it_is_shown() -> None:
    tree = make_tree({"Ada": [1.0], "Bo": [0.0]})
    hostile = "\x1b[2J\x07\u202eevil\r\x00"
    step = tree.steps[0]
    turns = tuple(replace(turn, reply=hostile) for turn in step.turns)
    shown = render_text(replace(tree, steps=(replace(step, turns=turns, info={"x": hostile}),)))
    assert all(character == "\n" or character.isprintable() for character in shown)
    assert "\\x1b[2J" in shown


def test_law_10_dry_run_escapes_what_models_said(tmp_path: Path) -> None:
    from coplay.scripts.dry_run import dry_run

    config = RunConfig.model_validate(
        tiny_settings(
            tmp_path, {"game": TRUST, "agents.sampling": {"max_new_tokens": 24, "constrained": False}}
        )
    )
    shown = dry_run(config)
    assert all(character == "\n" or character.isprintable() for character in shown)


def test_law_10_metrics_and_state_are_plain_json(tmp_path: Path) -> None:
    run = new_run(tiny_config(tmp_path, {"update.num_updates": 1}))
    train(run, silent)
    for line in (run.folder / "metrics.jsonl").read_text().splitlines():
        assert all(value is None or isinstance(value, int | float) for value in json.loads(line).values())
    state = json.loads((run.folder / "checkpoints" / "000001" / "state.json").read_text())
    assert state["update"] == 1
