"""An episode in the form of `verifiers` v1: one trace a player, a graph of messages that each add their tokens."""

from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import takewhile
from math import fsum
from typing import Any

from coplay.agents.base import Segment
from coplay.rollout_tree.conversations import beyond, leaf_paths
from coplay.rollout_tree.json_text import shield
from coplay.rollout_tree.paths import steps_by_id
from coplay.rollout_tree.records import RolloutTree, Step, Turn
from coplay.rollout_tree.tool_use import exchanges

TRACE_VERSION = 1
_FINISH = {"stop": "stop", "grammar": "stop", "length": "length"}


def to_verifiers(tree: RolloutTree, trained: Collection[str] | None = None) -> dict[str, Any]:
    """Make the record that `verifiers.v1.WireEpisode.model_validate` reads.

    Each leaf of a trace gives, along its path, the exact ids, masks and log-probs of that player's row there;
    turns that branches share are one node. A context that starts anew starts a new root. Of several messages
    that one run of tokens encodes, the last one carries the ids. What was not answered before a truncation is
    the last node of its path.

    Args:
        tree: what was played.
        trained: names of the trained policies, without versions; None: every policy that samples tokens.

    Raises:
        ValueError: if the links are no tree; the message names the step.
    """
    failure = tree.failure
    data = {
        "id": tree.episode,
        "name": tree.game,
        "iteration": tree.iteration,
        "group_seed": tree.group_seed,
        "seats": dict(tree.seats),
    }
    task = {"type": "coplay", "data": data, "key": tree.episode}
    return {
        "id": tree.episode,
        "env": {"id": f"coplay/{tree.game}"},
        "task": task,
        "group": {"id": tree.group},
        "ok": tree.status in ("terminated", "truncated"),
        "errors": [] if failure is None else [_error(failure.reason)],
        "traces": [_trace(tree, player, task, trained) for player in tree.players],
    }


def _error(reason: str) -> dict[str, str]:
    kind, _, message = reason.partition(": ")
    return {"type": kind, "message": message}


def _trace(
    tree: RolloutTree, player: str, task: dict[str, Any], trained: Collection[str] | None
) -> dict[str, Any]:
    graph = _Graph()
    heads: dict[int | None, int | None] = {None: None}
    for number, step in sorted(steps_by_id(tree).items()):
        head = heads[step.parent]
        for turn in step.turns:
            if turn.player == player:
                head = graph.add(turn, head)
        for turn in beyond(step):
            if turn.player == player:
                graph.hear(turn, head)
        heads[number] = head
    policy = tree.seats[player]
    samples = any(node["sampled"] for node in graph.nodes)
    totals = {path[-1].branch: _total(path, player) for path in leaf_paths(tree)}
    main = None if tree.failure is not None else totals.get("")
    return {
        "version": TRACE_VERSION,
        "id": f"{tree.episode}/{player}",
        "task": task,
        "agent": {
            "config": {"model": policy},
            "name": player,
            "trainable": samples and (trained is None or policy.split("@")[0] in trained),
        },
        "nodes": graph.nodes,
        "calls": graph.calls,
        "rewards": {"return": None if main is None else {"score": main}},
        "info": {"returns": {branch: total for branch, total in totals.items() if branch}},
        "is_completed": tree.failure is None,
        "ok": tree.status in ("terminated", "truncated"),
        "stop_condition": tree.status,
        "errors": [],
    }


def _total(path: tuple[Step, ...], player: str) -> float | None:
    return None if path[-1].status == "failed" else fsum(step.rewards[player] for step in path)


@dataclass(slots=True)
class _Graph:
    """The messages of one player while they are laid out."""

    nodes: list[dict[str, Any]] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    _known: dict[Any, int] = field(default_factory=dict)
    """(parent, message, tokens) -> node, so that what branches share stands once."""
    _lengths: dict[int | None, int] = field(default_factory=lambda: {None: 0})
    """Tokens of a path up to and with a node."""

    def add(self, turn: Turn, head: int | None) -> int:
        """Add what a turn heard and said after node `head`; give the node of the reply."""
        head = self.hear(turn, head)
        *calls, reply = exchanges(turn)
        for part in calls:
            head = self._node(head, "user" if part.role == "tool" else "assistant", part.text, part.segments)
        before, known = self._lengths[head], len(self.nodes)
        node = self._node(head, "assistant", reply.text, reply.segments)
        if node == known and self.nodes[node]["sampled"]:
            self.calls.append(_call(turn, node, before, self._lengths[node] - before))
        return node

    def hear(self, turn: Turn, head: int | None) -> int:
        """Add only what a turn heard; give the node of the observation."""
        seen = turn.observation
        if turn.fresh_context:
            head = None
        if head is None and seen.system:
            head = self._node(head, "system", seen.system, ())
        context = tuple(takewhile(lambda segment: not segment.sampled, turn.segments))
        return self._node(head, "user", seen.text, context)

    def _node(self, parent: int | None, role: str, content: str, segments: tuple[Segment, ...]) -> int:
        key = (parent, role, content, segments)
        if key not in self._known:
            self._known[key] = len(self.nodes)
            self.nodes.append(
                {
                    "parent": parent,
                    "message": {"role": role, "content": shield(content)},
                    "sampled": any(s.sampled for s in segments),
                    "timestamp": 0.0,  # not recorded
                    "token_ids": [token for s in segments for token in s.ids],
                    "mask": [s.sampled for s in segments for _ in s.ids],
                    "logprobs": [number for s in segments for number in s.log_probs],
                }
            )
            added = sum(len(s.ids) for s in segments)
            self._lengths[self._known[key]] = self._lengths[parent] + added
        return self._known[key]


def _call(turn: Turn, node: int, prompt_tokens: int, completion_tokens: int) -> dict[str, Any]:
    drawn = turn.sampling
    return {
        "node": node,
        "model": turn.policy,
        "sampling": None
        if drawn is None
        else {"temperature": drawn.temperature, "max_tokens": drawn.max_new_tokens},
        "finish_reason": _FINISH.get(turn.finish),
        "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens},
    }
