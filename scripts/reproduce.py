"""Rerun the shipped experiments and print their tables: `python -m coplay.scripts.reproduce [--only NAME]`.

Runs go two at a time, one thread each; each seed is one process of `coplay train`.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from rich.console import Console
from rich.table import Table

from coplay.training.checkpoint import checkpoint_path, complete_checkpoints, read_state
from coplay.training.evaluate import Result
from coplay.training.evaluate_settings import SELF_PLAY
from coplay.training.metrics import read_metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A shipped configuration and the seeds it is judged on."""

    config: str
    seeds: tuple[int, ...]
    opponent: str
    """Whom the trained policy meets besides itself."""
    flags: tuple[str, ...] = ()
    """What is changed over the configuration."""

    @property
    def name(self) -> str:
        """The configuration, and the values of the flags."""
        return "_".join((self.config, *self.flags[1::2]))


EXPERIMENTS = (
    Experiment(config="dilemma_aligned", seeds=(1, 2, 3, 4, 5, 6, 7, 8), opponent="always_defect"),
    Experiment(config="dilemma_independent", seeds=(1, 2, 3), opponent="always_defect"),
    Experiment(
        config="dilemma_independent",
        flags=("--objective.kind", "ppo"),
        seeds=(1, 2, 3),
        opponent="always_defect",
    ),
    Experiment(
        config="dilemma_independent",
        flags=("--objective.kind", "ppo", "--estimator.kind", "grpo"),
        seeds=(1, 2, 3),
        opponent="always_defect",
    ),
    Experiment(config="dilemma_aligned_ppo", seeds=(1, 2, 3), opponent="always_defect"),
    Experiment(config="dilemma_shared_reward", seeds=(1, 2, 3), opponent="always_defect"),
    Experiment(config="trust_aligned", seeds=(1, 2, 3), opponent="greedy"),
    Experiment(config="trust_independent", seeds=(1, 2, 3), opponent="greedy"),
    Experiment(config="dilemma_critic_aligned", seeds=(1, 2, 3, 4, 5, 6, 7, 8), opponent="always_defect"),
    Experiment(config="dilemma_critic_independent", seeds=(1, 2, 3), opponent="always_defect"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One finished run."""

    seed: int
    results: dict[str, Result]
    cpu_seconds: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiments asked for; exit code 1 if a run fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    names = [experiment.name for experiment in EXPERIMENTS]
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=f"of {', '.join(names)}")
    parser.add_argument("--seeds", type=int, default=None, help="only the first N seeds of each")
    parser.add_argument("--folder", default="runs/reproduce", help="where the run folders go")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    asked = parser.parse_args(arguments)
    chosen = [e for e in EXPERIMENTS if asked.only is None or e.name in asked.only]
    jobs = [(e, seed) for e in chosen for seed in e.seeds[: asked.seeds]]
    outcomes = run_all(jobs, asked.folder, jobs_at_once=asked.jobs)
    console = Console(file=sys.stdout, width=110)
    for experiment in chosen:
        mine = [outcome for (e, _), outcome in zip(jobs, outcomes, strict=True) if e is experiment]
        console.print(experiment_table(experiment, mine))
    return 0


def run_all(jobs: Sequence[tuple[Experiment, int]], folder: str, *, jobs_at_once: int) -> list[Outcome]:
    """Train every (experiment, seed), a few at a time; outcomes in the order asked."""
    with ThreadPoolExecutor(jobs_at_once) as pool:
        return list(pool.map(lambda job: run_one(job[0], job[1], folder), jobs))


def run_one(experiment: Experiment, seed: int, folder: str) -> Outcome:
    """Train one seed in a process of its own and read its last evaluation."""
    name = f"{experiment.name}_{seed}"
    words = [sys.executable, "-m", "coplay.scripts.cli", "train", experiment.config, "--overwrite"]
    words += ["--name", name, "--seed", str(seed), "--storage.folder", folder, *experiment.flags]
    started = time.perf_counter()
    done = subprocess.run(  # noqa: S603 - our own command, no shell
        words, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(words[2:])} failed: {done.stderr[-500:]}")
    sys.stderr.write(f"{name}: {time.perf_counter() - started:.0f} s\n")
    run = Path(folder) / name
    state = read_state(checkpoint_path(run, complete_checkpoints(run)[-1]))
    results = {row["opponent"]: Result.model_validate(row) for row in state.history[-1]["results"]}
    return Outcome(seed=seed, results=results, cpu_seconds=cpu_seconds(run))


def cpu_seconds(run: Path) -> float:
    """Processor seconds of all iterations of a run."""
    lines = read_metrics(run / "metrics.jsonl")
    return sum(
        float(v) for line in lines for k, v in line.items() if k.startswith("time/") and k.endswith("_cpu")
    )


def experiment_table(experiment: Experiment, outcomes: Sequence[Outcome]) -> Table:
    """One row a seed, the mean over seeds last."""
    table = Table(title=f"{experiment.name}: return per round [95 % interval over games]")
    for heading in (
        "seed",
        "self-play",
        f"own, against {experiment.opponent}",
        f"{experiment.opponent}'s",
        "CPU s",
    ):
        table.add_column(heading, justify="right")
    for outcome in outcomes:
        meeting = outcome.results[experiment.opponent]
        table.add_row(
            str(outcome.seed), str(outcome.results[SELF_PLAY].own), str(meeting.own), str(meeting.other),
            f"{outcome.cpu_seconds:.0f}",
        )  # fmt: skip
    if outcomes:
        meetings = [outcome.results[experiment.opponent] for outcome in outcomes]
        others = [meeting.other.mean for meeting in meetings if meeting.other]
        table.add_row(
            "mean",
            f"{mean(o.results[SELF_PLAY].own.mean for o in outcomes):.2f}",
            f"{mean(m.own.mean for m in meetings):.2f}",
            f"{mean(others):.2f}",
            f"{mean(o.cpu_seconds for o in outcomes):.0f}",
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
