"""Rollouts as chats: what one player heard and said along one path, in the `messages` convention."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import fsum
from typing import TYPE_CHECKING

from coplay.rollout_tree.columns import words
from coplay.rollout_tree.json_text import shield
from coplay.rollout_tree.paths import steps_by_id
from coplay.rollout_tree.records import SCHEMA_VERSION, RolloutTree, Step, Turn
from coplay.rollout_tree.schema import VERSION_KEY
from coplay.rollout_tree.storage import part_path, parts, read_rollouts, write_part
from coplay.rollout_tree.tool_use import exchanges

if TYPE_CHECKING:
    import pyarrow as pa

_ROLES = {"assistant": "assistant", "tool": "user"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a chat."""

    role: str
    """`system` (the rules), `user` (an observation, or what a tool told) or `assistant` (a reply, malformed ones
    included, or a call of a tool): as the player's context has them."""
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """What one player heard and said along one path of a tree; a truncated one ends with what he did not answer.

    Exact token ids, and contexts that a full window cut, are in the turns; this is the dialogue as it was meant.
    """

    iteration: int
    episode: str
    branch: str
    """Of the path's last step; empty for the main line."""
    part: int
    """0, 1, ...: where the game asks its players to forget what was said, the next part starts."""
    player: str
    policy: str
    group: str
    status: str
    """`failed`, or how the path ends."""
    total: float | None
    """The player's raw return along the whole path (column `return`); None where it failed."""
    messages: tuple[Message, ...]


def tree_conversations(tree: RolloutTree) -> Iterator[Conversation]:
    """One conversation for each path from first to last step, player and part; none of whom nothing was asked.

    Raises:
        ValueError: if the links are no tree; the message names the step.
    """
    for path in leaf_paths(tree):
        status = "failed" if tree.failure is not None else path[-1].status
        for player, policy in tree.seats.items():
            total = None if status == "failed" else fsum(step.rewards[player] for step in path)
            for part, messages in enumerate(_parts(path, player)):
                yield Conversation(
                    iteration=tree.iteration,
                    episode=tree.episode,
                    branch=path[-1].branch,
                    part=part,
                    player=player,
                    policy=policy,
                    group=tree.group,
                    status=status,
                    total=total,
                    messages=tuple(messages),
                )


def leaf_paths(tree: RolloutTree) -> Iterator[tuple[Step, ...]]:
    """Every way through a tree from a first step to one without children, by parent links, main line first.

    Raises:
        ValueError: if the links are no tree; the message names the step.
    """
    steps = steps_by_id(tree)
    inner = {step.parent for step in tree.steps}
    leaves = [step for step in tree.steps if step.id not in inner]
    for leaf in sorted(leaves, key=lambda step: (step.branch != "", step.id)):
        path, current = [leaf], leaf.parent
        while current is not None:
            path.append(steps[current])
            current = path[-1].parent
        yield tuple(reversed(path))


def beyond(last: Step) -> tuple[Turn, ...]:
    """What the players saw after a path's last step and did not answer: something only where it was truncated."""
    return last.closing if last.status == "truncated" else ()


def _parts(path: Sequence[Step], player: str) -> list[list[Message]]:
    found: list[list[Message]] = []
    answered = [turn for step in path for turn in step.turns if turn.player == player]
    unanswered = [turn for turn in beyond(path[-1]) if turn.player == player]
    for place, turn in enumerate((*answered, *unanswered)):
        seen = turn.observation
        if seen.fresh_context or not found:
            found.append([Message(role="system", content=seen.system)] if seen.system else [])
        found[-1].append(Message(role="user", content=seen.text))
        if place < len(answered):
            found[-1] += [Message(role=_ROLES[part.role], content=part.text) for part in exchanges(turn)]
    return found


def conversations(
    run_dir: str | os.PathLike[str], iteration: int | None = None, **asked: Iterable[str] | None
) -> Iterator[Conversation]:
    """Read stored episodes as chats; further keywords choose among them, as in `read_rollouts`.

    Raises:
        FileNotFoundError: at once, if nothing is stored there.
        ValueError: if a group, player or status is unknown.
    """
    trees = read_rollouts(run_dir, iteration, **asked)  # type: ignore[arg-type]
    return (found for tree in trees for found in tree_conversations(tree))


@cache
def conversations_schema() -> "pa.Schema":
    """The fixed schema of the view `conversations`; a message has exactly two fields, as chat tools expect."""
    import pyarrow as pa

    word = pa.dictionary(pa.int32(), pa.string())
    message = pa.struct([pa.field("role", pa.string()), pa.field("content", pa.string())])
    fields = dict.fromkeys(("episode", "branch", "player", "policy", "group", "status"), word)
    return pa.schema(
        [
            *(pa.field(name, kind, nullable=False) for name, kind in fields.items()),
            pa.field("part", pa.int32(), nullable=False),
            pa.field("return", pa.float64()),
            pa.field("messages", pa.list_(message), nullable=False),
        ],
        metadata={VERSION_KEY: str(SCHEMA_VERSION).encode()},
    )


def conversations_table(rows: Sequence[Conversation]) -> "pa.Table":
    """Conversations as Arrow, without their iteration, which is the name of the folder."""
    import pyarrow as pa

    schema = conversations_schema()
    columns: Mapping[str, pa.Array] = {
        **{
            name: words(getattr(row, name) for row in rows)
            for name in ("episode", "branch", "player", "policy", "group", "status")
        },
        "part": pa.array([row.part for row in rows], pa.int32()),
        "return": pa.array([row.total for row in rows], pa.float64()),
        "messages": pa.array(
            [[{"role": m.role, "content": shield(m.content)} for m in row.messages] for row in rows],
            schema.field("messages").type,
        ),
    }
    return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)


def write_conversations(run_dir: str | os.PathLike[str], iteration: int | None = None) -> int:
    """Write the view `conversations` beside the tables it is made from; give the number of conversations.

    Raises:
        FileNotFoundError: if nothing is stored there.
    """
    stored = sorted({number for number, _ in parts(run_dir, "episodes", iteration)})
    num_rows = 0
    for number in stored:
        rows = list(conversations(run_dir, number))
        write_part(part_path(run_dir, "conversations", number), conversations_table(rows))
        num_rows += len(rows)
    return num_rows
