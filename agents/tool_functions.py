"""Functions of other packages as tools, announced under the entry-point group `coplay.tools`. No torch here."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from coplay.agents.base import ToolResult
from coplay.games import GameData, nearest
from coplay.games.plugins import GAME_ERRORS, announced

GROUP = "coplay.tools"
AT_ONCE = 8
"""Most calls of one function that run side by side."""
_LOG = logging.getLogger(__name__)


class UnknownToolError(ValueError):
    """No installed package announces a tool of this name, or it cannot be loaded."""


def announced_tool(name: str) -> Callable[..., str]:
    """The function that a package announces under `name`.

    Only what is installed and announced can be named: a configuration is data, and may come with a run folder from
    anywhere (law 10).

    Raises:
        UnknownToolError: if there is none.
    """
    known = announced(GROUP)
    if name not in known:
        raise UnknownToolError(
            f"tool function {name!r} is unknown; expected one that a package announces under the entry-point group"
            f" {GROUP!r}: {sorted(known)!r}{nearest(name, known)}"
        )
    try:
        function: Callable[..., str] = known[name].load()
    except GAME_ERRORS as error:
        raise UnknownToolError(
            f"tool function {name!r}, {known[name].value!r}, cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    return function


class FunctionRunner:
    """Calls a function, a few calls side by side, each within its time.

    Args:
        function: takes the call's arguments by name and returns text.
        timeout: seconds for one call. A call that is late is told so and left behind: Python cannot stop it.
    """

    blocks = True
    data: GameData | None = None

    def __init__(self, function: Callable[..., str], *, timeout: float = 30.0) -> None:
        self._function = function
        self._timeout = timeout

    def run(self, calls: Sequence[Mapping[str, Any]]) -> list[ToolResult]:
        """The function's answer to each."""
        return [
            result
            for start in range(0, len(calls), AT_ONCE)
            for result in self._together(calls[start : start + AT_ONCE])
        ]

    def _together(self, calls: Sequence[Mapping[str, Any]]) -> list[ToolResult]:
        found: dict[int, ToolResult] = {}
        workers = [
            threading.Thread(target=self._one, args=(place, arguments, found), daemon=True)
            for place, arguments in enumerate(calls)
        ]
        deadline = time.monotonic() + self._timeout
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(max(0.0, deadline - time.monotonic()))
        late = ToolResult("The tool took too long.", "timeout")
        died = ToolResult(
            "The tool failed.", "failed"
        )  # by something that is no ordinary error; Python has said so
        return [found.get(place, late if worker.is_alive() else died) for place, worker in enumerate(workers)]

    def _one(self, place: int, arguments: Mapping[str, Any], found: dict[int, ToolResult]) -> None:
        try:
            text = self._function(**arguments)
        except GAME_ERRORS as error:
            _LOG.warning("a tool failed: %s: %s", type(error).__name__, error)
            found[place] = ToolResult(f"The tool failed: {type(error).__name__}.", "failed")
            return
        if not isinstance(text, str):
            _LOG.warning("a tool returned %r; expected text", text)
            found[place] = ToolResult("The tool gave no text.", "failed")
            return
        found[place] = ToolResult(text)
