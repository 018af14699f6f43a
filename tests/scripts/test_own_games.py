"""Games of one's own module in every command: `module:Class` where a game is named, `--import` where a run is."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coplay.games import registry
from coplay.scripts import cli
from coplay.scripts.new_game import new_game
from coplay.training.stored_config import read_config

SMALL = [
    *("--agents.model.hidden", "16", "--agents.model.intermediate", "16", "--agents.model.num-layers", "1"),
    *("--collect.num-groups", "1", "--collect.group-size", "2", "--game.num-rounds", "2"),
    *("--update.num-updates", "1", "--evaluate.every", "0"),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a game in it that nobody has announced; forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "at_home.py").write_text(new_game("at_home"), "utf-8")
    yield tmp_path
    forget()


def forget() -> None:
    registry._GAMES.pop("at_home", None)
    sys.modules.pop("at_home", None)


def test_game_when_named_by_module_and_class_then_described_and_played(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = list(sys.path)
    assert cli.main(["games", "at_home:AtHome"]) == 0
    assert capsys.readouterr().out.startswith("at_home: Stay or fold")
    forget()
    assert cli.main(["play", "at_home:AtHome", "--seats", "Ada=random", "Bo=random"]) == 0
    assert "returns  Ada" in capsys.readouterr().out
    forget()
    assert (
        cli.main(["evaluate", "random", "--exact", "--game.kind", "at_home:AtHome", "--game.num-rounds", "1"])
        == 0
    )
    assert "random" in capsys.readouterr().out
    assert sys.path == before


def test_game_when_it_says_nothing_of_itself_then_listed_all_the_same(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = new_game("at_home").replace("at_home", "mute").replace("AtHome", "Mute")
    start = own.index("class Mute(")
    quoted = own[start:].split('"""', 2)
    (folder / "mute.py").write_text(own[:start] + quoted[0] + quoted[2], "utf-8")
    assert cli.main(["games", "mute:Mute"]) == 0
    assert capsys.readouterr().out.startswith("mute: ")
    registry._GAMES.pop("mute")
    sys.modules.pop("mute")


def test_run_when_its_game_is_of_a_module_then_trained_and_evaluated_by_name(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["train", "--game.kind", "at_home:AtHome", *SMALL]) == 0
    assert "run folder: runs/at_home" in capsys.readouterr().err
    forget()
    evaluate = ["evaluate", "runs/at_home", "--against", "random", "--games", "1"]
    assert cli.main(evaluate) == 2
    assert "--import module:Class" in capsys.readouterr().err
    assert cli.main([*evaluate, "--import", "at_home:AtHome"]) == 0
    assert "self-play" in capsys.readouterr().out
    forget()
    assert cli.main(["train", "--resume", "runs/at_home", "--import=at_home:AtHome"]) == 0
    config = read_config(Path("runs/at_home"))
    assert config.game.model_dump()["kind"] == "at_home"


def test_configuration_when_its_file_names_module_and_class_then_the_same(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "mine.toml").write_text('[game]\nkind = "at_home:AtHome"\nnum_rounds = 3\n', "utf-8")
    assert cli.main(["train", "mine.toml", "--dry-run", *SMALL]) == 0
    assert "game 'at_home'" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["play", "nowhere:Game"], "there is no module 'nowhere'; expected module:Class"),
        (["games", "at_home:Nobody"], "module 'at_home' has no 'Nobody'; expected the class of a game"),
        (["train", "--game.kind", "json:JSONDecoder"], "expected a subclass of coplay.games.Game"),
        (["evaluate", "runs/x", "--import"], "--import ''; expected module:Class"),
        (["view", "runs/x", "--import", "at_home"], "--import 'at_home'; expected module:Class"),
    ],
)
def test_game_when_there_is_none_of_that_name_then_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    assert cli.main(words) == 2
    said = capsys.readouterr().err
    assert told in said and said.count("\n") == 1
