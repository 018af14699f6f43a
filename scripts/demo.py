"""The demo: the same two agents learn the iterated dilemma twice, each for itself and with Advantage Alignment."""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from coplay.scripts.settings import read_settings
from coplay.scripts.train import start_training
from coplay.training.checkpoint import checkpoint_path, complete_checkpoints, read_state
from coplay.training.evaluate import Result
from coplay.training.evaluate_settings import SELF_PLAY
from coplay.training.metrics import read_metrics

CONFIGS = {"each for itself": "dilemma_independent", "Advantage Alignment": "dilemma_aligned"}
READING = """
Two copies of one small language model meet for 10 rounds, writing A (cooperate) or B (defect).
A round pays each 3 for A/A, 1 for B/B; who plays B against A gets 5, the other 0.
Each for itself they end in mutual defection (1.00 a round). With Advantage Alignment their
credit includes what their replies did for each other: they cooperate (up to 3.00), give an
always-defecting opponent little, and lose little to it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """What a finished run says of itself."""

    before: dict[str, Result]
    after: dict[str, Result]
    generation: float
    training: float
    rest: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Train both runs and print one table."""
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument("--folder", default="runs", help="where the run folders go")
    parser.add_argument(
        "--updates", type=int, default=None, help="updates of each run (default: as configured)"
    )
    asked = parser.parse_args(arguments)
    finished = {}
    for title, name in CONFIGS.items():
        flags = ["--name", f"demo_{name}", "--storage.folder", asked.folder]
        if asked.updates is not None:
            flags += ["--update.num-updates", str(asked.updates)]
        started = time.perf_counter()
        start_training(read_settings(name, flags), overwrite=True)
        wall = time.perf_counter() - started
        finished[title] = read_finished(Path(asked.folder) / f"demo_{name}", wall=wall)
    console = Console(file=sys.stdout, width=110)
    console.print(READING)
    console.print(results_table(finished))
    return 0


def read_finished(folder: Path, *, wall: float) -> Finished:
    """Read a run folder's first and last evaluation and its times."""
    state = read_state(checkpoint_path(folder, complete_checkpoints(folder)[-1]))
    tables = [
        {row["opponent"]: Result.model_validate(row) for row in entry["results"]} for entry in state.history
    ]
    lines = list(read_metrics(folder / "metrics.jsonl"))

    def seconds(*stages: str) -> float:
        return sum(float(line[f"time/{stage}"]) for line in lines for stage in stages)

    generation, training = seconds("collect"), seconds("credit", "update")
    return Finished(
        before=tables[0],
        after=tables[-1],
        generation=generation,
        training=training,
        rest=wall - generation - training,
    )


def results_table(finished: dict[str, Finished]) -> Table:
    """The closing table: rows are measurements, columns are the two ways of learning."""
    table = Table(title="Pay per round, before → after training")
    table.add_column("")
    for title in finished:
        table.add_column(title, justify="right")

    def row(label: str, cell: "dict[str, str]") -> None:
        table.add_row(label, *(cell[title] for title in finished))

    def arrow(name: str, field: str) -> dict[str, str]:
        return {
            title: f"{getattr(run.before[name], field).mean:.2f} → {getattr(run.after[name], field).mean:.2f}"
            for title, run in finished.items()
        }

    row("self-play: pay of each", arrow(SELF_PLAY, "own"))
    row("self-play: share of cooperative moves", arrow(SELF_PLAY, "cooperation"))
    row("against always-defect: own pay", arrow("always_defect", "own"))
    row("against always-defect: its pay", arrow("always_defect", "other"))
    row("against always-cooperate: own pay", arrow("always_cooperate", "own"))
    row(
        "malformed replies",
        {title: f"{run.after[SELF_PLAY].malformed:.1%}" for title, run in finished.items()},
    )
    for label, field in (
        ("seconds generating", "generation"),
        ("seconds training", "training"),
        ("seconds, rest", "rest"),
    ):
        row(label, {title: f"{getattr(run, field):.0f}" for title, run in finished.items()})
    return table


if __name__ == "__main__":
    sys.exit(main())
