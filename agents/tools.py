"""Who runs the tools that games offer: one desk for all seats, which answers a wave of calls together. No torch here.

All calls made in one turn of the event loop are run together and answered together, so that the next samples are asked
for in one batch whatever the tools took (law 8).
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from coplay.agents.base import CallOutcome, Desk, ToolCall, ToolResult
from coplay.games import GameData, nearest
from coplay.games.tools import BadCall, Call, Tools, may_close


class ToolsNotConfiguredError(ValueError):
    """A game offers a tool that nobody runs, or an agent cannot be told its results."""


class ToolRunner(Protocol):
    """Runs one tool."""

    @property
    def blocks(self) -> bool:
        """True if it waits for something: then it is run beside the event loop."""
        ...

    @property
    def data(self) -> GameData | None:
        """What it was made from, which a run that goes on must find the same; None: no file."""
        ...

    def run(self, calls: Sequence[Mapping[str, Any]]) -> Sequence[ToolResult]:
        """One result for each call's arguments, in their order."""
        ...


class _Wave:
    """Calls that are answered together."""

    __slots__ = ("calls", "futures", "work")

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.futures: list[asyncio.Future[ToolResult]] = []
        self.work: asyncio.Task[list[ToolResult]]

    def hand_out(self, work: asyncio.Task[list[ToolResult]]) -> None:
        """Tell everyone who still waits: his result, or the error that all share."""
        error = None if work.cancelled() else work.exception()
        for place, future in enumerate(self.futures):
            if future.done():
                continue
            if work.cancelled():
                future.cancel()
            elif error is not None:
                future.set_exception(error)
            else:
                future.set_result(work.result()[place])


class ToolDesk:
    """Runs the tools of a run by name.

    Args:
        runners: by the name that games call them by.
        max_characters: most of a result that a player is told; the rest is cut off, with a mark.
    """

    def __init__(self, runners: Mapping[str, ToolRunner], *, max_characters: int = 4000) -> None:
        self._runners = dict(runners)
        self._max_characters = max_characters
        self._wave: _Wave | None = None

    @property
    def data(self) -> dict[str, GameData]:
        """What tools were made from, by their names."""
        found = {name: runner.data for name, runner in self._runners.items()}
        return {name: data for name, data in found.items() if data is not None}

    def check(self, tools: Tools) -> None:
        """Refuse a game's tools that nobody here runs.

        Raises:
            ToolsNotConfiguredError: if there is one.
        """
        for tool in tools.offered:
            if tool.name not in self._runners:
                raise ToolsNotConfiguredError(_nobody_runs(tool.name, tuple(self._runners)))

    async def run(self, call: Call) -> ToolResult:
        """The result of a call, together with all calls of the same turn of the event loop."""
        loop = asyncio.get_running_loop()
        if self._wave is None or self._wave.work.done():
            self._wave = _Wave()
            self._wave.work = loop.create_task(self._answer(self._wave))
            self._wave.work.add_done_callback(self._wave.hand_out)
        future: asyncio.Future[ToolResult] = loop.create_future()
        self._wave.calls.append(call)
        self._wave.futures.append(future)
        return await future

    async def _answer(self, wave: _Wave) -> list[ToolResult]:
        """Runs after everyone who was ready has called; equal calls are run once, in an order of their own."""
        self._wave = None
        names = [(call.tool, json.dumps(call.arguments, sort_keys=True)) for call in wave.calls]
        by_tool: dict[str, list[str]] = {}
        for tool, written in sorted(set(names)):
            by_tool.setdefault(tool, []).append(written)
        found = await asyncio.gather(*(self._run(tool, written) for tool, written in by_tool.items()))
        results = {
            (tool, written): self._cut(result)
            for (tool, asked), answers in zip(by_tool.items(), found, strict=True)
            for written, result in zip(asked, answers, strict=True)
        }
        return [results[name] for name in names]

    async def _run(self, tool: str, written: Sequence[str]) -> Sequence[ToolResult]:
        runner, calls = self._runners[tool], [json.loads(arguments) for arguments in written]
        return await asyncio.to_thread(runner.run, calls) if runner.blocks else runner.run(calls)

    def _cut(self, result: ToolResult) -> ToolResult:
        if len(result.text) <= self._max_characters:
            return result
        return ToolResult(result.text[: self._max_characters - 1] + "…", result.outcome)


def _nobody_runs(name: str, known: Sequence[str]) -> str:
    told = f"agents.tools has {list(known)!r}{nearest(name, known)}" if known else "agents.tools is empty"
    return (
        f"the game offers the tool {name!r}, but {told}; expected an entry that says who runs it, such as"
        f" [agents.tools.{name}] with kind = 'bm25' and a corpus"
    )


def desk_for(desk: Desk | None, tools: Tools) -> Desk:
    """The desk that runs what a game offers.

    Raises:
        ToolsNotConfiguredError: if there is none, or it lacks a tool.
    """
    if desk is None:
        raise ToolsNotConfiguredError(_nobody_runs(tools.offered[0].name, ()))
    desk.check(tools)
    return desk


async def answer_call(
    desk: Desk | None, tools: Tools, text: str, *, number: int, reminded: bool = True
) -> ToolCall | None:
    """Run the call that a reply holds; None if it is no call.

    Args:
        desk: who runs tools.
        tools: what the player may call.
        text: his reply.
        number: how many calls he has made in this turn.
        reminded: False: his last result also says that no calls are left; True: something else keeps him to it.
    """
    read = tools.read(text)
    if read is None:
        return None
    arguments: Mapping[str, Any] = {}
    outcome: CallOutcome = "over_budget"
    told = tools.spent
    if number < tools.max_calls:
        last = number + 1 == tools.max_calls and not reminded
        if isinstance(read, BadCall):
            outcome = read.outcome
            told = tools.result_text(read.fault if tools.refusal is None else tools.refusal, last=last)
        else:
            arguments = read.arguments
            result = await desk_for(desk, tools).run(read)
            outcome, told = result.outcome, tools.result_text(result.text, last=last)
    elif isinstance(read, Call):
        arguments = read.arguments
    return ToolCall(text=text, tool=read.tool, arguments=arguments, result=told, outcome=outcome)


def ends_call(tools: Tools, decode: Callable[[Sequence[int]], str]) -> Callable[[Sequence[int]], bool]:
    """Whether the ids of a reply so far hold a whole call; the last id alone rules most of them out."""

    def is_whole(ids: Sequence[int]) -> bool:
        return may_close(decode(ids[-1:])) and tools.is_whole(decode(ids))

    return is_whole
