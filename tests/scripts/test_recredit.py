"""`coplay recredit`: one table for each question, one line for each mistake."""

from pathlib import Path

import pytest
from run_fakes import tiny_run

from coplay.scripts.cli import main
from coplay.training.loop import train


@pytest.fixture
def finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a finished aligned run of two updates, of which the first one's weights are gone."""
    monkeypatch.chdir(tmp_path)
    changes = {
        "update.num_updates": 2,
        "storage.keep": 1,
        "shaping": {"kind": "advantage_alignment", "beta": 0.3},
    }
    run = tiny_run(tmp_path / "runs", changes)
    train(run, lambda update, metrics: None)
    return run.folder


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command prints."""
    assert main(words) == 0
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line on stderr."""
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


def test_recredit_when_settings_are_unchanged_then_the_same_bits(
    capsys: pytest.CaptureFixture[str], finished: Path
) -> None:
    out = told(capsys, "recredit", "tiny")
    assert "iteration 1 of " in out
    assert "settings unchanged" in out
    for player in ("Ada", "Bo"):
        line = next(line for line in out.splitlines() if f" {player} " in line)
        assert "0.0%" in line
        assert "same" in line


def test_recredit_when_settings_change_then_each_is_said_and_credit_differs(
    capsys: pytest.CaptureFixture[str], finished: Path
) -> None:
    out = told(capsys, "recredit", "tiny", "--iteration", "0", "--shaping.beta", "5", "--update")
    assert "iteration 0 of " in out
    assert "shaping.beta.level: 0.3 -> 5.0" in out
    assert "differ" in out
    assert "cosine" in out
    assert out == told(
        capsys, "recredit", "tiny", "--shaping.beta", "5", "--update"
    )  # 1 has no weights any more
    out = told(capsys, "recredit", "tiny", "--shaping.kind", "independent")
    assert "shaping: advantage_alignment (" in out
    assert not (finished / "refused").exists()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("nowhere", "'nowhere' is no run folder"),
        ("--update", "'--update' comes first; expected a run"),
        ("tiny --iteration x", "--iteration is 'x'; expected a whole number"),
        ("tiny --shaping.bta 1", "unknown flag '--shaping.bta'; did you mean 'beta'?"),
        ("tiny --collect.group-size 3", "would not change the credit of rollouts that are stored"),
        ("tiny --estimator.kind critic", "holds no readings of one"),
        ("tiny --update --iteration 1", "the weights that played iteration 1 of"),
        ("tiny --update 3", "--update is 3; expected no value"),
        ("tiny --shaping.beta inf", "'shaping.beta.level' is inf"),
    ],
)
def test_recredit_when_it_cannot_then_one_line(
    capsys: pytest.CaptureFixture[str], finished: Path, words: str, expected: str
) -> None:
    assert expected in refused(capsys, "recredit", *words.split())


def test_recredit_when_the_iteration_is_not_stored_then_said(
    capsys: pytest.CaptureFixture[str], finished: Path
) -> None:
    assert main(["recredit", "tiny", "--iteration", "7"]) == 1
    assert "iteration 7 is not under" in capsys.readouterr().err
    assert "coplay recredit RUN" in told(capsys, "recredit", "--help")
