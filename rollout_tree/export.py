"""Rollouts as files for other programs: chats, graphs, episodes of `verifiers`, logs of Inspect AI.

Each is written aside and renamed.
"""

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from coplay.rollout_tree.conversations import tree_conversations
from coplay.rollout_tree.episode_json import to_verifiers
from coplay.rollout_tree.graph import to_graphml, to_node_link
from coplay.rollout_tree.inspect_log import inspect_log
from coplay.rollout_tree.json_text import shield
from coplay.rollout_tree.records import RolloutTree


def export_messages(trees: Iterable[RolloutTree], path: str | os.PathLike[str]) -> int:
    """Write one JSON object a line for each conversation: `messages`, and whose and which it is.

    Texts that UTF-8 cannot hold are escaped as on disk (`json_text.shield`).

    Returns:
        How many lines were written.
    """
    return _lines(path, (_conversation(tree) for tree in trees))


def _conversation(tree: RolloutTree) -> list[dict[str, Any]]:
    return [
        {
            "messages": [{"role": m.role, "content": shield(m.content)} for m in found.messages],
            "iteration": found.iteration,
            "episode": shield(found.episode),
            "branch": shield(found.branch),
            "part": found.part,
            "player": shield(found.player),
            "policy": shield(found.policy),
            "group": shield(found.group),
            "status": found.status,
            "return": found.total,
        }
        for found in tree_conversations(tree)
    ]


def export_node_link(trees: Iterable[RolloutTree], path: str | os.PathLike[str]) -> int:
    """Write one JSON object a line for each episode, for `networkx.node_link_graph(data, edges="edges")`.

    Returns:
        How many lines were written.
    """
    return _lines(path, ([to_node_link(tree)] for tree in trees))


def export_verifiers(
    trees: Iterable[RolloutTree], path: str | os.PathLike[str], *, trained: Collection[str] | None = None
) -> int:
    """Write one JSON object a line for each episode, for `verifiers.v1.WireEpisode.model_validate`.

    Args:
        trees: what was played.
        path: the file; their tools look for `traces.jsonl`.
        trained: names of the trained policies; None: every policy that samples tokens.

    Returns:
        How many lines were written.
    """
    return _lines(path, ([to_verifiers(tree, trained)] for tree in trees))


def export_inspect(
    trees: Iterable[RolloutTree], path: str | os.PathLike[str], *, name: str = "coplay"
) -> int:
    """Write a log for `inspect view` and `inspect_ai.log.read_eval_log`.

    Returns:
        How many samples were written: one for each conversation.
    """
    pieces = 0
    with _whole(Path(path)) as file:
        for piece in inspect_log(trees, name):
            file.write(piece)
            pieces += 1
    return pieces - 2  # its head and its end


def export_graphml(trees: Iterable[RolloutTree], folder: str | os.PathLike[str]) -> int:
    """Write one GraphML file for each episode, named after it.

    Returns:
        How many files were written.

    Raises:
        ValueError: if the names of two episodes differ only in characters that file names cannot have.
    """
    names: dict[str, str] = {}
    for tree in trees:
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", tree.episode).lstrip(".-") or "episode"
        if name in names:
            raise ValueError(
                f"episodes {names[name]!r} and {tree.episode!r} would both be {name!r}.graphml; expected names that"
                " differ in letters or digits"
            )
        names[name] = tree.episode
        path = Path(folder) / f"{name}.graphml"
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".{path.name}.tmp")
        to_graphml(tree, aside)
        os.replace(aside, path)
    return len(names)


def _lines(path: str | os.PathLike[str], batches: Iterable[Iterable[Mapping[str, Any]]]) -> int:
    written = 0
    with _whole(Path(path)) as file:
        for batch in batches:
            for entry in batch:
                file.write(json.dumps(entry, allow_nan=False) + "\n")
                written += 1
    return written


@contextmanager
def _whole(path: Path) -> Iterator[TextIO]:
    """A text file that is there only once it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.tmp")
    try:
        with aside.open("w", encoding="utf-8", newline="\n") as file:
            yield file
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
