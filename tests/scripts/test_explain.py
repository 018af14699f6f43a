"""`coplay explain`: what is printed adds up, and mistakes are one line."""

import json
from pathlib import Path

import pytest
from question_fakes import ALIGNED, CRITIC, EXPECTED, SCRIPTED, finished
from rich.console import Console

from coplay.scripts.cli import main
from coplay.scripts.explain import baseline_text, past_table
from coplay.training.explanation import Baseline, PastAdvantage, Sibling


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
    said = [cell[1].strip("'") for name, cell in cells(out, "tokens").items() if name != "position"]
    assert f"> {''.join(said).strip()}" in out


def test_explain_when_the_past_is_expected_then_each_replys_text_and_parts_that_add_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = finished(tmp_path, {"collect.branching": {"num_alternatives": 2}, "shaping": EXPECTED})
    out = told(capsys, "explain", str(folder), "2/1", "2.Bo")
    for tick in (0, 1):
        rows = cells(out, f"own advantage expected at tick {tick}")
        amount = float(rows.pop("expected advantage")[-1])
        assert [name[:7] for name in rows][:2] == [f"s{tick}.Bo.1", f"s{tick}.Bo.2"]
        assert all(name[-1] in "AB" for name in rows if name.startswith("s"))
        adds = [float(row[-1]) for name, row in rows.items() if name != "reply"]
        assert sum(adds) == pytest.approx(amount, abs=1e-4)
        past = cells(out, "weight of the others: the own past")[str(tick)]
        assert float(past[1]) == pytest.approx(amount, abs=1e-4)


def test_explain_as_json_when_read_then_the_same_numbers_and_whole_texts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = finished(tmp_path, {"collect.branching": {"num_alternatives": 2}, "shaping": EXPECTED})
    found = json.loads(told(capsys, "explain", str(folder), "2/1", "2.Bo", "--json"))
    assert sum(part["amount"] for part in found["parts"]) == pytest.approx(found["credit"])
    assert found["stored"] == pytest.approx(found["credit"], rel=1e-5)
    assert found["alignment"]["expected"][1]["replies"][0]["reply"] in ("A", "B")
    assert "".join(token["text"] for token in found["tokens"]).strip() == found["reply"]
    assert found["baseline"]["siblings"][0]["episode"] == "000002/00000"


def test_replies_when_hostile_then_nothing_in_them_acts_on_the_terminal() -> None:
    """Law 10, in tables and in lines."""
    said = "\x1b[31mred\u202e \x9b2J" + "x" * 500
    mate = Sibling(episode="e", branch="s0.Ada.1", returns=1.0, step=3, reply=said)
    baseline = Baseline(kind="replies", amount=1.0, siblings=(mate,))
    value = Baseline(kind="critic", amount=0.5)
    past = PastAdvantage(tick=0, kind="expected", replies=(mate,), baseline=value)
    console = Console(width=110, markup=False, emoji=False, highlight=False)
    with console.capture() as shown:
        console.print(past_table(past))
    for text in (shown.get(), baseline_text(baseline)):
        assert not {"\x1b", "\u202e", "\x9b"} & set(text)
        assert "x" * 200 not in text


def test_explain_when_a_player_is_scripted_then_what_others_were_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = finished(tmp_path, SCRIPTED)
    out = told(capsys, "explain", str(folder), "000000/00000", "0.Bo")
    assert "advantage that the others were told" in out
    assert "others of the group at the tick\n  000000/00001 " in out
    assert "stored" not in out


def test_explain_when_it_cannot_then_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(finished(tmp_path, {}))
    for words, expected in (
        (["nowhere", "0/0", "0.Ada"], "'nowhere' is no run folder"),
        ([folder, "0/0"], "2 words; expected three"),
        ([folder, "0/0", "0.Ada", "--jsn"], "'--jsn' is no flag; expected three"),
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
