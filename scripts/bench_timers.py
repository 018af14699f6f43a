"""Timers that charge each moment to the part of a program that is running."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

REST = "rest"
"""What is charged while none of the wrapped functions runs, unless another name is given."""

Target = tuple[Any, str]
"""The module or class that holds a function, and the function's name there."""


class Timers:
    """Nanoseconds by part, told by a wall clock that is cheap to read."""

    def __init__(self, parts: Iterable[str], *, rest: str = REST) -> None:
        self.spent = dict.fromkeys((*parts, rest), 0)
        self._rest = self._part = rest
        self._since = time.perf_counter_ns()

    def wrap(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, its time charged to `part`, less what wrapped functions that it calls take."""

        def timed(*arguments: Any, **named: Any) -> Any:
            before = self._part
            self._switch(part)
            try:
                return function(*arguments, **named)
            finally:
                self._switch(before)

        return timed

    def _switch(self, part: str) -> None:
        now = time.perf_counter_ns()
        self.spent[self._part] += now - self._since
        self._part, self._since = part, now

    def take(self) -> dict[str, int]:
        """Nanoseconds by part since the last call."""
        self._switch(self._part)
        taken, self.spent = self.spent, dict.fromkeys(self.spent, 0)
        return taken


@contextmanager
def timed_parts(timers: Timers, parts: Mapping[str, Iterable[Target]]) -> Iterator[None]:
    """Charge the functions of each part to it inside the block."""
    undo: list[tuple[Any, str, Any]] = []
    try:
        for part, targets in parts.items():
            for owner, name in targets:
                undo.append((owner, name, getattr(owner, name)))
                setattr(owner, name, timers.wrap(part, getattr(owner, name)))
        yield
    finally:
        for owner, name, function in reversed(undo):
            setattr(owner, name, function)
