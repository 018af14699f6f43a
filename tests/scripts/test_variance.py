"""`coplay variance`: tables from a few small batches, exact figures, one line for each mistake."""

from pathlib import Path

import pytest

from coplay.scripts.cli import main

SMALL = (
    "--batches", "4", "--game.num-rounds", "1", "--collect.num-groups", "2", "--collect.group-size", "2",
    "--agents.model.hidden", "16", "--agents.model.intermediate", "16", "--agents.model.num-layers", "1",
)  # fmt: skip


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_variance_when_batches_are_small_then_three_tables_and_nothing_is_left(
    capsys: pytest.CaptureFixture[str], elsewhere: Path
) -> None:
    assert main(["variance", *SMALL]) == 0
    out = capsys.readouterr().out
    assert "4 batches of 2 groups of 2 games of split, seed 1" in out
    rows = {line.split("│")[1].strip(): line.split("│")[2:-1] for line in out.splitlines() if "│" in line}
    assert [float(rows[name][3]) > 0 for name in ("ungrouped", "groups", "branches")] == [True] * 3
    assert all("[" in cell for cell in rows["groups over branches"])
    assert {"ungrouped and groups", "branches and groups"} <= rows.keys()
    assert not list(elsewhere.iterdir())


def test_variance_when_the_game_has_no_chance_then_it_says_why_groups_change_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = ("--game.kind", "iterated_matrix", "--game.wording", "terse")
    assert main(["variance", *SMALL, *flags]) == 0
    out = capsys.readouterr().out
    assert "a game without chance is one group: ungrouped and groups are the same by construction" in out
    line = next(line for line in out.splitlines() if "ungrouped over groups" in line)
    assert line.count("1.00 [1.00, 1.00]") == 3


def test_variance_when_exact_then_the_counted_ratios(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["variance", "--exact"]) == 0
    out = capsys.readouterr().out
    for ratio in ("28.7778", "46.4800", "21.6013", "1.6372", "0.6196", "0.3333"):
        assert ratio in out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--batches", "2"], "--batches is 2; expected a whole number from 3 on"),
        (["--batches"], "--batches is True; expected a whole number from 3 on"),
        (["--exact", "no"], "--exact is 'no'; expected no value"),
        (
            ["--exact", "--seed", "2"],
            "--exact counts its own games through; expected neither a configuration nor",
        ),
        (["dilemma_independent", "--exact"], "--exact counts its own games through; expected neither"),
        (["dilemma_aligned"], "'shaping.kind' is 'advantage_alignment'"),
        (["nowhere"], "no configuration 'nowhere'"),
        (
            ["--colect.group-size", "2"],
            "unknown flag '--colect.group_size'; did you mean 'collect.group_size'?",
        ),
    ],
)
def test_variance_when_asked_for_the_impossible_then_one_sentence(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["variance", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert sentence in err
