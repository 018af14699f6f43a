"""`python -m coplay.scripts.bench_end_to_end`: whole iterations of coplay against those of TRL's trainers.

One iteration is to collect 16 replies (2 prompts x 8), to extract and credit them, to step and to record: the same
model, adapter, prompts, reward (distinct characters), rate and lengths on both sides. Every reply has the same number
of tokens: TRL forbids the end token until then, ours goes on after it. Each side is a process of its own, and they
take turns, `--rounds` times. TRL runs with its defaults (autocast to bfloat16, gradient checkpointing; RLOO scores
old policy and reference), and GRPO a second time as ours runs: float32, no checkpointing, no KL.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coplay.scripts.bench_game import make_tiny_model, words_for
from coplay.scripts.bench_job import PARTS, Job, Result
from coplay.scripts.bench_timers import REST

SIDES: dict[str, dict[str, str | bool]] = {
    "ours": {"trainer": "ours"},
    "ours, bfloat16 base": {"trainer": "ours", "bfloat16": True},
    "GRPOTrainer": {"trainer": "grpo"},
    "RLOOTrainer": {"trainer": "rloo"},
    "GRPOTrainer as ours": {"trainer": "grpo", "alike": True},
    "RLOOTrainer as ours": {"trainer": "rloo", "alike": True},
}
DEFAULT_SIDES = ("ours", "GRPOTrainer", "RLOOTrainer", "GRPOTrainer as ours")
HEADER = (
    f"{'':<20}{'wall s':>8}{'CPU s':>8}{'samples/s':>10}{'per CPU s':>10}{'tok/s':>7}{'prompt':>7}{'reply':>6}"
    f"{'MiB':>7}   generation / scoring / forward + loss / backward / rest"
)


class SideError(RuntimeError):
    """A side of the benchmark failed."""


def has_trl(python: str) -> bool:
    """Whether an interpreter has TRL and coplay."""
    code = "import sys; from importlib.util import find_spec as f; sys.exit(not (f('trl') and f('coplay')))"
    return subprocess.run([python, "-c", code], check=False).returncode == 0  # noqa: S603 - the user's interpreter


def run_side(job: Job, python: str) -> Result:
    """Run one job in a process of its own.

    Raises:
        SideError: with the end of what it said, if it failed.
    """
    module = "bench_ours" if job.trainer == "ours" else "bench_trl"
    threads = {"OMP_NUM_THREADS": str(job.threads), "TOKENIZERS_PARALLELISM": "false"}
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "result.json"
        done = subprocess.run(  # noqa: S603 - the user's interpreter
            [python, "-m", f"coplay.scripts.{module}", str(answer)],
            input=job.model_dump_json(),
            text=True,
            capture_output=True,
            env={**os.environ, **threads},
            check=False,
        )
        if done.returncode:
            raise SideError(f"{job.trainer} failed in {python}: {done.stderr.strip()[-2000:]}")
        return Result.model_validate_json(answer.read_text(encoding="utf-8"))


def compare(jobs: dict[str, Job], interpreters: dict[str, str], rounds: int) -> str:
    """Let the sides take turns; a row for each, then what ours is over each other one."""
    results: dict[str, list[Result]] = {side: [] for side in jobs}
    samples = next(iter(jobs.values())).samples
    for number in range(1, rounds + 1):
        for side, job in jobs.items():
            results[side].append(run_side(job, interpreters[job.trainer]))
            print(f"round {number}: {row(side, results[side][-1:], samples)}", file=sys.stderr, flush=True)
    lines = [HEADER, *(row(side, found, samples) for side, found in results.items())]
    own = results["ours"]
    for side, found in results.items():
        if side != "ours":
            wall, cpu = (middle(found, name) / middle(own, name) for name in ("wall", "cpu"))
            lines.append(f"ours over {side}: {wall:.2f} times the samples a second, {cpu:.2f} a CPU second")
    return "\n".join(lines)


def middle(results: Sequence[Result], name: str) -> float:
    """Median over all steps of all rounds."""
    return statistics.median([float(getattr(step, name)) for result in results for step in result.steps])


def row(side: str, results: Sequence[Result], samples: int) -> str:
    """The figures of one side."""
    wall, cpu, reply = (middle(results, name) for name in ("wall", "cpu", "reply_tokens"))
    steps = [step for result in results for step in result.steps]
    whole = sum(step.wall for step in steps)
    shares = [sum(step.parts[part] for step in steps) / whole for part in (*PARTS, REST)]
    return (
        f"{side:<20}{wall:8.2f}{cpu:8.2f}{samples / wall:10.2f}{samples / cpu:10.2f}"
        f"{samples * reply / wall:7.0f}{results[0].prompt_tokens:7.0f}{reply:6.0f}"
        f"{max(result.peak_mib for result in results):7.0f}   "
        + " / ".join(f"{share:.0%}" for share in shares)
    )


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m coplay.scripts.bench_end_to_end", description=__doc__)
    add = parser.add_argument
    add("--model", metavar="FOLDER", help="a chat model; else a tiny random Llama made for the occasion")
    add("--trl-python", metavar="PATH", default=sys.executable, help="an interpreter that has TRL and coplay")
    add("--sides", nargs="+", choices=list(SIDES), default=list(DEFAULT_SIDES), help="ours is always run")
    add("--threads", type=int, default=1, help="CPU threads of each side")
    add("--prompts", type=int, default=2, help="prompts of a step")
    add("--group-size", type=int, default=8, help="replies to each prompt")
    add("--prompt-tokens", type=int, default=200, help="tokens of a prompt")
    add("--new-tokens", type=int, default=32, help="tokens of a reply")
    add("--rank", type=int, default=16, help="of the LoRA adapter; 0 trains the whole model")
    add("--warm-up", type=int, default=1, help="steps left out at the start of each process")
    add("--steps", type=int, default=3, help="steps measured in each process")
    add("--rounds", type=int, default=1, help="how often the sides take turns")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one table."""
    chosen = parse(arguments)
    if shutil.which(chosen.trl_python) is None:
        print(f"error: --trl-python is {chosen.trl_python!r}; expected an interpreter", file=sys.stderr)
        return 2
    if chosen.model and not (Path(chosen.model) / "config.json").is_file():
        print(
            f"error: --model is {chosen.model!r}, which holds no config.json; expected a model folder",
            file=sys.stderr,
        )
        return 2
    sides = [side for side in SIDES if side == "ours" or side in chosen.sides]
    if not has_trl(chosen.trl_python):
        sides = [side for side in sides if SIDES[side]["trainer"] == "ours"]
        print(
            f"{chosen.trl_python} does not have both TRL and coplay, so only our side runs: give --trl-python the"
            " interpreter of an environment with coplay's extra 'bench'"
        )
    with tempfile.TemporaryDirectory() as folder:
        model = chosen.model or folder
        if not chosen.model:
            make_tiny_model(Path(folder))
        shared: dict[str, Any] = {
            "model": model, "num_words": words_for(model, chosen.prompt_tokens), "num_prompts": chosen.prompts,
            "group_size": chosen.group_size, "new_tokens": chosen.new_tokens, "rank": chosen.rank or None,
            "threads": chosen.threads, "warm_up": chosen.warm_up, "steps": chosen.steps,
        }  # fmt: skip
        jobs = {side: Job.model_validate({**shared, **SIDES[side]}) for side in sides}
        interpreters = {"ours": sys.executable, "grpo": chosen.trl_python, "rloo": chosen.trl_python}
        weights = f"LoRA r{chosen.rank}" if chosen.rank else "all weights"
        try:
            table = compare(jobs, interpreters, chosen.rounds)
        except SideError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    print(
        f"{chosen.model or 'tiny random Llama'}, {weights}, {chosen.prompts} prompts x {chosen.group_size} replies,"
        f" {chosen.threads} thread(s); medians of {chosen.rounds * chosen.steps} steps\n{table}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
