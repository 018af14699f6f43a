"""The tables of what other trainers can do: every row there, every key, name, metric and test of them real."""

import ast
import importlib
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import pytest
from run_fakes import tiny_run

from coplay.games import available_games
from coplay.scripts.cli import COMMANDS
from coplay.scripts.settings import known_fields
from coplay.training.loop import train
from coplay.training.metrics import read_metrics

TESTS = Path(__file__).parent.parent
ROOT = TESTS.parent
SECTIONS = {"Search-R1": 45, "Atropos": 25}
QUOTED = re.compile(r"`([^`]+)`")


class Entry(NamedTuple):
    """A row of a table."""

    section: str
    number: str
    """Empty for what goes wrong there."""
    here: str
    tests: tuple[str, ...]


def entries() -> Iterator[Entry]:
    text = (ROOT / "training" / "README.md").read_text(encoding="utf-8")
    (told,) = re.findall(r"^## What other trainers can do\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    for section in SECTIONS:
        (part,) = re.findall(rf"^### {section}\n(.*?)(?=^### |\Z)", told, re.MULTILINE | re.DOTALL)
        for line in part.splitlines():
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if not line.startswith("|") or cells[0] in ("#", "there") or set(cells[0]) == {"-"}:
                continue
            number, here = (cells[0], cells[2]) if len(cells) == 4 else ("", cells[1])
            yield Entry(section, number, here, tuple(QUOTED.findall(cells[-1])))


ENTRIES = tuple(entries())
NAMES = [f"{entry.section} {entry.number or 'fault'} {place}" for place, entry in enumerate(ENTRIES)]


@lru_cache
def all_tests() -> dict[str, set[str]]:
    """Functions of each test file, by its name."""
    found: dict[str, set[str]] = {}
    for path in TESTS.rglob("test_*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        found[path.stem] = found.get(path.stem, set()) | names
    return found


@lru_cache
def docstrings() -> str:
    """What statistics say of the metrics they give."""
    files = sorted((ROOT / "rollout_tree").glob("*.py"))
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> frozenset[str]:
    """Metrics of a run with a critic and several steps an update, seats and policies by `PLAYER` and `NAME`."""
    changes = {
        "estimator": {"kind": "critic", "reward_scale": 5.0},
        "objective": {"kind": "ppo", "largest_gap": None},
        "update": {"num_updates": 1, "num_epochs": 2},
    }
    run = tiny_run(tmp_path_factory.mktemp("run"), changes)
    train(run, lambda update, told: None)
    names = [name for line in read_metrics(run.folder / "metrics.jsonl") for name in line]
    return frozenset(re.sub(r"/(Ada|Bo)\b", "/PLAYER", name).replace("/shared", "/NAME") for name in names)


@lru_cache
def keys() -> frozenset[str]:
    return frozenset(known_fields())


def is_real(name: str, metrics: frozenset[str]) -> bool:
    """A setting, a name below `coplay`, a metric, a command or a game."""
    if name.startswith("coplay "):
        return name.split()[1] in COMMANDS
    if "/" in name:
        return name in metrics or f"`{name.partition('/')[2]}`" in docstrings()
    if ":" in name:
        module, _, rest = name.partition(":")
        found: object = importlib.import_module(f"coplay.{module}")
        for part in rest.split("."):
            if not hasattr(found, part) and part not in getattr(found, "__annotations__", {}):
                return False
            found = getattr(found, part, None)
        return True
    return name in keys() or name in available_games() or name == "<think>"


def test_tables_when_read_then_every_row_once_in_order() -> None:
    for section, size in SECTIONS.items():
        numbers = [entry.number for entry in ENTRIES if entry.section == section and entry.number]
        assert numbers == [str(number) for number in range(1, size + 1)]
    faults = [entry.section for entry in ENTRIES if not entry.number]
    assert {section: faults.count(section) for section in SECTIONS} == {"Search-R1": 6, "Atropos": 4}


@pytest.mark.parametrize("entry", ENTRIES, ids=NAMES)
def test_row_when_it_names_keys_and_tests_then_they_are_there(entry: Entry, metrics: frozenset[str]) -> None:
    assert entry.here and (QUOTED.search(entry.here) or not entry.number)
    assert [name for name in QUOTED.findall(entry.here) if not is_real(name, metrics)] == []
    assert entry.tests
    missing = []
    for name in entry.tests:
        file, _, function = name.partition("::")
        if function not in all_tests().get(file, set()):
            missing.append(name)
    assert missing == []


@pytest.mark.parametrize(
    "name",
    ["update.num_update", "training.loop:trains", "policy/NAME/no_such_number", "coplay trian", "taskz"],
)
def test_name_when_it_is_none_then_found_out(name: str, metrics: frozenset[str]) -> None:
    assert not is_real(name, metrics)
