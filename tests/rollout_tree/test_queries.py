"""The queries of the README, each in its own tool, on a run that holds every kind of episode."""

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from rollout_fakes import Counting, Scripted, play

from coplay.games import StepOutcome
from coplay.rollout_tree import (
    RolloutWriter,
    conversations,
    episode_returns,
    read_rollouts,
    write_conversations,
)

README = Path(__file__).resolve().parents[2] / "rollout_tree" / "README.md"
QUERIES = re.findall(r"^```py\n(.*?)^```$", README.read_text("utf-8"), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the run `my_run`, an unfinished file in it."""
    place = tmp_path_factory.mktemp("queries")

    def outcome(step, actions, chance):
        if chance.integer("break", 6) == 0:
            raise RuntimeError("broken")
        return StepOutcome(rewards={"ada": 1.0, "bo": 0.25 * step}, terminated=step == 2)

    for iteration in range(3):
        agents = {"ada": Scripted, "bo": lambda seat: Scripted(seat, say="é <b> \ud83d")}
        game = Counting(length=3, outcome=outcome)
        with RolloutWriter(place / "my_run", iteration, max_turns=10) as writer:
            for tree in play(game, agents, num_groups=8, iteration=iteration, max_failed_share=1.0):
                writer.add(tree)
    write_conversations(place / "my_run")
    (place / "my_run/rollouts/episodes/iteration=000002/.part-1.parquet.tmp").write_bytes(b"PAR1 half")
    assert {tree.status for tree in read_rollouts(place / "my_run")} == {"terminated", "failed"}
    return place


def mean_returns(run: Path) -> list[list[object]]:
    seen: dict[tuple[int, str], list[float]] = defaultdict(list)
    for tree in read_rollouts(run, status="terminated"):
        for player, total in episode_returns(tree).items():
            seen[tree.iteration, player].append(total)
    return [[*key, pytest.approx(sum(values) / len(values))] for key, values in sorted(seen.items())]


def good_chats(run: Path) -> list[list[object]]:
    return [
        [one.episode, one.player, one.messages[-1].content]
        for one in conversations(run)
        if one.total is not None and one.total >= 2
    ]


@pytest.mark.parametrize(
    "tool",
    [
        pytest.param(tool, marks=pytest.mark.needs(tool))
        for tool in ("duckdb", "polars", "pandas", "datasets")
    ],
)
def test_query_when_run_in_another_tool_then_the_numbers_of_our_own(tool: str, folder: Path) -> None:
    (query,) = [text for text in QUERIES if re.search(rf"^(import|from) {tool}\b", text, re.MULTILINE)]
    done = subprocess.run(
        [sys.executable, "-c", f"{query}\nimport json\nprint(json.dumps([list(row) for row in rows]))"],
        cwd=folder,
        env=os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "hf")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout.splitlines()[-1])
    expected = good_chats(folder / "my_run") if tool == "datasets" else mean_returns(folder / "my_run")
    assert rows == expected and rows
