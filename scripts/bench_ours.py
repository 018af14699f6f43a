"""coplay's side of `bench_end_to_end`: `python -m coplay.scripts.bench_ours RESULT < JOB`."""

import sys
from collections.abc import Mapping
from pathlib import Path

import torch

from coplay.agents.language import SamplingSettings
from coplay.agents.settings import FolderModel, FullWeights, LoraWeights, PolicySettings
from coplay.scripts.bench_game import SYSTEM, SingleTurnParameters, prompt_text
from coplay.scripts.bench_job import LR, Job, Result, Stopwatch, serve
from coplay.scripts.bench_timers import REST, Target, timed_parts
from coplay.training import loop
from coplay.training.config import AgentsSettings, CollectSettings, RunConfig, StorageSettings, UpdateSettings
from coplay.training.run import new_run
from coplay.training.schedules import Constant
from coplay.training.schemes import ReturnsEstimator
from coplay.training.trainer import Trainer

POLICY = "writer"
TIMED: dict[str, list[Target]] = {
    "generation": [(loop, "collect_rollouts")],
    "forward + loss": [(Trainer, "step")],
    "backward": [(torch.autograd, "backward"), (torch.autograd, "grad")],
    REST: [(torch.optim.Adam, "step")],
}


def run_ours(job: Job, folder: Path) -> Result:
    """Train the job's model on the single-turn game, through the ordinary loop, everything recorded."""
    run = new_run(settings(job, folder))
    run.base.chat.stop_ids = ()  # so that every reply has the length asked for
    prompts = [run.base.chat.opening(SYSTEM, prompt_text(number, job.num_words)) for number in range(8)]
    watch = Stopwatch()

    def report(_: int, values: Mapping[str, float]) -> None:
        watch.step(values[f"policy/{POLICY}/tokens"] / job.samples)

    with timed_parts(watch.timers, TIMED):
        loop.train(run, report)
    return watch.result(job.warm_up, sum(map(len, prompts)) / len(prompts))


def settings(job: Job, folder: Path) -> RunConfig:
    """The run of a job: its game, one policy, one trainer, otherwise defaults."""
    weights = FullWeights() if job.rank is None else LoraWeights(rank=job.rank, alpha=2 * job.rank)
    return RunConfig(
        name="bench",
        game=SingleTurnParameters(num_words=job.num_words),
        agents=AgentsSettings(
            model=FolderModel(path=job.model, dtype="bfloat16" if job.bfloat16 else "float32"),
            policies={POLICY: PolicySettings(weights=weights)},
            sampling=SamplingSettings(max_new_tokens=job.new_tokens),
        ),
        collect=CollectSettings(num_groups=job.num_prompts, group_size=job.group_size),
        estimator=ReturnsEstimator(discount=1.0),
        update=UpdateSettings(
            num_updates=job.warm_up + job.steps, lr=Constant(level=LR), num_threads=job.threads
        ),
        storage=StorageSettings(folder=str(folder), checkpoint_every=1_000_000),
    )


if __name__ == "__main__":
    sys.exit(serve(run_ours))
