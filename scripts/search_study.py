"""Learning to search, over seeds: `python -m coplay.scripts.search_study [--seeds N] [--folder DIR]`.

For each seed, `coplay imitate search_imitate`, and from there `coplay train search_qa` twice: what tools say masked,
and counted in the loss. Prints the share of right answers to questions never trained on, before and after, with Wilson
intervals. Needs the extra `search`.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from scipy import stats

from coplay.scripts.reproduce import cpu_seconds

HELD_OUT = "held_out"
"""What `search_qa` calls the questions it never trains on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Right answers among questions asked."""

    right: int
    asked: int

    @property
    def mean(self) -> float:
        """The share."""
        return self.right / self.asked

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's, 95 %."""
        found = stats.binomtest(self.right, self.asked).proportion_ci(method="wilson")
        return float(found.low), float(found.high)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.mean:.3f} [{low:.3f}, {high:.3f}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """One run from a warm start."""

    before: Share
    after: Share
    cpu_seconds: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the seeds asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="seeds 1 to N")
    parser.add_argument("--folder", default="runs/search_study", help="where the run folders go")
    asked = parser.parse_args(arguments)
    table = Table(title="share of right answers to held-out questions [95 % Wilson interval]")
    for heading in ("seed", "warm start", "trained", "results not masked", "CPU s of a run"):
        table.add_column(heading, justify="right")
    for seed in range(1, asked.seeds + 1):
        warm = imitate(asked.folder, seed)
        masked, unmasked = (learn(asked.folder, warm, seed, masked=masked) for masked in (True, False))
        table.add_row(
            str(seed), str(masked.before), str(masked.after), str(unmasked.after), f"{masked.cpu_seconds:.0f}"
        )
    Console(file=sys.stdout, width=110).print(table)
    return 0


def imitate(folder: str, seed: int) -> str:
    """The run folder of a warm start."""
    name = f"imitate_{seed}"
    _run("imitate", "search_imitate", "--name", name, "--seed", str(seed), "--storage.folder", folder)
    return f"{folder}/{name}"


def learn(folder: str, warm: str, seed: int, *, masked: bool) -> Learnt:
    """Train from a warm start."""
    name = f"{'masked' if masked else 'unmasked'}_{seed}"
    words = ["--name", name, "--seed", str(seed), "--storage.folder", folder]
    words += ["--agents.policies.shared.start", warm]
    if not masked:
        words += ["--objective.mask-tool-output", "false", "--storage.credits", "false"]
    _run("train", "search_qa", *words)
    run = Path(folder) / name
    history = json.loads((run / "evaluations.json").read_text(encoding="utf-8"))
    return Learnt(before=_share(history[0]), after=_share(history[-1]), cpu_seconds=cpu_seconds(run))


def _share(evaluation: dict[str, list[dict[str, object]]]) -> Share:
    """Of the questions never trained on; every reward is 0 or 1."""
    (told,) = [result for result in evaluation["results"] if result.get("game") == HELD_OUT]
    games, own = int(str(told["games"])), told["own"]
    assert isinstance(own, dict)
    return Share(right=round(float(own["mean"]) * games), asked=games)


def _run(*words: str) -> None:
    command = [sys.executable, "-m", "coplay.scripts.cli", *words, "--overwrite"]
    done = subprocess.run(  # noqa: S603 - our own command, no shell
        command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    if done.returncode:
        raise RuntimeError(f"coplay {' '.join(words)} failed: {done.stderr[-500:]}")


if __name__ == "__main__":
    sys.exit(main())
