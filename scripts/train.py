"""`coplay train [CONFIG] [--section.field value] [--resume DIR] [--overwrite] [--dry-run] [--evaluate-only]`."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from coplay.agents.runs import find_run, read_object
from coplay.scripts.progress import Progress
from coplay.scripts.settings import DEFAULT_CONFIG, OTHER_CONFIG, read_settings, shipped_configs
from coplay.scripts.words import take, take_value
from coplay.training.config import RunConfig
from coplay.training.messages import ConfigError

if TYPE_CHECKING:
    from coplay.training.run import Run

USAGE = """coplay train [CONFIG] [--section.field value ...] [--overwrite] [--dry-run] [--evaluate-only]
coplay train --resume DIR

--evaluate-only makes the run's folder, evaluates its start and prints that: nothing is trained.
CONFIG is a TOML file or the name of a shipped configuration ({configs}; default {default}, or
{other} with a --game.kind of its own, which may be module:Class of a module in this folder).
--dry-run plays and trains one iteration in memory and shows one dialogue per seat, row lengths, memory and time.
What is printed as it trains are running means, to which each update adds a tenth; metrics.jsonl has every update's own.
A section's kind can be changed, e.g. --shaping.kind shared_reward; what both kinds have in common then stays, and its
other fields start from their defaults.
A field that may be None is set to it by null, e.g. --storage.keep null.

"""


def main(arguments: Sequence[str]) -> int:
    """Train one run."""
    words = list(arguments)
    wants_help = take(words, "--help") or take(words, "-h")
    switches = {name: take(words, name) for name in ("--overwrite", "--dry-run", "--evaluate-only")}
    resume = take_value(words, "--resume")
    if resume is not None:
        if words or any(switches.values()):
            raise ConfigError(
                "--resume takes its configuration from the run folder; expected no other argument"
            )
        return resume_training(find_run(resume))
    config = read_settings(words.pop(0) if words and not words[0].startswith("--") else None, words)
    if wants_help:
        show_usage(config)
        return 0
    if switches["--dry-run"]:
        from coplay.scripts.dry_run import dry_run

        sys.stdout.write(dry_run(config))
        return 0
    if switches["--evaluate-only"]:
        return evaluate_start(config, overwrite=switches["--overwrite"])
    return start_training(config, overwrite=switches["--overwrite"])


def evaluate_start(config: RunConfig, *, overwrite: bool = False) -> int:
    """Evaluate a new run as it starts, and keep what was found; it can be resumed to train."""
    from coplay.scripts.evaluate import print_results
    from coplay.training.evaluate import Result
    from coplay.training.record import evaluate_run
    from coplay.training.run import new_run

    run = new_run(config, overwrite=overwrite)
    evaluate_run(run)
    run.save()
    print_results(config.name, [Result.model_validate(row) for row in run.state.history[-1]["results"]])
    return 0


def start_training(config: RunConfig, *, overwrite: bool = False) -> int:
    """Train a new run to its end."""
    from coplay.training.run import new_run
    from coplay.training.tracking import tracker_libraries

    tracker_libraries(config.storage.trackers)
    return _train(new_run(config, overwrite=overwrite))


def resume_training(folder: Path) -> int:
    """Go on with a run from its newest whole checkpoint."""
    from coplay.training.run import resume_run

    return _train(resume_run(folder))


def show_usage(config: RunConfig) -> None:
    """Print the commands, then every field of this configuration with its meaning and value."""
    sys.stdout.write(
        USAGE.format(configs=", ".join(shipped_configs()), default=DEFAULT_CONFIG, other=OTHER_CONFIG)
    )
    tyro.cli(tyro.conf.AvoidSubcommands[RunConfig], default=config, args=["--help"], prog="coplay train")


def _train(run: "Run") -> int:
    from coplay.rollout_tree.render import safe_text
    from coplay.rollout_tree.report import write_report
    from coplay.training.lock import sole_writer
    from coplay.training.loop import train
    from coplay.training.reply_budget import too_long_replies
    from coplay.training.timing import BENCHMARK, benchmark_lines
    from coplay.training.tracking import Trackers

    config = run.config
    title = f"{config.name} (seed {config.seed})"
    players = run.game.spec.players
    progress = Progress(title, num_updates=config.update.num_updates, players=players, first=run.state.update)
    first = run.state.update
    if (warning := too_long_replies(run)) is not None:
        sys.stderr.write(f"warning: {safe_text(warning)}\n")
    trackers = Trackers(run)

    def report(update: int, metrics: Mapping[str, float]) -> None:
        progress.report(update, metrics)
        trackers.report(update, metrics)

    with sole_writer(run.folder), trackers, progress:
        if run.state.update >= config.update.num_updates:
            sys.stderr.write(
                f"all {config.update.num_updates} updates are done; train a new run from this one with"
                f" --agents.policies.NAME.start {run.folder}\n"
            )
        train(run, report)
        page = write_report(run.folder)
    told = benchmark_lines(read_object(run.folder / BENCHMARK)) if run.state.update > first else ()
    lines = [*told, f"run folder: {run.folder}", f"to look at: {page}"]
    sys.stderr.write("\n".join(lines) + "\n")
    return 0
