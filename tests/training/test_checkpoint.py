"""Checkpoints: whole or ignored, by name, and a resumed run does neither more nor less (B40, B41, B77, B89-B95)."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from run_fakes import FULL, LORA, play_iteration, tiny_config, tiny_run
from safetensors.torch import load_file, save_file

from coplay.agents.loading import load_agent
from coplay.agents.runs import read_config as read_run
from coplay.rollout_tree import read_rollouts
from coplay.training.checkpoint import (
    COMPLETE,
    CheckpointError,
    LoopState,
    checkpoint_path,
    complete_checkpoints,
    optimizer_tensors,
    prune_checkpoints,
    read_state,
    restore_optimizer,
    save_checkpoint,
)
from coplay.training.loop import train
from coplay.training.messages import ConfigError
from coplay.training.metrics import MetricsFile, read_metrics
from coplay.training.run import Run, new_run, resume_run
from coplay.training.stored_config import read_config

CRITIC = {"kind": "critic", "reward_scale": 5.0, "lr": 1e-2}
TWO = {
    "agents.policies": {"ada": {"weights": LORA}, "bo": {"weights": FULL}},
    "agents.seats": {"Ada": "ada", "Bo": "bo"},
}


def silent(update: int, metrics: Mapping[str, float]) -> None:
    """Hears what the loop reports."""


class Crash(Exception):
    """Stands for whatever stops a run."""


def crash_at(last: int) -> Any:
    def report(update: int, metrics: Mapping[str, float]) -> None:
        if update == last:
            raise Crash

    return report


class Cut:
    """A policy whose writing is cut off half way."""

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(b"half")
        raise Crash

    def load(self, folder: Path) -> None:
        raise AssertionError("nobody may read what was never finished")


def state(update: int) -> LoopState:
    return LoopState(update=update, policy_versions={"a": update}, running_means={})


def test_half_written_checkpoint_when_looked_for_then_ignored_b40(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, {"update.num_updates": 2})
    train(run, silent)
    with pytest.raises(Crash):
        save_checkpoint(run.folder, state(3), policies={"shared": Cut()}, critic=None, optimizers={})
    unmarked = checkpoint_path(run.folder, 9)
    unmarked.mkdir()
    (unmarked / "state.json").write_text("{}")
    assert complete_checkpoints(run.folder) == [1, 2]
    resumed = resume_run(run.folder)
    assert resumed.state.update == 2
    assert resumed.label("shared") == "shared@2"
    with pytest.raises(CheckpointError, match="no complete checkpoint"):
        read_state(unmarked)


def test_partial_checkpoint_when_the_same_update_is_saved_again_then_replaced_b40(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, {"update.num_updates": 2, "storage.checkpoint_every": 2})
    aside = checkpoint_path(run.folder, 2).with_name(".000002.partial")
    (aside / "policies").mkdir(parents=True)
    (aside / "rubbish.bin").write_bytes(b"half")
    train(run, silent)
    assert complete_checkpoints(run.folder) == [2]
    assert not aside.exists()
    assert not (checkpoint_path(run.folder, 2) / "rubbish.bin").exists()


def test_global_luck_when_it_differs_then_a_resumed_run_does_not_b41(tmp_path: Path) -> None:
    """No generator's state matters: whatever the process did before, the rest of the run is the same."""
    found = []
    for name, seed in (("one", 1), ("two", 2)):
        run = tiny_run(tmp_path / name, TWO | {"estimator": CRITIC, "game.kind": "iterated_matrix"})
        with pytest.raises(Crash):
            train(run, crash_at(0))
        torch.manual_seed(seed)
        np.random.seed(seed)
        torch.rand(seed)
        train(resume_run(run.folder), silent)
        found.append((checkpoint_path(run.folder, 3) / "policies" / "bo" / "model.safetensors").read_bytes())
    assert found[0] == found[1]


