"""One self-contained page about a run: `report.html`, without a server and without a request to anywhere.

Rollout text is untrusted: it is data in a JSON script tag, shown by `textContent` alone, under a content policy
that lets only the page's own scripts run (law 10).
"""

import base64
import hashlib
import os
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from coplay.agents.runs import read_object
from coplay.rollout_tree.credits import CreditRow, read_credits
from coplay.rollout_tree.curves import evaluations, learning_curves, payoffs
from coplay.rollout_tree.page_data import Tables, by_episode, episode_data
from coplay.rollout_tree.pieces import find_pieces
from coplay.rollout_tree.records import RolloutTree
from coplay.rollout_tree.storage import parts, read_rollouts

SHOWN_GAMES = 3
"""Games of a mixture that the heading names."""
MAX_TURNS = 20_000
"""Turns of a page for which no iterations are asked: about 10 MB at 20 tokens a reply."""
SCRIPTS = (
    "model.js",
    "tree.js",
    "episodes.js",
    "dialogue.js",
    "compare.js",
    "payoffs.js",
    "charts.js",
    "view.js",
)
"""In the order in which the page runs them, after the vendored ones."""


def write_report(
    run_dir: str | os.PathLike[str],
    path: str | os.PathLike[str] | None = None,
    iterations: Sequence[int] | None = None,
) -> Path:
    """Write the page of a run and return its path.

    Args:
        run_dir: the folder of a run, finished or not; what it does not hold is left out.
        path: where the page goes; None: `report.html` in the run's folder.
        iterations: stored iterations to show in full; None: as many as fit, evenly spread, the last one among them.

    Raises:
        FileNotFoundError: if there is no such folder, or an iteration asked for is not stored.
        ValueError: if a file of the run is damaged.
    """
    if not Path(run_dir).is_dir():
        raise FileNotFoundError(f"{str(run_dir)!r} is no folder; expected that of a run")
    target = Path(run_dir) / "report.html" if path is None else Path(path)
    page = render_page(page_data(run_dir, iterations))
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f".{target.name}.partial")
    aside.write_text(page, encoding="utf-8")
    os.replace(aside, target)
    return target


def page_data(run_dir: str | os.PathLike[str], iterations: Sequence[int] | None = None) -> dict[str, Any]:
    """Everything the page shows, as one JSON value.

    Raises:
        FileNotFoundError: if an iteration asked for is not stored.
        ValueError: if a file of the run is damaged.
    """
    folder = Path(run_dir)
    stored = _stored_turns(folder)
    shown = _spread(stored) if iterations is None else sorted(set(iterations))
    trees: list[RolloutTree] = []
    credits: list[CreditRow] = []
    for iteration in shown:
        found = list(read_rollouts(folder, iteration))
        trees += found if iterations is not None else _whole_groups(found)
        credits += _credits(folder, iteration)
    digests = {turn.tokenizer for tree in trees for step in tree.steps for turn in step.turns}
    tables = Tables(pieces=find_pieces(folder, digests))
    rows = by_episode(credits)
    episodes = [episode_data(tree, rows.get(tree.episode, []), tables) for tree in trees]
    return {
        "run": {
            "name": folder.resolve().name,
            "game": _games(trees),
            "config": read_object(folder / "config.json") if (folder / "config.json").is_file() else None,
            "stored": list(stored),
            "shown": list(shown),
            "num_played": _num_episodes(folder, shown),
        },
        "episodes": episodes,
        **tables.content(),
        "curves": learning_curves(folder / "metrics.jsonl"),
        "evaluations": evaluations(folder / "evaluations.json"),
        "payoffs": payoffs(folder / "payoffs.json"),
    }


def _games(trees: Sequence[RolloutTree]) -> str:
    """What is shown was a play of: one game, or the first ones of a mixture and how many more."""
    names = list(dict.fromkeys([tree.game for tree in trees]))
    more = f" and {len(names) - SHOWN_GAMES} more" if len(names) > SHOWN_GAMES else ""
    return ", ".join(names[:SHOWN_GAMES]) + more


def render_page(data: dict[str, Any]) -> str:
    """The page as HTML text."""
    from jinja2 import Environment

    page = resources.files("coplay.rollout_tree") / "page"

    def text(*names: str) -> str:
        return "\n".join((page / name).read_text(encoding="utf-8") for name in names)

    script = f'"use strict";\n{text("vendor/uPlot.js", *SCRIPTS)}'
    style = text("vendor/uPlot.css", "style.css")
    environment = Environment(autoescape=True)
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return environment.from_string(text("template.html.j2")).render(
        data=data,
        script=script,
        style=style,
        script_hash=_digest(script),
        style_hash=_digest(style),
        licence=text("vendor/uPlot.LICENSE"),
    )


def _digest(text: str) -> str:
    """A text's hash, as a content policy names it."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _stored_turns(folder: Path) -> dict[int, int]:
    """Number of turns of every stored iteration; none if nothing is stored."""
    import pyarrow.parquet as pq

    counts: dict[int, int] = {}
    for iteration, path in _parts(folder):
        turns = path.parents[2] / "turns" / path.parent.name / path.name
        num_rows = pq.read_metadata(turns).num_rows if turns.is_file() else 0
        counts[iteration] = counts.get(iteration, 0) + num_rows
    return counts


def _parts(folder: Path) -> list[tuple[int, Path]]:
    return parts(folder, "episodes") if any((folder / "rollouts" / "episodes").glob("iteration=*")) else []


def _num_episodes(folder: Path, iterations: Sequence[int]) -> int:
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(path).num_rows for number, path in _parts(folder) if number in iterations)


def _spread(turns: dict[int, int]) -> list[int]:
    """As many iterations, evenly spread, as have at most MAX_TURNS turns together; the last one in any case."""
    stored = sorted(turns)
    for number in range(len(stored), 1, -1):
        places = [round(place * (len(stored) - 1) / (number - 1)) for place in range(number)]
        chosen = [stored[place] for place in places]
        if sum(turns[iteration] for iteration in chosen) <= MAX_TURNS:
            return chosen
    return stored[-1:]


def _whole_groups(trees: Sequence[RolloutTree]) -> Iterator[RolloutTree]:
    """The groups of an iteration, first to last, until MAX_TURNS is reached; the first one in any case."""
    sizes: dict[str, int] = {}
    for tree in trees:
        num_turns = sum(len(step.turns) for step in tree.steps)
        sizes[tree.group] = sizes.get(tree.group, 0) + num_turns
    kept: set[str] = set()
    total = 0
    for group, size in sizes.items():
        total += size
        if kept and total > MAX_TURNS:
            break
        kept.add(group)
    return (tree for tree in trees if tree.group in kept)


def _credits(folder: Path, iteration: int) -> list[CreditRow]:
    """The stored credits of an iteration; none where the run keeps none."""
    place = folder / "rollouts" / "credits" / f"iteration={iteration:06d}"
    return list(read_credits(folder, iteration)) if any(place.glob("*.parquet")) else []
