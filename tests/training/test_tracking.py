"""Copies of metrics for other programs: what they get, and that none of them stops a run."""

import json
import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pydantic import ValidationError
from run_fakes import differences, run_bytes, tiny_config, tiny_run

from coplay.games.optional import MissingLibraryError
from coplay.scripts.imitate import main as imitate
from coplay.scripts.train import main
from coplay.training.loop import train
from coplay.training.metrics import read_metrics
from coplay.training.run import Run
from coplay.training.tracking import TRACKERS, Trackers, settings_told


class Keeper:
    """Keeps what it is told, and fails where it is to."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.told: list[tuple[str, Any]] = []

    def _tell(self, what: str, value: Any = None) -> None:
        self.told.append((what, value))
        if what == self.fails:
            raise ConnectionError(f"no {what}")

    def start(self) -> None:
        self._tell("start")

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self._tell("settings", values)

    def log(self, values: dict[str, Any], step: int | None = None) -> None:
        self._tell("log", (step, values))

    def finish(self) -> None:
        self._tell("finish")


@pytest.fixture
def tracked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run that asks for a tracker whose library is there, and empty."""
    monkeypatch.setitem(sys.modules, "trackio", ModuleType("trackio"))
    return tiny_run(tmp_path, {"storage.trackers": ["trackio"], "update.num_updates": 2})


def follow(run: Run, keeper: Keeper) -> None:
    with Trackers(run, {"trackio": lambda _: keeper}) as trackers:
        train(run, trackers.report)


def test_tracker_when_asked_for_then_told_settings_and_each_update(tracked: Run) -> None:
    keeper = Keeper()
    follow(tracked, keeper)
    assert [what for what, _ in keeper.told] == ["start", "settings", "log", "log", "finish"]
    settings = keeper.told[1][1]
    assert settings["update.num_updates"] == 2 and settings["agents.policies.shared.weights.kind"] == "full"
    lines = list(read_metrics(tracked.folder / "metrics.jsonl"))
    for line, (step, values) in zip(
        lines, [told for what, told in keeper.told if what == "log"], strict=True
    ):
        assert step == line.pop("update")
        assert values == {name: value for name, value in line.items() if value is not None}


@pytest.mark.parametrize("fails", ["start", "settings", "log", "finish"])
def test_tracker_when_it_fails_then_warned_once_and_the_run_is_the_same(
    tracked: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture, fails: str
) -> None:
    keeper = Keeper(fails)
    with caplog.at_level(logging.WARNING):
        follow(tracked, keeper)
    assert [what for what, _ in keeper.told].count(fails) == 1
    (warning,) = [record.getMessage() for record in caplog.records if "tracker" in record.getMessage()]
    assert warning.endswith(f"the run goes on: ConnectionError: no {fails}")
    plain = tiny_run(tmp_path / "plain", {"update.num_updates": 2})
    train(plain, lambda update, metrics: None)
    assert differences(run_bytes(tracked.folder), run_bytes(plain.folder)) == []


def test_error_of_the_librarys_own_when_raised_then_caught_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = ModuleType("wandb")
    library.Error = type("Error", (Exception,), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", library)
    run = tiny_run(tmp_path, {"storage.trackers": ["wandb"]})

    def refuse(_: Run) -> Any:
        raise library.Error("not logged in")

    with Trackers(run, {"wandb": refuse}) as trackers:
        assert trackers.names == ()


def test_library_when_missing_then_refused_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tiny_run(tmp_path, {"storage.trackers": ["trackio"]})
    monkeypatch.setattr("coplay.games.optional.import_module", _absent)
    with pytest.raises(
        MissingLibraryError, match=r"tracker 'trackio' needs the library 'trackio'.*\[track\]"
    ):
        Trackers(run)
    with pytest.raises(ValidationError, match=r"storage\.trackers"):
        tiny_config(tmp_path, {"storage.trackers": ["mlflow"]})
    kept = tmp_path / "old" / "kept"
    kept.parent.mkdir()
    kept.touch()
    (kept.parent / "config.json").touch()
    flags = ["--name", "old", "--overwrite", "--storage.folder", str(tmp_path), "--storage.trackers", "wandb"]
    for command in (main, imitate):
        with pytest.raises(MissingLibraryError, match="tracker 'wandb'"):
            command(flags)
    assert kept.exists()
    assert set(TRACKERS) == {"tensorboard", "trackio", "wandb"}


def _absent(module: str) -> Any:
    raise ModuleNotFoundError(f"No module named {module!r}", name=module)


def test_settings_when_told_then_by_dotted_path(tmp_path: Path) -> None:
    told = settings_told(tiny_config(tmp_path))
    assert told["game.kind"] == "iterated_matrix" and told["collect.branching"] is None
    assert told["storage.trackers"] == "[]"
    assert all(value is None or isinstance(value, bool | int | float | str) for value in told.values())


@pytest.mark.needs("tensorboard")
def test_tensorboard_when_a_run_is_trained_by_command_then_reads_back_its_metrics(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    settings = tmp_path / "run.toml"
    settings.write_text(
        'name = "watched"\n[game]\nkind = "tasks"\nwording = "terse"\n'
        "[agents.model]\nhidden = 16\nintermediate = 16\nnum_layers = 1\nnum_heads = 2\n"
        "[agents.sampling]\nmax_new_tokens = 4\n[collect]\nnum_groups = 2\ngroup_size = 2\n"
        f'[update]\nnum_updates = 2\n[storage]\nfolder = {json.dumps(str(tmp_path))}\ntrackers = ["tensorboard"]\n'
    )
    assert main([str(settings)]) == 0
    events = EventAccumulator(str(tmp_path / "watched" / "tensorboard"))
    events.Reload()
    lines: list[Mapping[str, Any]] = list(read_metrics(tmp_path / "watched" / "metrics.jsonl"))
    seen = [(one.step, one.value) for one in events.Scalars("policy/shared/gradient_norm")]
    assert [step for step, _ in seen] == [0, 1]
    for (_, value), line in zip(seen, lines, strict=True):
        assert value == pytest.approx(line["policy/shared/gradient_norm"], rel=1e-6)
