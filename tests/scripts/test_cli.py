"""The console command: bad input gets one line and exit code 2, good input does its work."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from run_fakes import tiny_run, tiny_settings

from coplay.rollout_tree import read_rollouts
from coplay.scripts.cli import COMMANDS, main
from coplay.scripts.dry_run import _duration
from coplay.scripts.progress import SHOWN, Progress
from coplay.scripts.settings import read_settings
from coplay.training.loop import train
from coplay.training.metrics import read_metrics

SHRUNKEN = [
    *("--agents.model.hidden", "16", "--agents.model.intermediate", "16", "--agents.model.num-layers", "1"),
    *("--collect.group-size", "2", "--game.num-rounds", "2", "--update.num-updates", "2"),
    *("--evaluate.num-games", "2", "--evaluate.every", "2", "--storage.every", "1"),
]


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """The folder of a finished tiny run."""
    run = tiny_run(tmp_path / "runs", {"update.num_updates": 1, "evaluate": {"anchors": ["grim"]}})
    train(run, lambda update, metrics: None)
    return run.folder


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line on stderr."""
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.endswith("\n")
    assert err.startswith("coplay: ")
    return err.removeprefix("coplay: ").rstrip()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            "trian",
            f"unknown command 'trian'; expected one of {', '.join(COMMANDS)}; did you mean 'train'?",
        ),
        ("train --collect.num-grups 3", "unknown flag '--collect.num_grups'; did you mean 'num_groups'?"),
        (
            "train --collect.lr 1",
            "unknown flag '--collect.lr'; did you mean 'estimator.critic.lr' or 'estimator.lr' or 'update.lr'?",
        ),
        ("train --beta 1", "unknown flag '--beta'; did you mean 'shaping.beta'?"),
        (
            "train --collect.num-groups many",
            "'collect.num_groups' is 'many'; input should be a valid integer",
        ),
        ("train --game.kind splitt", "game 'splitt' is unknown; expected one of"),
        ("train --game.num-rouds 3", "unknown flag '--game.num_rouds'; did you mean 'num_rounds'?"),
        ("train --agents.seats.Bo tit_for_tot", "did you mean 'tit_for_tat'?"),
        (
            "train --agents.seats.Boo grim",
            "'agents.seats' names player 'Boo', but the game's players are 'Ada', 'Bo'",
        ),
        (
            "train --agents.policies.shared.wights.kind lora",
            "'agents.policies.shared.wights'; did you mean 'weights'?",
        ),
        ("train --evaluate.anchors grmi", "did you mean 'grim'?"),
        ("train dilemma_alined", "did you mean 'dilemma_aligned'?"),
        ("train no/such.toml", "no configuration 'no/such.toml'; expected a TOML file or one of"),
        ("train dilemma_aligned 3", "unexpected argument '3'; expected --section.field value"),
        ("train --resume nowhere", "'nowhere' is no run folder"),
        ("train --resume", "--resume needs a value"),
        ("train --resume x --seed 3", "expected no other argument"),
        ("train --agents.model.kind folder --agents.model.path nope", "'nope' holds no config.json"),
        ("play iterated_matrx", "did you mean 'iterated_matrix'?"),
        ("play iterated_matrix --seats Ada=grimm", "did you mean 'grim'?"),
        ("play iterated_matrix --seats Adda=grim", "did you mean 'Ada'?"),
        ("play iterated_matrix --seats grim", "expected PLAYER=AGENT"),
        ("play iterated_matrix --sets Ada=grim", "unknown flag '--sets'"),
        ("play iterated_matrix --game.num-round 3", "did you mean 'num_rounds'?"),
        ("play iterated_matrix --seed x", "--seed is 'x'; expected a whole number"),
        ("games splt", "did you mean 'split'?"),
        ("evaluate nowhere", "'nowhere' is no run folder"),
        ("evaluate", "the following arguments are required"),
        ("evaluate x --games many", "invalid int value: 'many'"),
        ("evaluate x --games 0", "argument --games: is 0; expected 1 or more"),
        ("evaluate grim random --matrix", "['grim', 'random'] names no run; expected at least one"),
        ("evaluate x --seed -1", "argument --seed: is -1; expected 0 or more"),
        ("train three_players --evaluate.anchors grmi", "did you mean 'grim'?"),
        ("train --update.lr nan", "'update.lr.level' is nan; input should be a finite number"),
        ("train --update.lr -1", "a learning rate is {'level': -1.0}; expected no number below 0"),
        ("train --estimator.reward-scale inf", "'estimator.reward_scale' is inf; input should be a finite"),
        ("train --shaping.beta inf", "'shaping.beta.level' is inf; input should be a finite number"),
    ],
)
def test_bad_words_when_given_then_one_line_with_the_nearest_name(
    capsys: pytest.CaptureFixture[str], words: str, told: str
) -> None:
    assert told in refused(capsys, *words.split())
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("name = ", "is no TOML"),
        ('[game]\nkind = "split"\n[collect]\nlr = 1', "unknown key 'collect.lr'; did you mean"),
        ('[game]\nkind = "split"\n[colect]\nnum_groups = 1', "unknown key 'colect'; did you mean 'collect'?"),
        ('[game]\nkind = "split"\nstok = 3', "unknown key 'game.stok'; did you mean 'stock'?"),
        ("[game]\nnum_rounds = 3", "section 'game'"),
        ("seed = 1", "'game' is missing"),
    ],
)
def test_bad_file_when_given_then_one_line(capsys: pytest.CaptureFixture[str], text: str, told: str) -> None:
    Path("bad.toml").write_text(text)
    assert told in refused(capsys, "train", "bad.toml")


