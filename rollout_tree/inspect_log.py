"""Rollouts as a log of Inspect AI, for its viewer: one sample for each conversation, scored by its return."""

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from coplay.rollout_tree.conversations import Conversation, tree_conversations
from coplay.rollout_tree.json_text import shield
from coplay.rollout_tree.records import RolloutTree

LOG_VERSION = 2


def inspect_log(trees: Iterable[RolloutTree], name: str) -> Iterator[str]:
    """The pieces of one JSON object that `inspect_ai.log.read_eval_log` reads, sample by sample.

    Args:
        trees: what was played; held one at a time.
        name: of the run.
    """
    spec = {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "task": shield(name),
        "dataset": {"name": "rollouts"},
        "model": "coplay",
        "config": {},
    }
    head = json.dumps({"version": LOG_VERSION, "status": "success", "eval": spec})
    yield head[:-1] + ', "samples": ['
    between = "\n"
    for tree in trees:
        for found in tree_conversations(tree):
            yield between + json.dumps(_sample(found), allow_nan=False)
            between = ",\n"
    yield "\n]}\n"


def _sample(found: Conversation) -> dict[str, Any]:
    messages: list[dict[str, str]] = [
        {"role": message.role, "content": shield(message.content)} for message in found.messages
    ]
    replies = [message for message in messages if message["role"] == "assistant"]
    path = "/".join(
        str(word) for word in (found.episode, found.branch, found.player, found.part or "") if word
    )
    return {
        "id": shield(path),
        "epoch": 1,
        "input": next(m["content"] for m in messages if m["role"] == "user"),
        "target": "",
        "messages": messages,
        "output": {
            "model": shield(found.policy),
            "choices": [{"message": reply, "stop_reason": "stop"} for reply in replies[-1:]],
        },
        "scores": {} if found.total is None else {"return": {"value": found.total}},
        "metadata": {
            "iteration": found.iteration,
            "group": shield(found.group),
            "player": shield(found.player),
            "policy": shield(found.policy),
            "branch": shield(found.branch),
            "status": found.status,
        },
    }
