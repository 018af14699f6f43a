"""`agents.model.kind = "tabular"`: a run like any other, which refuses what only language models do."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from run_fakes import FULL, LORA, tiny_config, tiny_run
from safetensors.torch import load_file

from coplay.agents.loading import load_agent
from coplay.scripts.exact import evaluate_exactly
from coplay.training.checkpoint import checkpoint_path
from coplay.training.loop import train
from coplay.training.metrics import read_metrics
from coplay.training.run import new_run, resume_run

TABULAR = {
    "agents.model": {"kind": "tabular"},
    "objective.largest_gap": 0.001,
    "update.lr": 0.3,
    "update.gradient_clip": None,
    "collect": {"num_groups": 4, "group_size": 8},
}
"""Of the dilemma of three rounds."""
TABLE = "policies/shared/table.safetensors"


def silent(update: int, metrics: Mapping[str, float]) -> None:
    """Hears what the loop reports."""


class Crash(Exception):
    """Stands for whatever stops a run."""


def crash(update: int, metrics: Mapping[str, float]) -> None:
    raise Crash


def test_dilemma_when_tables_train_each_for_itself_then_they_defect(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, TABULAR | {"update.num_updates": 12})
    train(run, silent)
    start, *_, end = read_metrics(run.folder / "metrics.jsonl")
    assert start["rollout/cooperation/Ada"] > 0.3
    report = evaluate_exactly([str(run.folder)], against=["always_defect"], changes={})
    home = report.results[0].values
    assert home["Ada"] < 1.6 * 3 and end["update"] == 11
    fresh = evaluate_exactly([f"{run.folder}@1"], against=(), changes={}).results[0].values
    assert fresh["Ada"] > home["Ada"]
    assert load_agent(run.folder, "Bo").policy.label == "shared@12"


def test_run_when_stopped_and_resumed_then_the_same_table(tmp_path: Path) -> None:
    whole = tiny_run(tmp_path / "whole", TABULAR)
    train(whole, silent)
    broken = tiny_run(tmp_path / "broken", TABULAR)
    with pytest.raises(Crash):
        train(broken, crash)
    train(resume_run(broken.folder), silent)
    tables = [(checkpoint_path(run.folder, 3) / TABLE).read_bytes() for run in (whole, broken)]
    assert tables[0] == tables[1]
    moved = load_file(checkpoint_path(whole.folder, 3) / TABLE)["logits"]
    assert torch.isfinite(moved).all() and moved.abs().max() > 0.1


def test_branches_and_kl_when_asked_for_then_tables_have_them_too(tmp_path: Path) -> None:
    changes = {
        "estimator": {"kind": "branches", "reward_scale": 5.0},
        "collect.branching": {"share": 0.5},
        "objective.kl": {"coefficient": 0.1},
        "update.num_updates": 2,
        "agents.policies": {"ada": {"weights": FULL}, "bo": {"weights": FULL}},
        "agents.seats": {"Ada": "ada", "Bo": "bo"},
    }
    run = tiny_run(tmp_path, TABULAR | changes)
    train(run, silent)
    *_, last = read_metrics(run.folder / "metrics.jsonl")
    assert last["policy/ada/kl"] > 0 and last["policy/bo/ratio_gap_max"] < 1e-5


def test_start_when_a_policy_goes_on_from_a_table_then_from_the_same_situations_only(tmp_path: Path) -> None:
    first = tiny_run(tmp_path, TABULAR | {"update.num_updates": 1})
    train(first, silent)
    start = {"agents.policies": {"shared": {"weights": FULL, "start": str(first.folder)}}}
    second = tiny_run(tmp_path, TABULAR | start | {"name": "second"})
    known = first.policies["shared"].state()["logits"]
    assert torch.equal(second.policies["shared"].state()["logits"], known)
    longer = TABULAR | start | {"name": "third", "game.num_rounds": 2}
    with pytest.raises(ValueError, match="is of other situations; expected one of the same game"):
        new_run(tiny_config(tmp_path, longer))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"agents.policies": {"shared": {"weights": LORA}}}, r"has no layers to adapt; expected 'full'"),
        ({"agents.sampling.constrained": False}, r"knows the listed moves only; expected true"),
        (
            {"agents.tools": {"search": {"kind": "bm25", "corpus": "search_qa"}}},
            r"'agents.tools' names \['search'\]",
        ),
        ({"agents.sampling.max_context": 64}, r"reads dialogues of any length; expected none"),
        ({"estimator": {"kind": "critic"}}, r"leaves a critic no states to read; expected 'returns'"),
        ({"update.precision": "bfloat16"}, r"would round; expected 'float32'"),
        (
            {"mixture": [{"name": "short", "game": {"num_rounds": 2}}]},
            r"'mixture' names games .* section 'game' alone; expected none",
        ),
        (
            {"evaluate.held_out": [{"name": "short", "game": {"num_rounds": 2}}]},
            r"'evaluate.held_out' names games",
        ),
    ],
)
def test_config_when_it_asks_for_what_only_language_models_do_then_refused(
    tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        tiny_config(tmp_path, TABULAR | changes)


def test_game_when_too_large_or_not_listable_then_one_sentence(tmp_path: Path) -> None:
    small = TABULAR | {"agents.model": {"kind": "tabular", "max_nodes": 50}}
    with pytest.raises(
        ValueError, match=r"max_nodes = 50 nodes and this one has more; expected fewer.*'embedded'"
    ):
        tiny_run(tmp_path, small)
    free = TABULAR | {"game": {"kind": "trust_and_split", "wording": "terse"}}
    with pytest.raises(ValueError, match=r"expected a grammar that lists its moves.*'embedded'"):
        tiny_run(tmp_path, free)