def test_configuration_when_an_empty_word_or_no_text_then_refused_by_its_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An empty shell variable is not "no argument": that would train the default for minutes."""
    assert "no configuration ''; expected a TOML file" in refused(capsys, "train", "")
    Path("latin.toml").write_bytes('name = "Zoë"\n'.encode("latin-1"))
    assert "'latin.toml' is no TOML: 'utf-8' codec can't decode" in refused(capsys, "train", "latin.toml")


def test_flags_when_a_list_has_one_word_or_a_name_is_a_date_then_taken_as_meant() -> None:
    Path("own.toml").write_bytes(b'\xef\xbb\xbf[game]\nkind = "iterated_matrix"\n')
    config = read_settings("own.toml", ["--evaluate.anchors", "grim", "--name", "2026-11-30"])
    assert (config.evaluate.anchors, config.name) == (("grim",), "2026-11-30")


def test_flag_when_it_says_null_then_the_field_is_none() -> None:
    config = read_settings(None, ["--storage.keep", "null", "--update.gradient-clip", "null"])
    assert config.storage.keep is None
    assert config.update.gradient_clip is None


def test_error_when_it_quotes_terminal_codes_or_several_lines_then_one_harmless_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law 10: a game that fails may quote what a model said."""

    def fails(words: object) -> int:
        raise RuntimeError("said \x1b[2J\nand \ud800")

    monkeypatch.setattr("coplay.scripts.games.main", fails)
    assert main(["games"]) == 1
    err = capsys.readouterr().err
    assert err == "coplay: said \\x1b[2J and \\ud800 (COPLAY_TRACEBACK=1 shows where)\n"


def test_names_when_they_look_like_markup_then_shown_as_they_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--game.players", "[bold]", "[/x]", "--name", "odd", *SHRUNKEN, "--evaluate.every", "0"]
    assert main(["train", "dilemma_independent", *words]) == 0
    assert "return_per_tick/[bold] " in capsys.readouterr().err
    Path("runs/odd[").mkdir()
    Path("runs/odd").rename("runs/odd[/x]")
    assert main(["evaluate", "runs/odd[/x]", "--games", "2", "--against", "grim"]) == 0
    assert "runs/odd[/x]: mean" in capsys.readouterr().out


