"""Trackers that fail where real ones do: the run goes on, and nobody can miss it."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from accelerate.tracking import GeneralTracker
from run_fakes import tiny_config, tiny_settings

from coplay.scripts import train as train_command
from coplay.training import tracking
from coplay.training.config import RunConfig
from coplay.training.metrics import read_metrics
from coplay.training.tracking import Trackers, flat, open_trackers


class NotingTracker(GeneralTracker):
    """Keeps what it is told; breaks at one of its calls."""

    name = "noting"
    requires_logging_directory = False

    def __init__(self, breaks_at: str = "", error: Exception | None = None) -> None:
        super().__init__()
        self.breaks_at, self.error = breaks_at, error or OSError("no network")
        self.told: list[tuple[str, Any]] = []

    @property
    def tracker(self) -> "NotingTracker":
        return self

    def _note(self, what: str, content: Any = None) -> None:
        self.told.append((what, content))
        if what == self.breaks_at:
            raise self.error

    def start(self) -> None:
        self._note("start")

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self._note("configuration", values)

    def log(self, values: dict[str, Any], step: int | None = None, **_: Any) -> None:
        self._note(f"log {step}", values)

    def finish(self) -> None:
        self._note("finish")


Sit = Callable[..., dict[str, NotingTracker]]


@pytest.fixture
def sit(monkeypatch: pytest.MonkeyPatch) -> Sit:
    """Put noting trackers in the place of the real ones; gives them by name once they are made."""

    def put(**breaks: tuple[str, Exception | None]) -> dict[str, NotingTracker]:
        made: dict[str, NotingTracker] = {}

        def maker(kind: str) -> Any:
            def make(project: str, name: str, folder: Path) -> NotingTracker:
                made[kind] = NotingTracker(*breaks[kind])
                made[kind].told.append(("made", (project, name)))
                return made[kind]

            return make

        for kind in breaks:
            monkeypatch.setitem(tracking.MAKERS, kind, maker(kind))
        return made

    return put


def config(folder: Path, *trackers: str) -> RunConfig:
    return tiny_config(folder, {"storage.trackers": list(trackers)})


def test_run_without_trackers_when_trained_then_none_is_made(tmp_path: Path, sit: Sit) -> None:
    made = sit(tensorboard=("", None), trackio=("", None), wandb=("", None))
    with open_trackers(config(tmp_path), tmp_path, update=0) as trackers:
        trackers.report(0, {"a": 1.0})
    assert not made and not trackers.told()


def test_trackers_when_one_cannot_start_then_warned_and_the_others_go_on(
    tmp_path: Path, sit: Sit, caplog: pytest.LogCaptureFixture
) -> None:
    made = sit(wandb=("start", ImportError("no wandb here")), trackio=("log 1", None), tensorboard=("", None))
    with caplog.at_level(logging.WARNING):
        chosen = config(tmp_path, "wandb", "trackio", "tensorboard")
        with open_trackers(chosen, tmp_path, update=0) as trackers:
            for update in range(3):
                trackers.report(update, {"a": float(update)})
    assert [what for what, _ in made["wandb"].told] == ["made", "start"]
    assert [what for what, _ in made["trackio"].told][-2:] == ["log 0", "log 1"]
    whole = made["tensorboard"].told
    assert [what for what, _ in whole] == [
        "made", "start", "configuration", "log 0", "log 1", "log 2", "finish"
    ]  # fmt: skip
    assert whole[2][1]["game.kind"] == "iterated_matrix" and whole[3][1] == {"a": 0.0}
    assert len(caplog.records) == 2 and "no wandb here" in caplog.records[0].getMessage()
    assert trackers.told().startswith("2 tracker(s) failed, metrics.jsonl is whole: wandb could not start")
    assert "trackio failed at update 1" in trackers.told()


def test_trackers_when_the_run_breaks_then_finished_once(tmp_path: Path, sit: Sit) -> None:
    made = sit(tensorboard=("", None))
    with (
        pytest.raises(ArithmeticError),
        open_trackers(config(tmp_path, "tensorboard"), tmp_path, update=0) as trackers,
    ):
        trackers.report(0, {"a": 1.0})
        raise ArithmeticError
    assert [what for what, _ in made["tensorboard"].told].count("finish") == 1


def test_run_when_it_goes_on_then_a_segment_of_its_own_b91(tmp_path: Path, sit: Sit) -> None:
    """Steps 200 to 212 were told before the crash; they are told again, elsewhere."""
    made = sit(trackio=("", None))
    Trackers(config(tmp_path, "trackio"), tmp_path, update=200).finish()
    assert made["trackio"].told[0] == ("made", ("coplay", "tiny-from-000200"))


def test_settings_when_flat_then_numbers_and_texts_under_dotted_names() -> None:
    assert flat({"a": {"b": 1, "c": None}, "d": [1, 2], "e": True}) == {
        "a.b": 1, "a.c": "None", "d": "[1, 2]", "e": True
    }  # fmt: skip


def test_command_when_a_tracker_breaks_then_trains_to_the_end_and_says_so(
    tmp_path: Path, sit: Sit, capsys: pytest.CaptureFixture[str]
) -> None:
    sit(wandb=("log 0", RuntimeError("account")), tensorboard=("", None))
    settings = tiny_settings(tmp_path, {"storage.trackers": ["wandb", "tensorboard"]})
    train_command.start_training(RunConfig.model_validate(settings))
    told = capsys.readouterr().err
    assert "1 tracker(s) failed, metrics.jsonl is whole: wandb failed at update 0" in told
    assert "3 updates in" in told and "tokens a second" in told and "MB at most" in told
    assert [line["update"] for line in read_metrics(tmp_path / "tiny" / "metrics.jsonl")] == [0, 1, 2]
    summary = json.loads((tmp_path / "tiny" / "benchmark.json").read_text())
    assert summary["updates"] == 3 and summary["memory_mb"]["peak"] >= summary["memory_mb"]["mean"] > 0
