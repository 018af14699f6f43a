"""What games and tools were made from files: told in dry run and metrics, and the same when a run goes on (law 8)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from coplay.games import GameData, Mixture
from coplay.training.environment import recorded
from coplay.training.messages import ConfigError
from coplay.training.mixtures import Exam

HELD_OUT = "held_out"
DATA = "data"
"""Where a run's `environment.json` keeps what was read."""


def read_data(mixture: Mixture, exams: Sequence[Exam], tools: Mapping[str, GameData]) -> dict[str, GameData]:
    """What was read, by the label of each game; `held_out/LABEL` of those that are only evaluated, `tools/NAME`.

    `trained_on` counts what is held out and yet trained on too.

    Args:
        mixture: what is trained on.
        exams: what is evaluated.
        tools: what tools were made from, by their names.
    """
    found = {v.label: data for v in mixture.variants if (data := v.game.data) is not None}
    trained = frozenset[int]().union(*[data.parts for data in found.values()])
    for exam in exams:
        for variant in exam.games.variants if exam.held_out else ():
            data = variant.game.data
            if data is not None:
                known = {**data.counts, "trained_on": len(data.parts & trained)}
                found[f"{HELD_OUT}/{variant.label}"] = replace(data, counts=known)
    return found | {f"tools/{name}": data for name, data in tools.items()}


def data_metrics(
    data: Mapping[str, GameData], mixture: Mixture, *, run_seed: int, update: int, num_groups: int
) -> dict[str, float]:
    """Counts of what is trained on, `data/...`, and how often tasks have been gone through, `data/epochs`.

    In a mixture `data/LABEL/...`.
    """
    mine = {one.label: data[one.label] for one in mixture.variants if one.label in data}
    if not mine:
        return {}
    played = mixture.played_before(run_seed=run_seed, iteration=update + 1, num_groups=num_groups)
    metrics: dict[str, float] = {}
    for label, found in mine.items():
        head = "data" if len(mixture.variants) == 1 else f"data/{label}"
        metrics |= {f"{head}/{name}": float(count) for name, count in found.counts.items()}
        if "tasks" in found.counts:
            metrics[f"{head}/epochs"] = played[label] / found.counts["tasks"]
    return metrics


def data_record(data: Mapping[str, GameData]) -> dict[str, Any]:
    """What a run folder keeps of it."""
    return {
        label: {"name": found.name, "digest": found.digest, "counts": dict(found.counts)}
        for label, found in data.items()
    }


def check_data(folder: Path, data: Mapping[str, GameData]) -> None:
    """Refuse to go on with other data than a run began with.

    Raises:
        ConfigError: if so.
    """
    if not data:
        return
    known = recorded(folder, DATA)
    for label, found in data.items():
        before = known.get(label, {}).get("digest")
        if before != found.digest:
            raise ConfigError(
                f"'{found.name}' ({label}) has the digest {found.digest}, but run '{folder}' began with {before}: a"
                " run goes on with the same data only; put the old file back, or start a new run"
            )


def told_data(data: Mapping[str, GameData]) -> list[str]:
    """A line for each game or tool that was made from files."""
    return [
        f"data of {label!r}, '{found.name}': "
        + ", ".join(f"{name} {count}" for name, count in found.counts.items())
        for label, found in data.items()
    ]