def test_weights_when_saved_and_loaded_then_one_forward_pass_is_the_same_b77(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, TWO | {"estimator": CRITIC, "update.num_updates": 1})
    train(run, silent)
    again = resume_run(run.folder)
    ids = torch.tensor([[3, 20, 21, 22]])
    for name in ("ada", "bo"):
        one, other = (r.policies[name] for r in (run, again))
        with torch.no_grad():
            assert torch.equal(one.logits(one.hidden(ids)), other.logits(other.hidden(ids)))
    assert run.critic is not None and again.critic is not None
    point = (torch.tensor([0]), torch.tensor([3]))
    assert torch.equal(
        run.critic.values(ids, None, None, *point), again.critic.values(ids, None, None, *point)
    )


@pytest.mark.parametrize("place", ["policies/ada/adapter_model.safetensors", "critic/critic.safetensors"])
def test_tensor_when_renamed_in_a_checkpoint_then_resume_names_it_b77(tmp_path: Path, place: str) -> None:
    run = tiny_run(tmp_path, TWO | {"estimator": CRITIC, "update.num_updates": 1})
    train(run, silent)
    path = checkpoint_path(run.folder, 1) / place
    tensors = load_file(path)
    name = next(name for name in tensors if "q_proj" in name)
    tensors[name.replace("q_proj", "other_proj")] = tensors.pop(name)
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(ValueError, match="q_proj"):
        resume_run(run.folder)


def test_games_when_a_run_crashed_then_each_is_trained_exactly_once_b89(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, {"storage.checkpoint_every": 2, "update.num_updates": 4})
    with pytest.raises(Crash):
        train(run, crash_at(2))
    assert resume_run(run.folder).state.update == 2
    train(resume_run(run.folder), silent)
    episodes = [tree.episode for tree in read_rollouts(run.folder)]
    assert episodes == [f"{update:06d}/{n:05d}" for update in range(4) for n in range(4)]


def test_metrics_when_the_log_ran_ahead_then_each_update_stands_once_b91(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, {"storage.checkpoint_every": 2, "update.num_updates": 4})
    with pytest.raises(Crash):
        train(run, crash_at(2))
    assert [line["update"] for line in read_metrics(run.folder / "metrics.jsonl")] == [0, 1, 2]
    with (run.folder / "metrics.jsonl").open("a") as file:
        file.write('{"update": 3, "cut o')
    train(resume_run(run.folder), silent)
    text = (run.folder / "metrics.jsonl").read_text()
    assert [json.loads(line)["update"] for line in text.splitlines()] == [0, 1, 2, 3]


def test_metrics_when_not_a_number_then_null(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "metrics.jsonl", resume_from=0)
    file.append(0, {"a": float("nan"), "b": float("inf"), "c": 0.5})
    assert list(read_metrics(file.path)) == [{"update": 0, "a": None, "b": None, "c": 0.5}]


def test_finished_run_when_started_again_then_nothing_happens_b92(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, {"update.num_updates": 2, "evaluate": {"every": 2, "num_games": 1}})
    train(run, silent)
    before = {p: p.read_bytes() for p in run.folder.rglob("*") if p.is_file()}
    heard: list[int] = []
    for _ in range(2):
        train(resume_run(run.folder), lambda update, metrics: heard.append(update))
    assert heard == []
    assert {p: p.read_bytes() for p in run.folder.rglob("*") if p.is_file()} == before


def test_schedules_when_resumed_then_go_on_and_stray_files_change_nothing_b93(tmp_path: Path) -> None:
    line = {"kind": "linear", "initial": 1e-2, "final": 1e-3, "end": 6}
    run = tiny_run(tmp_path, {"update": {"num_updates": 6, "lr": line}})
    with pytest.raises(Crash):
        train(run, crash_at(2))
    for stray in ("notes.txt", "optimizers/notes.txt", "policies/.DS_Store"):
        (checkpoint_path(run.folder, 2) / stray).write_text("stray")
    (run.folder / "checkpoints" / "backup").mkdir()
    train(resume_run(run.folder), silent)
    rates = [entry["policy/shared/lr"] for entry in read_metrics(run.folder / "metrics.jsonl")]
    assert rates == pytest.approx([1e-2 - 1.5e-3 * update for update in range(6)])