def test_existing_folder_when_named_again_then_refused_unless_resumed_or_overwritten(
    capsys: pytest.CaptureFixture[str], finished: Path
) -> None:
    settings = tiny_settings(finished.parent, {"update.num_updates": 1})
    before = (finished / "metrics.jsonl").read_bytes()
    from coplay.scripts.settings import check_settings
    from coplay.training.run import new_run

    words = ["train", "--name", "tiny", *SHRUNKEN]
    told = refused(capsys, *words)
    assert "run folder 'runs/tiny' exists; expected a new name (--name), --resume runs/tiny" in told
    assert (finished / "metrics.jsonl").read_bytes() == before
    assert main([*words, "--overwrite"]) == 0
    assert len(list(read_metrics(Path("runs/tiny/metrics.jsonl")))) == 2
    Path("runs/other").mkdir()
    Path("runs/other/diary.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"no run folder; it was not deleted"):
        new_run(check_settings(settings | {"name": "other"}), overwrite=True)
    assert Path("runs/other/diary.txt").exists()


def test_folder_when_another_process_trains_in_it_then_refused_and_left_alone(
    capsys: pytest.CaptureFixture[str], finished: Path
) -> None:
    """Two at once would double every line of metrics and prune each other's checkpoints."""
    code = (
        "import sys; from pathlib import Path; from coplay.training.lock import sole_writer\n"
        "with sole_writer(Path('runs/tiny')): print('held', flush=True); sys.stdin.read()"
    )
    before = (finished / "metrics.jsonl").read_bytes()
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        for words in (["--resume", "runs/tiny"], ["--name", "tiny", "--overwrite", *SHRUNKEN]):
            assert "another process trains in run folder 'runs/tiny'" in refused(capsys, "train", *words)
        assert (finished / "metrics.jsonl").read_bytes() == before
        other.kill()
    assert main(["train", "--resume", "runs/tiny"]) == 0


NOTHING_HEAVY = """
import sys
from coplay.scripts.cli import main
assert main(sys.argv[1:]) == 2
print(*(name for name in ("transformers", "torch", "peft") if name in sys.modules))
"""


@pytest.mark.parametrize("words", ["train --collect.num-grups 3", "train --game.kind splitt", "play splitt"])
def test_bad_input_when_given_then_told_before_any_model_library_is_loaded(words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", NOTHING_HEAVY, *words.split()], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""
    assert done.stderr.count("\n") == 1


def test_train_when_it_is_run_then_a_folder_that_can_be_resumed_and_evaluated(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["train", "dilemma_independent", "--name", "one", *SHRUNKEN]) == 0
    out, err = capsys.readouterr()
    assert "run folder: runs/one" in err
    assert "000001/00001" in Path("runs/one/report.html").read_text("utf-8")
    assert [line["update"] for line in read_metrics(Path("runs/one/metrics.jsonl"))] == [0, 1]
    assert len(list(read_rollouts("runs/one"))) == 4
    assert json.loads(Path("runs/one/config.json").read_text())["update"]["num_updates"] == 2
    assert json.loads(Path("runs/one/environment.json").read_text())["packages"]["torch"]
    weights = Path("runs/one/checkpoints/000002/policies/shared/model.safetensors")
    before = weights.read_bytes()
    assert main(["train", "--resume", "runs/one"]) == 0
    assert weights.read_bytes() == before
    capsys.readouterr()
    assert (
        main(["evaluate", "one", "--against", "grim,tit_for_tat", "--games", "2", "--json", "found.json"])
        == 0
    )
    out, _ = capsys.readouterr()
    assert all(name in out for name in ("self-play", "grim", "tit_for_tat", "own return", "cooperation"))
    rows = json.loads(Path("found.json").read_text())["one"]
    assert [row["opponent"] for row in rows] == ["self-play", "grim", "tit_for_tat"]


def test_evaluate_when_the_opponent_is_unknown_then_one_line(
    capsys: pytest.CaptureFixture[str], finished: Path
) -> None:
    assert "did you mean 'grim'?" in refused(
        capsys, "evaluate", str(finished), "--against", "grimm", "--games", "1"
    )


def test_matrix_when_asked_for_then_printed_and_kept_with_the_run(
    capsys: pytest.CaptureFixture[str], finished: Path
) -> None:
    words = ["evaluate", str(finished), "grim", f"{finished}@1:Ada", "--matrix", "--games", "2"]
    assert main([*words, "--json", "found.json"]) == 0
    out = capsys.readouterr().out
    assert "row minimum" in out
    kept = json.loads((finished / "payoffs.json").read_text(encoding="utf-8"))
    assert kept == [json.loads(Path("found.json").read_text(encoding="utf-8"))]
    assert kept[0]["rows"] == kept[0]["columns"] == [finished.name, "grim", f"{finished.name}@1:Ada"]
    assert kept[0]["cells"][0][0] == {**kept[0]["cells"][2][2]}, "the same policy in the same games"
    assert main([*words, "--against", "always_defect"]) == 0
    assert len(json.loads((finished / "payoffs.json").read_text(encoding="utf-8"))) == 2
    capsys.readouterr()
    assert "'human'" in refused(capsys, "evaluate", str(finished), "human", "--matrix")


def test_matrix_when_runs_play_different_games_then_refused(
    capsys: pytest.CaptureFixture[str], finished: Path, tmp_path: Path
) -> None:
    other = tiny_run(tmp_path / "other", {"game.wording": "full", "update.num_updates": 1})
    told = refused(capsys, "evaluate", str(finished), str(other.folder), "--matrix", "--games", "1")
    assert "was trained with game.wording 'full'; expected 'terse'" in told


def test_evaluate_when_no_opponents_are_named_then_the_runs_anchors(
    capsys: pytest.CaptureFixture[str], finished: Path
) -> None:
    assert main(["evaluate", f"{finished}@1", "--games", "1"]) == 0
    assert "grim" in capsys.readouterr().out
    assert "no complete checkpoint" in refused(capsys, "evaluate", f"{finished}@7", "--games", "1")


def test_dry_run_when_asked_then_dialogues_lengths_memory_and_time_and_no_folder(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["train", "--dry-run", *SHRUNKEN]) == 0
    out, _ = capsys.readouterr()
    assert all(
        part in out for part in ("--- Ada", "--- Bo", "row lengths", "peak memory", "nothing was written")
    )
    assert not Path("runs").exists()
    assert "0.00 h" not in out
    assert "go[ A]" in out or "go[ B]" in out, "the space before a token is its own"


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.4, "0 s"), (59.4, "59 s"), (60.0, "1.0 min"), (5400.0, "1.5 h"), (3599.0, "60.0 min")],
)
def test_duration_when_told_then_in_the_largest_unit_there_is(seconds: float, told: str) -> None:
    assert _duration(seconds) == told


