"""What the two sides of `bench_end_to_end` are told and what they answer, each in a process of its own."""

import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from coplay.scripts.bench_timers import Timers

PARTS = ("generation", "scoring", "forward + loss", "backward")
"""Where a step's time goes on either side; what is in none of them is the rest."""
LR = 1e-5


class Job(BaseModel):
    """What both sides are told."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    trainer: str
    """`ours`, `grpo` or `rloo`."""
    model: str
    num_words: int
    num_prompts: int
    group_size: int
    new_tokens: int
    rank: int | None
    """Of the LoRA adapter; None: the whole model is trained."""
    threads: int
    warm_up: int
    steps: int
    alike: bool = False
    """TRL only: no autocast, no gradient checkpointing, no KL, as ours runs; else its defaults."""
    bfloat16: bool = False
    """Ours only: base weights in bfloat16."""

    @property
    def samples(self) -> int:
        """Replies of one step."""
        return self.num_prompts * self.group_size


class StepTime(BaseModel):
    """One step of one side."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    wall: float
    cpu: float
    parts: dict[str, float]
    """Wall seconds by part, the rest included."""
    reply_tokens: float
    """Mean over the replies."""


class Result(BaseModel):
    """All steps of one side but the warm-up."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    steps: list[StepTime]
    prompt_tokens: float
    """Mean over the prompts."""
    peak_mib: float


class Stopwatch:
    """Wall, processor and parts' time from step to step."""

    def __init__(self) -> None:
        self.timers = Timers(PARTS)
        self.steps: list[StepTime] = []
        self.start()

    def start(self) -> None:
        """The first step begins here."""
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        self.timers.take()

    def step(self, reply_tokens: float) -> None:
        """A step ends here."""
        wall, cpu = time.perf_counter(), time.process_time()
        parts = {part: spent / 1e9 for part, spent in self.timers.take().items()}
        self.steps.append(
            StepTime(wall=wall - self._wall, cpu=cpu - self._cpu, parts=parts, reply_tokens=reply_tokens)
        )
        self._wall, self._cpu = wall, cpu

    def result(self, warm_up: int, prompt_tokens: float) -> Result:
        """What was measured after the warm-up."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return Result(steps=self.steps[warm_up:], prompt_tokens=prompt_tokens, peak_mib=peak)


def serve(run: Callable[[Job, Path], Result]) -> int:
    """Read a job, run it with a scratch folder, write its result to the file that the command line names."""
    with tempfile.TemporaryDirectory() as folder:
        result = run(Job.model_validate_json(sys.stdin.read()), Path(folder))
    Path(sys.argv[1]).write_text(result.model_dump_json(), encoding="utf-8")
    return 0
