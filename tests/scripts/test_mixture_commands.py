"""Commands on runs that play several games."""

import json
from pathlib import Path
from typing import Any

import pytest
from run_fakes import tiny_run, tiny_settings

from coplay.scripts.cli import main
from coplay.scripts.dry_run import dry_run
from coplay.training.config import RunConfig
from coplay.training.loop import train

MIXED: dict[str, Any] = {
    "mixture": [
        {"name": "letters", "weight": 3.0, "vary": {"moves": [["A", "B"], ["B", "A"]]}},
        {"name": "split", "game": {"kind": "split", "wording": "terse", "num_rounds": 2}},
    ],
    "agents.sampling": {"max_new_tokens": 6, "constrained": True},
    "evaluate": {
        "anchors": ["tit_for_tat", "fair"],
        "held_out": [{"name": "longer", "game": {"num_rounds": 5}}],
    },
}


def test_dry_run_when_games_are_mixed_then_their_shares() -> None:
    told = dry_run(RunConfig.model_validate(tiny_settings(None, MIXED)))
    assert "a mixture of 'letters' 75.0% (2), 'split' 25.0% (1), 4 games an iteration" in told


def test_evaluate_when_games_are_mixed_then_a_row_for_each_that_an_anchor_can_play(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tiny_run(tmp_path, MIXED)
    train(run, lambda update, metrics: None)
    kept = tmp_path / "found.json"
    assert main(["evaluate", str(run.folder), "--games", "2", "--json", str(kept)]) == 0
    (rows,) = json.loads(kept.read_text()).values()
    assert [(row["game"], row["opponent"]) for row in rows] == [
        ("letters", "self-play"),
        ("letters", "tit_for_tat"),
        ("split", "self-play"),
        ("split", "fair"),
        ("longer", "self-play"),
        ("longer", "tit_for_tat"),
    ]
    assert "longer" in capsys.readouterr().out
    assert main(["view", str(run.folder)]) == 0
    page = (run.folder / "report.html").read_text()
    assert "letters moves=[" in page
