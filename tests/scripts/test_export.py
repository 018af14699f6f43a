"""`coplay export`: a run's rollouts in other forms, or one line that says why not."""

import json
from pathlib import Path

import networkx as nx
import pytest
from run_fakes import tiny_run

from coplay.rollout_tree import read_rollouts
from coplay.scripts.cli import main
from coplay.training.loop import train


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished tiny run of two iterations, each stored."""
    made = tiny_run(tmp_path_factory.mktemp("runs"), {"update.num_updates": 2, "storage.every": 1})
    train(made, lambda update, metrics: None)
    return made.folder


@pytest.mark.parametrize(
    ("form", "name", "what"),
    [
        ("messages", "messages.jsonl", "conversations"),
        ("node-link", "node_link.jsonl", "graphs"),
        ("verifiers", "traces.jsonl", "episodes"),
        ("graphml", "graphml", "graphs"),
        ("inspect", "inspect.json", "samples"),
    ],
)
def test_export_when_asked_for_a_form_then_written_and_said_where(
    run: Path, capsys: pytest.CaptureFixture[str], form: str, name: str, what: str
) -> None:
    assert main(["export", str(run), "--to", form]) == 0
    trees = list(read_rollouts(run))
    number = sum(len(tree.players) for tree in trees) if form in ("messages", "inspect") else len(trees)
    place = run / "exports" / name
    assert capsys.readouterr().out == f"{number} {what}: {place}\n"
    if form == "graphml":
        assert all(nx.is_arborescence(nx.read_graphml(path)) for path in place.iterdir())
    elif form == "inspect":
        log = json.loads(place.read_text("utf-8"))
        assert (len(log["samples"]), log["eval"]["task"]) == (number, run.name)
    else:
        entries = [json.loads(line) for line in place.read_text("utf-8").splitlines()]
        assert len(entries) == number
        if form == "verifiers":
            assert all(trace["agent"]["trainable"] for entry in entries for trace in entry["traces"])


def test_export_when_narrowed_then_only_that(run: Path, tmp_path: Path, capsys) -> None:
    group = next(read_rollouts(run, 1)).group
    words = ["--iteration", "1", "--group", group, "--status", "terminated", "--out", str(tmp_path)]
    assert main(["export", str(run), "--to", "node-link", *words]) == 0
    found = (tmp_path / "node_link.jsonl").read_text("utf-8").splitlines()
    assert len(found) == len(list(read_rollouts(run, 1, groups=[group], status="terminated"))) > 0


@pytest.mark.parametrize(
    ("words", "told", "code"),
    [
        (["nowhere", "--to", "messages"], "'nowhere' is no run folder", 2),
        (["RUN", "--to", "csv"], "invalid choice: 'csv'", 2),
        (["RUN"], "the following arguments are required: --to", 2),
        (["RUN", "--to", "messages", "--iteration", "9"], "iteration 9 is not under", 1),
        (["RUN", "--to", "messages", "--group", "g"], "group 'g' is in none", 2),
    ],
)
def test_export_when_asked_for_what_is_not_there_then_one_line(
    run: Path, capsys: pytest.CaptureFixture[str], words: list[str], told: str, code: int
) -> None:
    assert main(["export", *(str(run) if word == "RUN" else word for word in words)]) == code
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and told in err
