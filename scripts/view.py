"""`coplay view RUN [--iteration N ...] [--out FILE]`, or `--text [--episode ID ...] [--branch NAME]`."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from coplay.agents.runs import find_run
from coplay.rollout_tree import RolloutTree, read_rollouts, render_text, render_tree, write_report
from coplay.rollout_tree.plan import episode_name, parse_episode
from coplay.rollout_tree.storage import parts


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, as the other commands do."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (coplay view --help tells more)")


def main(arguments: Sequence[str]) -> int:
    """Write a run's page and say where, or print games as text."""
    parser = _Parser(prog="coplay view", description=__doc__)
    parser.add_argument("run", metavar="RUN", help="run folder, or its name in runs/")
    parser.add_argument(
        "--iteration", type=int, nargs="+", default=None, help="stored iterations (default: as many as fit)"
    )
    parser.add_argument("--out", type=Path, default=None, help="the page's file (default: RUN/report.html)")
    parser.add_argument(
        "--text", action="store_true", help="print tree and dialogue instead of writing a page"
    )
    parser.add_argument(
        "--episode",
        nargs="+",
        default=None,
        help="with --text: these, as 50/12 (default: the newest iteration's first)",
    )
    parser.add_argument("--branch", default="", help="with --text: the dialogue of this branch")
    asked = parser.parse_args(arguments)
    folder = _folder(asked.run)
    if asked.text:
        for text in _texts(folder, asked.iteration, asked.episode, asked.branch):
            sys.stdout.write(text)
        return 0
    if asked.episode or asked.branch:
        parser.error("--episode and --branch go with --text; the page shows all")
    sys.stdout.write(f"{write_report(folder, asked.out, asked.iteration)}\n")
    return 0


def _folder(run: str) -> Path:
    """A run, or any folder that rollouts were written to."""
    return Path(run) if (Path(run) / "rollouts").is_dir() else find_run(run)


def _texts(
    folder: Path, iterations: Sequence[int] | None, episodes: Sequence[str] | None, branch: str
) -> Iterator[str]:
    stored = sorted({iteration for iteration, _ in parts(folder, "episodes")})
    if episodes is None:
        for iteration in iterations or stored[-1:]:
            trees = list(read_rollouts(folder, iteration))
            yield from _text(trees[0], branch)
            if len(trees) > 1:
                yield f"\n{len(trees)} episodes in iteration {iteration}; --episode shows another of them\n"
        return
    short = {name: parse_episode(name) for name in episodes}
    missing = dict.fromkeys(name if found is None else episode_name(*found) for name, found in short.items())
    for iteration in iterations or stored:
        for tree in read_rollouts(folder, iteration):
            if tree.episode in missing:
                del missing[tree.episode]
                yield from _text(tree, branch)
        if not missing:
            return
    raise ValueError(f"no episode {next(iter(missing))!r} in {str(folder)!r}; expected one as '50/12'")


def _text(tree: RolloutTree, branch: str) -> Iterator[str]:
    if any(step.branch for step in tree.steps):
        yield render_tree(tree) + "\n"
    yield render_text(tree, branch)
