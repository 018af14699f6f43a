"""Experiment trackers beside `metrics.jsonl`, which stays the source of truth: their failures never stop a run.

A tracker that cannot start, or breaks, is warned of in a visible line, left out from then on, and told at the end.
"""

import importlib
import importlib.util
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from accelerate.tracking import GeneralTracker, TensorBoardTracker, TrackioTracker, WandBTracker

from coplay.training.config import RunConfig, TrackerName

_LOG = logging.getLogger(__name__)
FOLDER = "trackers"
LONGEST = 200
"""Characters of an error that are told: some come with a page of advice."""
Maker = Callable[[str, str, Path], GeneralTracker]
"""(project, name of the run, its folder) -> a tracker that is not started."""
MAKERS: dict[TrackerName, Maker] = {
    "tensorboard": lambda project, name, folder: TensorBoardTracker(name, logging_dir=folder / FOLDER),
    "trackio": lambda project, name, folder: TrackioTracker(project, name=name),
    "wandb": lambda project, name, folder: WandBTracker(project, name=name, dir=str(folder)),
}


def failures() -> tuple[type[Exception], ...]:
    """What trackers raise when they are missing, have no account, no network or no disk."""
    known: tuple[type[Exception], ...] = (
        ImportError, OSError, RuntimeError, ValueError, TypeError, AttributeError, LookupError
    )  # fmt: skip
    if importlib.util.find_spec("wandb") is None:
        return known
    own: type[Exception] = importlib.import_module("wandb.errors").Error
    return (*known, own)


class Trackers:
    """The trackers of one process's part of a run."""

    def __init__(self, config: RunConfig, folder: Path, *, update: int) -> None:
        """Start them; a run that goes on is a segment of its own, since steps may be done again (B91)."""
        self.failed: dict[str, str] = {}
        """Name -> what went wrong."""
        self._open: dict[str, GeneralTracker] = {}
        self._failures = failures() if config.storage.trackers else ()
        name = config.name if not update else f"{config.name}-from-{update:06d}"
        for kind in config.storage.trackers:
            with self._guarded(kind, "could not start"):
                tracker = MAKERS[kind](config.storage.project, name, folder)
                tracker.start()
                tracker.store_init_configuration(flat(config.model_dump(mode="json")))
                self._open[kind] = tracker

    def report(self, update: int, metrics: Mapping[str, float]) -> None:
        """Send one update's metrics to each."""
        for kind, tracker in list(self._open.items()):
            with self._guarded(kind, f"failed at update {update}"):
                tracker.log(dict(metrics), step=update)

    def finish(self) -> None:
        """End them, also those that are broken no more than the others."""
        for kind, tracker in list(self._open.items()):
            with self._guarded(kind, "could not finish"):
                tracker.finish()
        self._open.clear()

    def told(self) -> str:
        """A line on what failed; empty where nothing did."""
        if not self.failed:
            return ""
        reasons = "; ".join(f"{kind} {reason}" for kind, reason in self.failed.items())
        return f"{len(self.failed)} tracker(s) failed, metrics.jsonl is whole: {reasons}"

    @contextmanager
    def _guarded(self, kind: str, what: str) -> Iterator[None]:
        try:
            yield
        except self._failures as error:
            self._open.pop(kind, None)
            reason = " ".join(str(error).split())[:LONGEST]
            self.failed[kind] = f"{what} ({type(error).__name__}: {reason})"
            _LOG.warning("tracker %r %s; the run goes on without it", kind, self.failed[kind])


@contextmanager
def open_trackers(config: RunConfig, folder: Path, *, update: int) -> Iterator[Trackers]:
    """Trackers that are finished whatever happens inside."""
    trackers = Trackers(config, folder, update=update)
    try:
        yield trackers
    finally:
        trackers.finish()


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, bool | int | float | str]:
    """Nested settings under dotted names, what is no number or text as text."""
    found: dict[str, bool | int | float | str] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value if isinstance(value, bool | int | float | str) else str(value)
    return found
