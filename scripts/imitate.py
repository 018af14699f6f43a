"""`coplay imitate [CONFIG] [--section.field value] [--resume DIR] [--overwrite] [--dry-run]`."""

import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from coplay.agents.runs import find_run
from coplay.scripts.settings import IMITATION
from coplay.scripts.words import take, take_value
from coplay.training.imitation_config import ImitationConfig
from coplay.training.messages import ConfigError

if TYPE_CHECKING:
    from coplay.training.imitation import Imitation

LINES = 20
"""About so many lines of progress."""
USAGE = """coplay imitate [CONFIG] [--section.field value ...] [--overwrite] [--dry-run]
coplay imitate --resume DIR

CONFIG is a TOML file or the name of a shipped configuration ({configs}; default {default}).
--dry-run reads all dialogues and takes one optimiser step in memory; shows a dialogue, row lengths and time.
Training goes on from it with --agents.policies.NAME.start RUN; play and evaluate take it as any run.

"""


def main(arguments: Sequence[str]) -> int:
    """Imitate dialogues."""
    words = list(arguments)
    wants_help = take(words, "--help") or take(words, "-h")
    switches = {name: take(words, name) for name in ("--overwrite", "--dry-run")}
    resume = take_value(words, "--resume")
    if resume is not None:
        if words or any(switches.values()):
            raise ConfigError(
                "--resume takes its configuration from the run folder; expected no other argument"
            )
        return go_on_imitating(find_run(resume))
    config = IMITATION.read(words.pop(0) if words and not words[0].startswith("--") else None, words)
    if wants_help:
        sys.stdout.write(USAGE.format(configs=", ".join(IMITATION.shipped()), default=IMITATION.default))
        tyro.cli(
            tyro.conf.AvoidSubcommands[ImitationConfig],
            default=config,
            args=["--help"],
            prog="coplay imitate",
        )
        return 0
    if switches["--dry-run"]:
        sys.stdout.write(dry_run(config))
        return 0
    return start_imitating(config, overwrite=switches["--overwrite"])


def start_imitating(config: ImitationConfig, *, overwrite: bool = False) -> int:
    """Imitate from the start to the end."""
    from coplay.training.imitation import new_imitation
    from coplay.training.tracking import tracker_libraries

    tracker_libraries(config.storage.trackers)
    return _imitate(new_imitation(config, overwrite=overwrite))


def go_on_imitating(folder: Path) -> int:
    """Go on with an imitation from its newest whole checkpoint."""
    from coplay.training.imitation import resume_imitation

    return _imitate(resume_imitation(folder))


def dry_run(config: ImitationConfig) -> str:
    """What would be learnt from: counts, a dialogue as the model sees it, row lengths, seconds."""
    from coplay.scripts.dry_run import dialogue, lengths
    from coplay.training.demonstrations import gather
    from coplay.training.imitation import imitation_metrics, prepare
    from coplay.training.run import Run

    with tempfile.TemporaryDirectory() as folder:
        run = Run(config.run(num_steps=1), folder=Path(folder))
        imitation = prepare(config, run, gather(config))
        paths = (*imitation.curriculum.training, *imitation.curriculum.validation)
        start = time.perf_counter()
        first = imitation_metrics(imitation, next(imitation.curriculum.batches()), 0)
        seconds = time.perf_counter() - start
    return "\n".join(
        [
            f"configuration {config.name!r}: {told(imitation)}",
            dialogue(run, paths, paths[0].player),
            f"row lengths in tokens: {lengths(paths)}",
            f"one step: {seconds:.2f} s, loss {first['loss']:.3f} nats a token; {imitation.curriculum.num_steps} steps:"
            f" about {seconds * imitation.curriculum.num_steps:.0f} s; nothing was written",
            "",
        ]
    )


def told(imitation: "Imitation") -> str:
    """What is learnt from, in one sentence."""
    known = imitation.summary
    left = {key: n for key, n in imitation.left_out().items() if n}
    return (
        f"{known['training']} dialogues ({known['training_tokens']} tokens of replies) to learn from,"
        f" {known['validation']} ({known['validation_tokens']}) to validate, {known['steps']} steps;"
        f" left out: {left or 'nothing'}"
    )


def _imitate(imitation: "Imitation") -> int:
    from coplay.rollout_tree.report import write_report
    from coplay.training.imitation import imitate
    from coplay.training.lock import sole_writer
    from coplay.training.tracking import Trackers

    run, curriculum = imitation.run, imitation.curriculum
    sys.stderr.write(f"{told(imitation)}\n")
    every = max(curriculum.num_steps // LINES, 1)
    trackers = Trackers(run)

    def report(step: int, metrics: Mapping[str, float]) -> None:
        done = step + 1
        if done % every == 0 or done == curriculum.num_steps or "validation/loss" in metrics:
            sys.stderr.write(f"{run.config.name} {done}/{curriculum.num_steps} {_line(metrics)}\n")
        trackers.report(step, metrics)

    with sole_writer(run.folder), trackers:
        imitate(imitation, report)
        page = write_report(run.folder)
    best = run.state.best_update
    if best is not None and best != run.state.update:
        sys.stderr.write(f"smallest validation loss after step {best}: {run.folder}@{best}\n")
    sys.stderr.write(f"run folder: {run.folder}\nto look at: {page}\n")
    return 0


def _line(metrics: Mapping[str, float]) -> str:
    names = (
        "imitation/loss",
        "imitation/perplexity",
        "validation/loss",
        "validation/perplexity",
        "validation/accuracy",
    )
    return " ".join(f"{name} {metrics[name]:.3f}" for name in names if name in metrics)
