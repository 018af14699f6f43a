"""Copies of a run's metrics for TensorBoard, Trackio or Weights & Biases, through accelerate's trackers.

`metrics.jsonl` stays the truth. A tracker that does not start, or fails later, is left out with a warning, and the run
goes on as it would without: none of them can stop it.
"""

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType, TracebackType
from typing import Any, Protocol

from coplay.games.optional import optional_library
from coplay.games.plugins import GAME_ERRORS
from coplay.training.config import RunConfig
from coplay.training.run import Run

_logger = logging.getLogger(__name__)


class TrackerLike(Protocol):
    """What accelerate's trackers have in common."""

    def start(self) -> None:
        """Open the run there."""
        ...

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """Keep the settings."""
        ...

    def log(self, values: dict[str, Any], step: int | None = None) -> None:
        """Take one update's numbers."""
        ...

    def finish(self) -> None:
        """Close the run there."""
        ...


def _tensorboard(run: Run) -> TrackerLike:
    from accelerate.tracking import TensorBoardTracker

    class Events(TensorBoardTracker):  # type: ignore[misc]
        """Keeps the settings as text: as hyperparameters they would be a run of their own."""

        def store_init_configuration(self, values: dict[str, Any]) -> None:
            text = "\n".join([f"    {name} = {value!r}" for name, value in values.items()])
            self.writer.add_text("config", text)

    events: TrackerLike = Events("tensorboard", run.folder)
    return events


def _trackio(run: Run) -> TrackerLike:
    from accelerate.tracking import TrackioTracker

    tracker: TrackerLike = TrackioTracker(run.config.storage.project, name=run.config.name, resume="allow")
    return tracker


def _wandb(run: Run) -> TrackerLike:
    from accelerate.tracking import WandBTracker

    tracker: TrackerLike = WandBTracker(
        run.config.storage.project,
        name=run.config.name,
        dir=str(run.folder),
        resume="allow",
        id=run.config.name,
    )
    return tracker


TRACKERS: dict[str, Callable[[Run], TrackerLike]] = {
    "tensorboard": _tensorboard,
    "trackio": _trackio,
    "wandb": _wandb,
}


def tracker_libraries(names: Iterable[str]) -> dict[str, ModuleType]:
    """The library of each tracker.

    Raises:
        MissingLibraryError: if one is not installed.
    """
    return {name: optional_library(name, extra="track", use=f"tracker {name!r}") for name in names}


class Trackers:
    """Those that a run asks for; use as a context manager around its training."""

    def __init__(self, run: Run, made: Mapping[str, Callable[[Run], TrackerLike]] = TRACKERS) -> None:
        """Find their libraries.

        Raises:
            MissingLibraryError: if one is not installed.
        """
        self._run, self._made = run, made
        self._errors: dict[str, tuple[type[Exception], ...]] = {}
        self._live: dict[str, TrackerLike] = {}
        for name, library in tracker_libraries(run.config.storage.trackers).items():
            self._errors[name] = GAME_ERRORS
            own = getattr(library, "Error", None)
            if isinstance(own, type) and issubclass(own, Exception):
                self._errors[name] = (*GAME_ERRORS, own)

    def __enter__(self) -> "Trackers":
        for name in self._errors:
            self._attempt(name, self._start)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in list(self._live):
            self._attempt(name, lambda name: self._live[name].finish())
        self._live.clear()

    @property
    def names(self) -> tuple[str, ...]:
        """Of those that work."""
        return tuple(self._live)

    def report(self, update: int, metrics: Mapping[str, float]) -> None:
        """Pass one update's numbers on; those that are none (NaN) are left out."""
        known = {name: value for name, value in metrics.items() if math.isfinite(value)}
        for name in list(self._live):
            self._attempt(name, lambda name: self._live[name].log(dict(known), step=update))

    def _start(self, name: str) -> None:
        tracker = self._made[name](self._run)
        tracker.start()
        tracker.store_init_configuration(settings_told(self._run.config))
        self._live[name] = tracker

    def _attempt(self, name: str, act: Callable[[str], None]) -> None:
        """Let a library act; what it raises is told, and the library is asked no more."""
        try:
            act(name)
        except self._errors[name] as error:
            self._live.pop(name, None)
            _logger.warning(
                "tracker %r failed and is left out from here on, the run goes on: %s: %s",
                name,
                type(error).__name__,
                error,
            )


def settings_told(config: RunConfig) -> dict[str, Any]:
    """The resolved settings by dotted path; lists as text."""
    told: dict[str, Any] = {}

    def tell(path: str, value: Any) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                tell(f"{path}.{name}" if path else str(name), inner)
        else:
            told[path] = (
                value if value is None or isinstance(value, bool | int | float | str) else repr(value)
            )

    tell("", config.model_dump(mode="json"))
    return told