def test_moments_when_restored_in_another_order_then_each_finds_its_parameter_by_name_b95(
    tmp_path: Path,
) -> None:
    """One of two optimisers has no state yet; then both policies step as if nothing had happened."""
    policies = {"ada": {"weights": LORA}, "bo": {"weights": LORA}}
    seats = {"Ada": "ada", "Bo": "bo"}
    changes = {"agents.policies": policies, "agents.seats": seats}
    run = tiny_run(tmp_path / "a", changes)
    played = play_iteration(run)
    for update in range(2):  # only ada's optimiser has moments
        credit = run.trainers[0].credit(
            played.trajectories, played.table, played.estimate, played.packets, update=0
        )
        assert credit is not None
        run.trainers[0].step(credit, update=update, folder=tmp_path)
        run.policies["ada"].version = 0
    run.save()
    backwards = dict(reversed(list(policies.items())))
    other = Run(tiny_config(tmp_path / "a", changes | {"agents.policies": backwards}), folder=run.folder)
    assert list(other.policies) == ["bo", "ada"]
    other.restore(0)
    steppers = [{t.policy.name: t for t in r.trainers} for r in (run, other)]
    assert not steppers[1]["bo"].optimizer_state()
    again = play_iteration(run)
    for name in ("ada", "bo"):
        for trainers in steppers:
            credit = trainers[name].credit(
                again.trajectories, again.table, again.estimate, again.packets, update=2
            )
            assert credit is not None
            trainers[name].step(credit, update=2, folder=tmp_path)
        one, two = (trainers[name].policy.state() for trainers in steppers)
        assert all(torch.equal(one[key], two[key]) for key in one)


def test_moments_when_of_a_parameter_that_is_not_there_then_refused_by_name() -> None:
    parameter = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.Adam([parameter])
    parameter.sum().backward()
    optimizer.step()
    flat = optimizer_tensors(optimizer, {"w": parameter})
    assert set(flat) == {"w/step", "w/exp_avg", "w/exp_avg_sq"}
    with pytest.raises(CheckpointError, match=r"'w', which the policy has not"):
        restore_optimizer(torch.optim.Adam([parameter]), {"v": parameter}, flat)


def test_old_checkpoints_when_pruned_then_the_newest_and_the_best_stay(tmp_path: Path) -> None:
    for update in range(1, 6):
        save_checkpoint(tmp_path, state(update), policies={}, critic=None, optimizers={})
    prune_checkpoints(tmp_path, keep=2, protect=2)
    assert complete_checkpoints(tmp_path) == [2, 4, 5]
    prune_checkpoints(tmp_path, keep=None, protect=None)
    assert complete_checkpoints(tmp_path) == [2, 4, 5]


def test_updates_when_so_many_are_asked_for_then_so_many_and_the_last_is_saved(tmp_path: Path) -> None:
    """A budget that is no multiple of the period of saving neither costs an update nor the last weights."""
    run = tiny_run(tmp_path, {"update.num_updates": 5, "storage.checkpoint_every": 2})
    train(run, silent)
    assert [line["update"] for line in read_metrics(run.folder / "metrics.jsonl")] == [0, 1, 2, 3, 4]
    assert complete_checkpoints(run.folder) == [2, 4, 5]
    assert run.policies["shared"].version == 5


def test_best_checkpoint_when_evaluated_then_kept_beside_the_newest(tmp_path: Path) -> None:
    changes = {"evaluate": {"every": 1, "num_games": 2}, "update.num_updates": 4, "storage.keep": 1}
    run = tiny_run(tmp_path, changes)
    train(run, silent)
    kept = complete_checkpoints(run.folder)
    assert run.state.best_update is not None
    assert set(kept) == {run.state.best_update, 4}
    history = json.loads((run.folder / "evaluations.json").read_text())
    assert [entry["update"] for entry in history] == [0, 1, 2, 3, 4]
    best = max(history, key=lambda entry: entry["results"][0]["own"]["mean"])
    assert best["update"] == run.state.best_update


