"""Where the time goes: seconds by stage of every iteration, and what a whole run took, told at its end."""

import resource
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from coplay.rollout_tree import RolloutTree

BENCHMARK = "benchmark.json"
_PREFIX = "time/"
_MEGABYTE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class NumTokens:
    """Tokens of an iteration, branches included, each where it was first read or sampled."""

    sampled: int
    """Of replies."""
    total: int
    """Of observations and replies."""


def count_tokens(trees: Iterable[RolloutTree]) -> NumTokens:
    """Count what was played; turns that a branch holds from its line were not played again."""
    segments = [
        segment
        for tree in trees
        for step in tree.steps
        for turn in step.turns
        if not turn.trains_once_for
        for segment in turn.segments
    ]
    return NumTokens(
        sampled=sum([len(one.ids) for one in segments if one.sampled]),
        total=sum([len(one.ids) for one in segments]),
    )


class Clock:
    """Seconds of wall and processor time by stage of one iteration."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        self._laps: dict[str, float] = {}

    def lap(self, stage: str) -> None:
        """End a stage."""
        wall, cpu = time.perf_counter(), time.process_time()
        self._laps[f"{_PREFIX}{stage}"] = wall - self._wall
        self._laps[f"{_PREFIX}{stage}_cpu"] = cpu - self._cpu
        self._wall, self._cpu = wall, cpu

    def metrics(self, tokens: NumTokens) -> dict[str, float]:
        """All stages ended so far: `time/STAGE` and `time/STAGE_cpu` in seconds, `time/STAGE_ms_per_token` of wall.

        Collecting is told by sampled token, everything else by token; a stage of no token has no such number.
        """
        return self._laps | {
            f"{stage}_ms_per_token": 1000 * seconds / count
            for stage, seconds in self._laps.items()
            if not stage.endswith("_cpu")
            and (count := tokens.sampled if stage == f"{_PREFIX}collect" else tokens.total)
        }


class Benchmark:
    """What this process's part of a run took: time, tokens and memory."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._updates: list[int] = []
        self._seconds: dict[str, float] = {}
        self._sampled = self._total = 0
        self._memory: list[float] = []

    def note(self, update: int, values: Mapping[str, float], tokens: NumTokens) -> None:
        """Take in an iteration's metrics."""
        self._updates.append(update)
        for key, value in values.items():
            stage = key.removeprefix(_PREFIX)
            if stage != key and not stage.endswith(("_cpu", "_ms_per_token")):
                self._seconds[stage] = self._seconds.get(stage, 0.0) + value
        self._sampled += tokens.sampled
        self._total += tokens.total
        self._memory.append(memory_now())

    def told(self) -> dict[str, Any]:
        """The summary, in seconds, tokens a second and megabytes; empty if nothing was done."""
        if not self._updates:
            return {}
        total, count = time.perf_counter() - self._start, len(self._updates)
        rest = {"other": total - sum(self._seconds.values())}
        return {
            "updates": count,
            "first_update": self._updates[0],
            "seconds": total,
            "sections": {
                stage: {"seconds": spent, "mean": spent / count, "share": spent / total}
                for stage, spent in (self._seconds | rest).items()
            },
            "tokens": self._total,
            "sampled_tokens": self._sampled,
            "tokens_per_second": self._total / total,
            "sampled_tokens_per_collect_second": self._sampled / max(self._seconds.get("collect", 0.0), 1e-9),
            "memory_mb": {"peak": max(memory_peak(), *self._memory), "mean": sum(self._memory) / count},
        }


def memory_now() -> float:
    """Megabytes that this process holds: on an accelerator what torch has there, else resident memory."""
    if torch.cuda.is_available():
        return torch.cuda.memory_allocated() / _MEGABYTE
    pages = Path("/proc/self/statm")
    if pages.is_file():
        return int(pages.read_text(encoding="ascii").split()[1]) * resource.getpagesize() / _MEGABYTE
    return memory_peak()


def memory_peak() -> float:
    """The most that it ever held."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / _MEGABYTE
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest / _MEGABYTE if sys.platform == "darwin" else largest / 1024


def benchmark_lines(told: Mapping[str, Any]) -> Sequence[str]:
    """The summary for the console."""
    if not told:
        return ()
    sections = sorted(told["sections"].items(), key=lambda one: -one[1]["seconds"])
    spent = ", ".join(f"{stage} {one['mean']:.3g} s ({one['share']:.0%})" for stage, one in sections)
    memory = told["memory_mb"]
    return (
        f"{told['updates']} updates in {told['seconds']:.1f} s; an update: {spent}",
        f"{told['tokens_per_second']:.0f} tokens a second, {told['sampled_tokens_per_collect_second']:.0f} sampled a"
        f" second of collecting; memory {memory['peak']:.0f} MB at most, {memory['mean']:.0f} MB on average",
    )
