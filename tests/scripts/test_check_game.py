"""`coplay check-game` and `coplay new-game`: what they print, write and return."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from shipped_games import SHIPPED

from coplay.games import make_game
from coplay.games.conformance import RULES, check_game, load_game
from coplay.scripts import cli
from coplay.scripts.check_game import scripted_repliers

FAULTS = Path(__file__).parent.parent / "games"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


def test_check_game_when_all_rules_hold_then_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check-game", "kuhn_poker", "--game.wording", "terse"]) == 0
    assert capsys.readouterr().out == f"kuhn_poker: all {len(RULES)} rules hold\n"


def test_check_game_when_a_rule_is_broken_then_one_line_names_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(FAULTS)
    assert cli.main(["check-game", "faulty_games:PaysTooMuch"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("rewards_in_range: reward ") and out.count("\n") == 1
    assert "group seed" in out and "1: Ada" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["split", "--seats", "x"], "unknown flag '--seats'"),
        (["splitt"], "did you mean 'split'"),
        (["split", "--game.stok", "3"], "did you mean 'stock'"),
        (["json:loads"], "expected a subclass of coplay.games.Game"),
        (["no_such_module_here:Game"], "there is no module"),
        ([], ""),
    ],
)
def test_check_game_when_asked_wrongly_then_one_sentence(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = list(sys.path)
    assert cli.main(["check-game", *arguments]) in (1, 2)
    assert said in capsys.readouterr().err
    assert sys.path == before, "the folder is looked in for as long as the command runs"


@pytest.mark.parametrize("name", SHIPPED)
def test_scripted_agents_when_they_play_a_shipped_game_then_no_finding(name: str) -> None:
    game = make_game(name, wording="terse")
    findings = check_game(game, repliers=scripted_repliers(game), other_processes=False)
    assert [finding.line() for finding in findings] == []


def test_new_game_when_written_then_passes_the_kit_as_it_is(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["new-game", "stay_or_go"]) == 0
    assert capsys.readouterr().out == "wrote stay_or_go.py; next: coplay check-game stay_or_go:StayOrGo\n"
    for flags in ([], ["--game.wording", "terse", "--game.players", "Ada", "Bo", "Cy"]):
        command = [sys.executable, "-m", "coplay.scripts.cli", "check-game", "stay_or_go:StayOrGo", *flags]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert (done.stdout, done.stderr) == (f"stay_or_go: all {len(RULES)} rules hold\n", "")


def test_new_game_when_the_file_or_name_is_taken_then_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "mine.py").write_text("mine", "utf-8")
    assert cli.main(["new-game", "mine"]) == 2
    assert "mine.py exists already" in capsys.readouterr().err
    assert (folder / "mine.py").read_text("utf-8") == "mine"
    for name in ("split", "My Game", "../x", "class", "a.b"):
        assert cli.main(["new-game", name]) == 2
        assert "expected" in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["mine.py"]


def test_load_game_when_a_module_is_named_then_its_class_is_found() -> None:
    module = importlib.import_module("coplay.games.split")
    assert type(load_game("coplay.games.split:Split", {"stock": 4})) is module.Split
