"""`coplay explain`: what is printed adds up, and mistakes are one line."""

from pathlib import Path

import pytest
from question_fakes import ALIGNED, CRITIC, SCRIPTED, finished

from coplay.scripts.cli import main


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command prints."""
    assert main(words) == 0
    return capsys.readouterr().out


def cells(out: str, title: str) -> dict[str, list[str]]:
    """First cell -> the others, of each row of the printed table with this title."""
    block = out[out.index(f"\n{title} ") :].split("┘", maxsplit=1)[0]
    rows = [line.strip("│ ").split("│") for line in block.splitlines() if line.startswith("│")]
    return {first.strip(): [cell.strip() for cell in rest] for first, *rest in rows}


@pytest.mark.parametrize(
    "changes",
    [
        {"shaping": ALIGNED},
        {"estimator": CRITIC, "shaping": ALIGNED | {"whiten_before": "batch", "centre_after": "tick"}},
        {"estimator.baseline": "running_mean", "objective.visitation": True},
        {"estimator": {"kind": "branches"}, "collect.branching": {"num_alternatives": 2}, "shaping": ALIGNED},
        {"estimator.baseline": "none", "shaping.kind": "shared_reward", "game.players": ["Ada", "Bo", "Cy"]},
    ],
)
def test_explain_when_its_printed_parts_are_added_then_the_printed_credit(
    changes: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = finished(tmp_path, changes)
    out = told(capsys, "explain", str(folder), "2/1", "1.Bo")
    rows = cells(out, "credit")
    parts = [float(adds) for name, (adds,) in rows.items() if name not in ("part", "sum", "stored")]
    assert sum(parts) == pytest.approx(float(rows["sum"][0]), abs=1e-4)
    assert float(rows["sum"][0]) == pytest.approx(float(rows["stored"][0]), abs=1e-4)
    rewards = cells(out, "return: rewards from the tick on")
    total = sum(float(cell[-1]) for name, cell in rewards.items() if name not in ("tick", "return"))
    assert total == pytest.approx(float(rewards["return"][-1]), abs=1e-4)
    assert "episode 000002/00001  step 1  tick 1  Bo (shared@2)  attempt 0" in out
    assert "importance weight" in out


def test_explain_when_a_player_is_scripted_then_what_others_were_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = finished(tmp_path, SCRIPTED)
    out = told(capsys, "explain", str(folder), "000000/00000", "0.Bo")
    assert "advantage that the others were told" in out
    assert "others of the group at the tick: 000000/00001" in out
    assert "stored" not in out


def test_explain_when_it_cannot_then_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(finished(tmp_path, {}))
    for words, expected in (
        (["nowhere", "0/0", "0.Ada"], "'nowhere' is no run folder"),
        ([folder, "0/0"], "2 words; expected three"),
        ([folder, "zero", "0.Ada"], "episode 'zero' is none"),
        ([folder, "0/0", "0.Adda"], "did you mean 'Ada'?"),
        ([folder, "0/9", "0.Ada"], "iteration 0 has no episode '000000/00009'"),
        ([folder, "0/0", "7.Ada"], "has no step 7; expected 0 to 2"),
    ):
        assert main(["explain", *words]) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert expected in err
    assert main(["explain", folder, "7/0", "0.Ada"]) == 1
    assert "iteration 7 is not under" in capsys.readouterr().err
    assert "TURN     STEP.PLAYER[.ATTEMPT]" in told(capsys, "explain", "--help")