def test_live_table_when_two_players_then_within_80_columns_and_named_as_the_metrics() -> None:
    progress = Progress("a run", num_updates=10, players=("Ada", "Bo"))
    names = [f"{measure}/{player}" for measure in SHOWN for player in ("Ada", "Bo")]
    progress.report(0, {f"rollout/{name}": 100.0 for name in names})
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(progress._table(1))
    lines = console.export_text().splitlines()
    assert all(measure in " ".join(lines) for measure in SHOWN)
    assert not any("…" in line for line in lines)
    assert all(f"{name} 100.000" in progress._line() for name in names)


def test_train_help_when_asked_then_every_field_with_its_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["train", "--help"])
    assert caught.value.code == 0
    out, _ = capsys.readouterr()
    assert all(
        flag in out for flag in ("--resume", "--dry-run", "--seed", "--update.num-updates", "--shaping.beta")
    )
    assert "All luck of the run is a function of it" in out


def test_play_when_all_seats_are_scripted_then_a_transcript(capsys: pytest.CaptureFixture[str]) -> None:
    words = "play iterated_matrix --seats Ada=always_cooperate Bo=always_defect --game.num-rounds 2"
    assert main(words.split()) == 0
    out, _ = capsys.readouterr()
    assert "returns  Ada 0  Bo 10" in out
    assert (
        main(["play", "split", "--seats", "Ada=greedy,Bo=fair", "--seed", "3", "--game.num-rounds", "1"]) == 0
    )
    assert main(["play", "trust_and_split", "--seats", "Ada=random", "Bo=welfare_maximising"]) == 0


def test_play_when_a_trained_agent_sits_in_then_it_replies(
    capsys: pytest.CaptureFixture[str], finished: Path
) -> None:
    words = [
        "play",
        "iterated_matrix",
        "--game.wording",
        "terse",
        "--seats",
        f"Ada={finished}:Ada",
        "Bo=grim",
    ]
    assert main([*words, "--game.num-rounds", "1"]) == 0
    assert "shared@1" in capsys.readouterr().out


def test_games_when_listed_and_described_then_parameters_are_flags(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["games"]) == 0
    listed = capsys.readouterr().out
    for name in ("iterated_matrix", "split", "trust_and_split"):
        assert name in listed
        assert main(["games", name]) == 0
        out = capsys.readouterr().out
        assert "num_rounds = 10" in out
        assert "Number of rounds" in out
        assert ("tit_for_tat" in out) is (name == "iterated_matrix")
        assert "random" in out


def test_overview_when_asked_then_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(f"coplay {name}" in out for name in COMMANDS)
    assert main([]) == 2


def test_command_when_installed_then_on_the_path(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "coplay.scripts.cli", "games"],
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "80"},
        check=True,
    )
    assert "iterated_matrix" in done.stdout


def test_play_when_a_trained_agent_sits_then_under_the_wording_it_learnt(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(("train", "dilemma_independent", "--name", "one", *SHRUNKEN)) == 0
    assert main(("play", "iterated_matrix", "--seats", "Ada=one", "Bo=grim", "--game.num-rounds", "2")) == 0
    shown = capsys.readouterr().out
    assert "x 2" in shown
    assert "malformed" not in shown


@pytest.mark.needs("axelrod")
def test_play_when_a_seat_is_held_by_a_library_agent_then_a_transcript(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seats = ["Ada=axelrod:Suspicious Tit For Tat", "Bo=tit_for_tat"]
    assert main(["play", "iterated_matrix", "--seats", *seats, "--game.num-rounds", "4"]) == 0
    assert "axelrod:Suspicious Tit For Tat" in capsys.readouterr().out


def test_scripted_agent_when_it_has_no_rule_for_the_game_then_refused_before_play(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "no rule for game 'iterated_matrix'" in refused(
        capsys, "play", "iterated_matrix", "--seats", "Ada=greedy", "Bo=grim"
    )