def test_state_when_of_another_version_or_broken_then_one_sentence(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, state(1), policies={}, critic=None, optimizers={})
    path = checkpoint_path(tmp_path, 1) / "state.json"
    saved = json.loads(path.read_text())
    path.write_text(json.dumps(saved | {"version": 99}))
    with pytest.raises(CheckpointError, match="state version 99; expected 1"):
        read_state(path.parent)
    path.write_text(json.dumps(saved | {"updates": 3}))
    with pytest.raises(CheckpointError, match="updates"):
        read_state(path.parent)
    path.write_text("{")
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_state(path.parent)


@pytest.mark.parametrize(
    "file", ["optimizers/shared", "optimizers/critic:", "policies/shared/model", "critic/critic"]
)
def test_file_when_cut_empty_or_gone_after_the_mark_then_resume_names_it_b40(
    tmp_path: Path, file: str
) -> None:
    """Damage that no order of writing guards against; the way out is told."""
    run = tiny_run(tmp_path, {"update.num_updates": 1, "estimator": CRITIC})
    train(run, silent)
    path = checkpoint_path(run.folder, 1) / f"{file}.safetensors"
    whole = path.read_bytes()
    for damage in (b"", whole[: len(whole) // 2]):
        path.write_bytes(damage)
        with pytest.raises(ValueError, match=f"{file}.safetensors' is damaged .* earlier one"):
            resume_run(run.folder)
    path.unlink()
    with pytest.raises(ValueError, match=r"holds no (optimiser state|whole model|critic)"):
        resume_run(run.folder)


def test_state_when_of_another_update_or_other_policies_then_refused(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, {"update.num_updates": 2})
    train(run, silent)
    path = checkpoint_path(run.folder, 2) / "state.json"
    saved = json.loads(path.read_text())
    for changes, told in (
        ({"update": 1}, "is of update 1; expected that of the folder's name"),
        ({"policy_versions": {}}, r"has the policies \[\]; expected \['shared'\]"),
    ):
        path.write_text(json.dumps(saved | changes))
        with pytest.raises(CheckpointError, match=told):
            resume_run(run.folder)


def test_start_when_in_the_folder_to_be_overwritten_then_refused(tmp_path: Path) -> None:
    """Deleted after loading, it would be gone on resume, or be the new run's own checkpoint of that number."""
    run = tiny_run(tmp_path, {"update.num_updates": 1})
    train(run, silent)
    start = {"agents.policies": {"shared": {"weights": FULL, "start": f"{run.folder}@1:shared"}}}
    with pytest.raises(ConfigError, match="lies in the folder to be overwritten"):
        new_run(tiny_config(tmp_path, start), overwrite=True)
    assert complete_checkpoints(run.folder) == [1]
    assert new_run(tiny_config(tmp_path, {**start, "name": "next"})).folder.name == "next"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"seed": 4},
            r"'embedded' of seed 3 \(hidden 16, .*, and this run's is 'embedded' of seed 4 \(hidden 16",
        ),
        ({"agents.model.num_heads": 1}, "num_heads 2.*num_heads 1"),
    ],
)
def test_start_of_an_adapter_when_its_base_was_another_then_refused(
    tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    """Its tensors would fit, and say something else there."""
    run = tiny_run(tmp_path, {"update.num_updates": 1, "agents.policies": {"ada": {"weights": LORA}}})
    train(run, silent)
    start = {"name": "next", "agents.policies": {"bo": {"weights": LORA, "start": f"{run.folder}"}}}
    with pytest.raises(ValueError, match=f"adapter of .*tiny@1:ada' was learnt over .*{told}"):
        new_run(tiny_config(tmp_path, start | changes))
    assert not (tmp_path / "next").exists()
    assert new_run(tiny_config(tmp_path, start | {"agents.model.max_positions": 512})).folder.exists()


def test_start_when_trained_anew_before_a_run_goes_on_then_refused_where_it_is_the_reference(
    tmp_path: Path,
) -> None:
    """The KL would be to another policy from there on."""
    first: dict[str, Any] = {"update.num_updates": 1, "agents.policies": {"ada": {"weights": LORA}}}
    run = tiny_run(tmp_path, first)
    train(run, silent)
    start = {"agents.policies": {"bo": {"weights": LORA, "start": str(run.folder)}}}
    kl = {"objective.kl": {"coefficient": 0.1}}
    held, free, fresh = (
        tiny_run(tmp_path, {**start, **changes})
        for changes in ({"name": "held", **kl}, {"name": "free"}, {"name": "fresh"})
    )
    for one in (held, free):
        one.save()
    for one in (held, free, fresh):
        resume_run(one.folder)
    train(new_run(tiny_config(tmp_path, {**first, "update.lr": 0.5}), overwrite=True), silent)
    for one in (held, fresh):
        with pytest.raises(
            ConfigError, match=r"'bo' .* started from '.*tiny@1:ada', where other weights lie now"
        ):
            resume_run(one.folder)
    resume_run(free.folder)


def test_checkpoints_when_copies_of_other_names_lie_beside_then_not_seen(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, state(4), policies={}, critic=None, optimizers={})
    for name in ("7", "²", "000004 copy", "latest", "0000009"):
        (tmp_path / "checkpoints" / name).mkdir()
        (tmp_path / "checkpoints" / name / COMPLETE).write_text("")
    assert complete_checkpoints(tmp_path) == [4]


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b'{"starts": 3}'])
def test_environment_when_damaged_then_the_file_is_named(tmp_path: Path, content: bytes) -> None:
    run = tiny_run(tmp_path)
    (run.folder / "environment.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"'.*environment\.json'"):
        resume_run(run.folder)


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b'{"policy_versions": {"shared": "x"}}'])
def test_state_when_damaged_then_the_file_is_named_on_loading_an_agent_and_on_resume(
    tmp_path: Path, content: bytes
) -> None:
    run = tiny_run(tmp_path)
    run.save()
    (checkpoint_path(run.folder, 0) / "state.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"'.*state\.json'"):
        load_agent(run.folder, "Ada")
    with pytest.raises(CheckpointError, match=r"state\.json cannot be read"):
        resume_run(run.folder)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"name": "\xeb"}'])
