"""Live progress of a training run: one table that renews itself, or plain lines when nobody watches a terminal."""

import sys
import time
from collections.abc import Mapping
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table

LINES_PER_RUN = 20
SHOWN = ("return_per_tick", "cooperation", "malformed")
"""Measures of `rollout/MEASURE/PLAYER`."""


class Progress:
    """Shows each update's numbers; use as a context manager."""

    def __init__(self, title: str, *, num_updates: int, players: tuple[str, ...], first: int = 0) -> None:
        self.title, self.num_updates, self.players, self.first = title, num_updates, players, first
        self._console = Console(file=sys.stderr, markup=False, emoji=False)  # names of players are plain text
        self._live = Live(console=self._console, refresh_per_second=4) if self._console.is_terminal else None
        self._start = time.monotonic()
        self._smooth: dict[str, float] = {}

    def __enter__(self) -> "Progress":
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def report(self, update: int, metrics: Mapping[str, float]) -> None:
        """Take in one update's metrics."""
        for key, value in metrics.items():
            old = self._smooth.get(key, value)
            self._smooth[key] = old + 0.1 * (value - old)
        done = update + 1
        if self._live:
            self._live.update(self._table(done))
        elif done == self.num_updates or done % max(self.num_updates // LINES_PER_RUN, 1) == 0:
            self._console.print(
                f"{self.title} {done}/{self.num_updates} {self._line()}", highlight=False, soft_wrap=True
            )

    def _numbers(self) -> dict[str, dict[str, str]]:
        """Of each measure, named as in `metrics.jsonl`, what is known of the players."""
        found = {}
        for measure in SHOWN:
            known = {player: self._smooth.get(f"rollout/{measure}/{player}") for player in self.players}
            if told := {player: f"{value:.3f}" for player, value in known.items() if value is not None}:
                found[measure] = told
        return found

    def _line(self) -> str:
        numbers = [
            f"{measure}/{player} {value}"
            for measure, told in self._numbers().items()
            for player, value in told.items()
        ]
        return " ".join([*numbers, f"{time.monotonic() - self._start:.0f} s"])

    def _table(self, done: int) -> Table:
        elapsed = time.monotonic() - self._start
        left = elapsed / max(done - self.first, 1) * (self.num_updates - done)
        table = Table(
            title=f"{self.title}: update {done} of {self.num_updates}, {elapsed:.0f} s, {left:.0f} s to go"
        )
        for name in ("", *self.players):
            table.add_column(name, justify="right" if name else "left")
        for measure, told in self._numbers().items():
            table.add_row(measure, *(told.get(player, "") for player in self.players))
        return table
