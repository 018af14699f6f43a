"""Commands where a game lets its players call tools: play, evaluate, a typo in a flag (Done when 3)."""

from pathlib import Path

import pytest

from coplay.scripts.cli import main
from coplay.scripts.settings import TRAINING, read_settings

SEARCH = ["--agents.tools.search.kind", "bm25", "--agents.tools.search.corpus", "search_qa"]


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.needs("bm25s")
def test_play_when_tools_are_configured_then_a_scripted_agent_searches(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["play", "search_qa", "--seats", "Ada=searcher", *SEARCH, "--out", "kept"]) == 0
    told = capsys.readouterr().out
    assert "    ? <search>What does" in told and "< <information>Doc 1(Title: " in told
    assert "returns  Ada 1" in told and Path("kept/rollouts").is_dir()


def test_play_when_nobody_runs_the_tool_then_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", "search_qa", "--seats", "Ada=searcher"]) != 0
    assert "[agents.tools.search]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--agents.tools.search.kind", "bm26"], "'bm25'"),
        ([*SEARCH, "--agents.tools.search.top", "3"], "'agents.tools.search.top'"),
        (["--agents.tools.search.kind", "http", "--agents.tools.search.url", "file:///etc"], "file:///etc"),
    ],
)
def test_play_when_a_tool_is_configured_wrongly_then_one_line(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["play", "search_qa", "--seats", "Ada=searcher", *words]) == 2
    assert told in capsys.readouterr().err


def test_flags_when_they_change_a_tool_then_its_name_is_kept() -> None:
    config = read_settings("search_qa", ["--agents.tools.book.top-k", "2"])
    assert config.agents.tools["book"].top_k == 2  # type: ignore[union-attr]
    assert TRAINING.read("search_qa", []).objective.mask_tool_output


@pytest.mark.needs("bm25s")
def test_run_when_evaluated_against_a_searcher_then_both_have_tools(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tiny = [
        "--agents.model.hidden",
        "16",
        "--agents.model.intermediate",
        "16",
        "--agents.model.num-layers",
        "1",
    ]
    few = ["--collect.num-groups", "2", "--collect.group-size", "2", "--update.num-updates", "1"]
    assert main(["train", "search_qa", *tiny, *few, "--evaluate.num-games", "2"]) == 0
    assert main(["evaluate", "runs/search_qa", "--games", "2", "--against", "searcher"]) == 0
    assert main(["explain", "runs/search_qa", "0/0", "0.Ada"]) == 0
    assert main(["view", "runs/search_qa"]) == 0
    capsys.readouterr()
