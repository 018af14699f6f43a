"""The README tells the truth: its Python runs and prints what it says, its commands and paths exist."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from coplay.agents.scripted import SCRIPTED
from coplay.games import Chance
from coplay.scripts.settings import read_settings
from coplay.training.config import RunConfig

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text("utf-8")
TEXTS = [
    "README.md",
    *(f"{package}/README.md" for package in ("agents", "games", "rollout_tree", "scripts", "training")),
]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = BLOCK.findall(README)


@pytest.mark.parametrize("text", TEXTS)
def test_python_when_run_from_top_to_bottom_then_prints_what_the_text_says(text: str, tmp_path: Path) -> None:
    """A text's blocks are one session; a `text` block holds what the Python before it prints."""
    blocks = BLOCK.findall((ROOT / text).read_text("utf-8"))
    program = "\n".join(block for language, block in blocks if language == "python")
    expected = "".join(block for language, block in blocks if language == "text")
    if not program:
        return
    (tmp_path / "session.py").write_text(program, "utf-8")
    done = subprocess.run(
        [sys.executable, "session.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == expected


def test_python_when_counted_then_the_first_block_is_ten_lines() -> None:
    first = next(text for language, text in BLOCKS if language == "python")
    assert len([line for line in first.splitlines() if line.strip()]) <= 10


def test_configuration_when_read_then_a_valid_run() -> None:
    tables = [tomllib.loads(text) for language, text in BLOCKS if language == "toml"]
    runs = [table for table in tables if "game" in table]
    assert runs
    for table in runs:
        RunConfig.model_validate(table)
    (mixed,) = [table for table in tables if "mixture" in table]
    assert len(RunConfig.model_validate(runs[0] | mixed).make_mixture().variants) == 10


def test_iterations_when_named_in_commands_then_the_run_keeps_them() -> None:
    """`runs/my_run@N` needs a checkpoint and `explain` a stored iteration of the run as the text trains it."""
    updates = int(re.findall(r"my_run\.toml --update\.num-updates (\d+)", README)[0])
    (table,) = [tomllib.loads(text) for language, text in BLOCKS if language == "toml" and "my_run" in text]
    storage = RunConfig.model_validate(table).storage
    assert storage.keep is not None and storage.every and storage.credits
    kept = [n for n in range(1, updates + 1) if n == updates or not n % storage.checkpoint_every]
    named = [int(number) for number in re.findall(r"runs/my_run@(\d+)", README)]
    assert named and set(named) <= set(kept[-storage.keep :])
    stored = [int(number) for number in re.findall(r"explain runs/my_run (\d+)/", README)]
    assert stored and all(number < updates and not number % storage.every for number in stored)


COMMANDS = sorted(
    {
        line.split()[1]
        for kind, text in BLOCKS
        if kind == "bash"
        for line in text.splitlines()
        if line[:7] == "coplay "
    }
)


@pytest.mark.parametrize("command", COMMANDS)
def test_command_when_asked_for_help_then_it_exists(command: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "coplay.scripts.cli", command, "--help"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_tree_when_compared_with_the_checkout_then_every_path_exists() -> None:
    tree = next(text for language, text in BLOCKS if language == "" and "games/" in text)
    for line in tree.splitlines():
        path = line.split()[0]
        assert (ROOT / path).exists(), f"README names {path}, which does not exist"


def test_scripted_agents_when_listed_then_each_stands_in_the_table_of_its_package() -> None:
    told = (ROOT / "agents" / "README.md").read_text("utf-8")
    assert SCRIPTED and not [name for name in SCRIPTED if f"`{name}`" not in told]


def test_tasks_of_ones_own_when_as_the_text_says_then_a_game(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = (ROOT / "games" / "README.md").read_text("utf-8")
    (line,) = re.findall(r"`larger\.jsonl` being `(.*?)`", told)
    commands = re.findall(r"^coplay train tasks (.* larger\.jsonl .*)$", told, re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    Path("larger.jsonl").write_text(line + "\n", "utf-8")
    assert len(commands) == 3
    for command in commands:
        game = read_settings("tasks", command.removesuffix(" --dry-run").split()).make_game()
        state = game.initial_state(Chance(group_seed=1))
        assert game.observe(state, "Ada").grammar.labels() == ("3", "8")