def test_config_when_it_is_no_json_object_then_the_file_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_bytes(content)
    for read in (read_config, read_run):
        with pytest.raises(ValueError, match=r"config\.json' (is no JSON|holds .* expected a JSON object)"):
            read(tmp_path)


@pytest.mark.parametrize("line", [b"\n", b"[1]\n", b'{"update": 1, "x\n', b"\xff\xfe\n", b'{"x": 1}\n'])
def test_metrics_when_a_line_in_the_middle_is_damaged_then_it_is_named(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"update": 0}\n' + line + b'{"update": 2}\n')
    with pytest.raises(ValueError, match=r"line 2 of '.*metrics\.jsonl'"):
        MetricsFile(path, resume_from=3)
    assert line in path.read_bytes()


def test_kill_when_between_files_of_a_new_run_then_it_can_begin_again(tmp_path: Path) -> None:
    """No run folder without a whole config.json: what a crash left is an empty folder, or a run."""
    config = tiny_config(tmp_path, {"update.num_updates": 1})
    (tmp_path / "tiny").mkdir()
    run = new_run(config)
    assert (run.folder / "config.json").is_file()
    assert [name for name in os.listdir(run.folder) if name.endswith(".partial")] == []


def test_complete_mark_when_written_then_last(tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path, state(4), policies={}, critic=None, optimizers={})
    assert {path.name for path in folder.iterdir()} == {COMPLETE, "optimizers", "state.json"}
