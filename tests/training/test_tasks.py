"""Runs on tasks from files: one player through the same loop, held-out files, counts, and law 8."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from run_fakes import differences, play_iteration, run_bytes, tiny_config, tiny_run

from coplay.rollout_tree import read_rollouts
from coplay.scripts.dry_run import dry_run
from coplay.scripts.settings import read_settings
from coplay.training.loop import train
from coplay.training.messages import ConfigError
from coplay.training.metrics import read_metrics
from coplay.training.run import new_run, resume_run

LABELS = ["A", "B", "C", "D"]


def silent(update: int, metrics: Any) -> None:
    """Hears what the loop reports."""


def write(path: Path, words: str, *, more: tuple[dict[str, Any], ...] = ()) -> str:
    """Tasks of copying a letter: which of the four stands behind a word."""
    rows = [
        {"prompt": f"{word} {label}", "answer": label, "from": word}
        for word in words.split()
        for label in LABELS
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in [*rows, *more]), encoding="utf-8")
    return str(path)


def changes(folder: Path, **more: Any) -> dict[str, Any]:
    game = {
        "kind": "tasks",
        "wording": "terse",
        "path": write(
            folder / "train.jsonl", "play move my", more=({"prompt": "", "answer": "A", "from": "my"},)
        ),
        "source_column": "from",
        "labels": LABELS,
    }
    return {
        "game": game,
        "collect": {"num_groups": 5, "group_size": 4},
        "estimator": {"kind": "returns"},
        "update": {"num_updates": 4, "lr": 1e-2},
        **more,
    }


def test_run_when_it_trains_on_tasks_then_each_once_an_epoch_and_all_is_counted(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, changes(tmp_path))
    train(run, silent)
    asked: list[int] = []
    for iteration in range(4):
        groups: dict[str, set[int]] = {}
        for tree in read_rollouts(run.folder, iteration=iteration):
            info = tree.steps[0].info
            groups.setdefault(tree.group, set()).add(info["task"])
            assert info["source"] in ("play", "move", "my") and len(info["answers"]) == 1
        assert len(groups) == 5 and all(len(tasks) == 1 for tasks in groups.values())
        asked += [tasks.pop() for _, tasks in sorted(groups.items())]
    assert sorted(asked[:12]) == list(range(12)) and len(set(asked[12:])) == 8
    lines = list(read_metrics(run.folder / "metrics.jsonl"))
    assert lines[0]["data/rows"] == 13 and lines[0]["data/empty"] == 1 and lines[0]["data/tasks"] == 12
    assert lines[0]["data/source/move"] == 4
    assert [line["data/epochs"] for line in lines] == [5 / 12, 10 / 12, 15 / 12, 20 / 12]
    kept = json.loads((run.folder / "environment.json").read_text())["data"]["tasks"]
    assert kept["name"].endswith("train.jsonl") and kept["counts"]["empty"] == 1


def test_law_8_tasks_when_stopped_within_an_epoch_then_the_same_as_without(tmp_path: Path) -> None:
    settings = changes(tmp_path, **{"evaluate": {"every": 2, "num_games": 3}})
    whole = tiny_run(tmp_path / "whole", settings)
    train(whole, silent)
    cut = tiny_run(tmp_path / "cut", settings)

    def stop(update: int, metrics: Any) -> None:
        if update == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(cut, stop)
    train(resume_run(cut.folder), silent)
    assert differences(run_bytes(whole.folder), run_bytes(cut.folder)) == []


def test_resume_when_the_file_has_changed_then_refused(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, changes(tmp_path))
    write(tmp_path / "train.jsonl", "play move your")
    with pytest.raises(
        ConfigError, match=r"train.jsonl' \(tasks\) has the digest .* began with .*: a run goes on with"
    ):
        resume_run(run.folder)
    changes(tmp_path)
    assert resume_run(run.folder).state.update == 0


def test_held_out_when_another_file_then_evaluated_and_never_trained_on(tmp_path: Path) -> None:
    held = {"name": "unseen", "game": {"path": write(tmp_path / "test.jsonl", "your")}}
    settings = changes(tmp_path, evaluate={"every": 4, "num_games": 4, "held_out": [held]})
    run = tiny_run(tmp_path, settings)
    assert run.data["held_out/unseen"].counts["tasks"] == 4
    assert run.data["held_out/unseen"].counts["trained_on"] == 0
    train(run, silent)
    (last,) = [
        entry for entry in json.loads((run.folder / "evaluations.json").read_text()) if entry["update"] == 4
    ]
    whole = [one for one in last["results"] if not one.get("source")]
    assert [(one.get("game", ""), one["games"]) for one in whole] == [("", 4), ("unseen", 4)]
    by_source = {one["source"]: one["games"] for one in last["results"] if one.get("source")}
    assert set(by_source) <= {"play", "move", "my", "your"}
    assert sum(games for source, games in by_source.items() if source != "your") == 4
    trained = {
        tree.steps[0].info["source"] for n in range(4) for tree in read_rollouts(run.folder, iteration=n)
    }
    assert "your" not in trained


def test_held_out_when_some_of_it_is_trained_on_then_counted(tmp_path: Path) -> None:
    held = {"name": "half", "game": {"path": write(tmp_path / "test.jsonl", "your move")}}
    told = dry_run(tiny_config(tmp_path, changes(tmp_path, evaluate={"held_out": [held]})))
    (line,) = [line for line in told.splitlines() if "held_out/half" in line]
    assert "tasks 8" in line and line.endswith("trained_on 4")


def test_run_when_prompts_are_too_long_in_its_tokens_then_left_out_at_the_start(tmp_path: Path) -> None:
    """In embedded tokens: `<|start|> reply play A` is 4; a spelt word is more."""
    settings = changes(tmp_path)
    settings["game"]["path"] = write(tmp_path / "t.jsonl", "play extraordinary")
    settings["game"]["max_prompt_tokens"] = 6
    run = tiny_run(tmp_path, settings)
    assert run.data["tasks"].counts["too_many_tokens"] == 4 and run.data["tasks"].counts["tasks"] == 4
    made = play_iteration(run)
    assert {tree.steps[0].info["source"] for tree in made.trees} == {"play"}


@pytest.mark.parametrize(
    "more",
    [
        {"estimator": {"kind": "critic", "lr": 1e-3}},
        {"estimator": {"kind": "branches"}, "collect.branching": {"num_alternatives": 2}},
        {"shaping": {"kind": "advantage_alignment"}},
        {"shaping": {"kind": "shared_reward"}},
    ],
    ids=["critic", "branches", "aligned", "shared"],
)
def test_run_when_one_player_then_every_scheme_trains(tmp_path: Path, more: dict[str, Any]) -> None:
    """The same loop, tree, packing and storage serve a game of one seat; what others get is nothing."""
    settings = changes(tmp_path)
    settings["update"]["num_updates"] = 1
    run = tiny_run(tmp_path, settings | more)
    train(run, silent)
    (line,) = read_metrics(run.folder / "metrics.jsonl")
    assert line["policy/shared/tokens"] > 0 and line["policy/shared/ratio_gap_max"] <= 1e-4


def test_dry_run_when_on_tasks_then_tells_what_was_read(tmp_path: Path) -> None:
    held = {"name": "unseen", "game": {"path": write(tmp_path / "test.jsonl", "your")}}
    told = dry_run(tiny_config(tmp_path, changes(tmp_path, evaluate={"held_out": [held]})))
    assert "rows 13, empty 1, too_long 0, duplicates 0, tasks 12, sources 3, source/move 4" in told
    assert "data of 'held_out/unseen'" in told


def test_config_when_the_file_is_missing_then_one_sentence(tmp_path: Path) -> None:
    settings = changes(tmp_path)
    settings["game"]["path"] = str(tmp_path / "none.jsonl")
    with pytest.raises(ValidationError, match=r"there is no '.*none.jsonl'"):
        tiny_config(tmp_path, settings)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_tasks_when_the_shipped_run_is_trained_then_more_answers_are_right(tmp_path: Path, seed: int) -> None:
    """REINFORCE with leave-one-out groups, about 10 CPU seconds a seed."""
    config = read_settings("tasks", ["--seed", str(seed), "--storage.folder", str(tmp_path)])
    run = new_run(config)
    train(run, silent)
    history = json.loads((run.folder / "evaluations.json").read_text())
    share = {entry["update"]: entry["results"][0]["own"]["mean"] for entry in history}
    assert share[0] <= 0.25 and share[200] >= share[0] + 0.5
