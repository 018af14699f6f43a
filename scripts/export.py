"""`coplay export RUN --to messages|graphml|node-link|verifiers|inspect [--iteration N] [--out DIR]`."""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from coplay.agents.runs import find_run, read_config
from coplay.rollout_tree import RolloutTree, read_rollouts
from coplay.rollout_tree.export import (
    export_graphml,
    export_inspect,
    export_messages,
    export_node_link,
    export_verifiers,
)
from coplay.rollout_tree.selection import STATUSES

Export = Callable[[Iterator[RolloutTree], Path, Path], int]
"""Episodes, the folder to write to and the run's folder, to the number of things written."""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, as the other commands do."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (coplay export --help tells more)")


def main(arguments: Sequence[str]) -> int:
    """Write a run's rollouts in another form, and say where."""
    parser = _Parser(prog="coplay export", description=__doc__)
    parser.add_argument("run", metavar="RUN", help="run folder, or its name in runs/")
    parser.add_argument("--to", required=True, choices=sorted(FORMATS), help="which form")
    parser.add_argument("--iteration", type=int, default=None, help="only this one (default: all)")
    parser.add_argument("--out", type=Path, default=None, help="folder to write to (default: RUN/exports)")
    parser.add_argument("--group", action="append", default=None, help="only this group; may be repeated")
    parser.add_argument(
        "--status", action="append", default=None, choices=STATUSES, help="only this outcome; may be repeated"
    )
    asked = parser.parse_args(arguments)
    run = find_run(asked.run)
    trees = read_rollouts(run, asked.iteration, groups=asked.group, status=asked.status)
    name, what, export = FORMATS[asked.to]
    place = (asked.out or run / "exports") / name
    written = export(trees, place, run)
    sys.stdout.write(f"{written} {what}: {place}\n")
    return 0


def _trained(run: Path) -> list[str]:
    """Names of the policies that the run trains."""
    policies: dict[str, dict[str, Any]] = read_config(run)["agents"]["policies"]
    return [name for name, settings in policies.items() if settings.get("trained", True)]


FORMATS: dict[str, tuple[str, str, Export]] = {
    "messages": ("messages.jsonl", "conversations", lambda trees, place, run: export_messages(trees, place)),
    "graphml": ("graphml", "graphs", lambda trees, place, run: export_graphml(trees, place)),
    "node-link": ("node_link.jsonl", "graphs", lambda trees, place, run: export_node_link(trees, place)),
    "inspect": (
        "inspect.json",
        "samples",
        lambda trees, place, run: export_inspect(trees, place, name=run.name),
    ),
    "verifiers": (
        "traces.jsonl",
        "episodes",
        lambda trees, place, run: export_verifiers(trees, place, trained=_trained(run)),
    ),
}
"""Form -> its file or folder, what it counts, and how it is written."""
