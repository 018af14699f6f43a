"""Rollouts as chats: who heard and said what, along every path, in the convention that chat tools read."""

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rollout_fakes import YES_NO, Counting, Scripted, Tokens, play, play_one

from coplay.games import Observation, StepOutcome
from coplay.rollout_tree import (
    Message,
    RolloutTree,
    Step,
    conversations,
    tree_conversations,
    write_conversations,
    write_rollouts,
)
from coplay.rollout_tree.conversations import conversations_schema, conversations_table
from coplay.rollout_tree.json_text import unshield
from coplay.rollout_tree.storage import part_path, read_part


def forked(tree: RolloutTree) -> RolloutTree:
    """The same tree with a branch of two steps beside its last two."""
    second, third = tree.steps[1:]
    ada, bo = second.turns
    turns = (replace(ada, reply="branched"), replace(bo, trains_once_for="1"))
    branch = (
        replace(second, id=7, branch="b", turns=turns, rewards={"ada": 10.0, "bo": 20.0}),
        replace(third, id=8, parent=7, branch="b"),
    )
    return replace(tree, steps=tree.steps + branch)


def test_conversation_when_a_game_is_played_then_rules_once_and_turns_in_order() -> None:
    ada, bo = tree_conversations(play_one(Counting(length=2), Scripted))
    assert [(m.role, m.content) for m in ada.messages] == [
        ("system", "you are ada"),
        ("user", "step 0"),
        ("assistant", "yes"),
        ("user", "step 1"),
        ("assistant", "yes"),
    ]
    assert (bo.player, bo.policy, bo.status, bo.total) == ("bo", "scripted", "terminated", 2.0)


def test_conversation_when_the_tree_branches_then_one_for_each_path_main_line_first() -> None:
    tree = forked(play_one(Counting(length=3), Scripted))
    found = list(tree_conversations(replace(tree, steps=tree.steps[::-1])))
    assert [(one.branch, one.player, one.total) for one in found] == [
        ("", "ada", 3.0),
        ("", "bo", 3.0),
        ("b", "ada", 12.0),
        ("b", "bo", 22.0),
    ]
    assert [m.content for m in found[2].messages if m.role == "assistant"] == ["yes", "branched", "yes"]


def test_conversation_when_the_game_asks_to_forget_then_a_new_part_with_the_rules_again() -> None:
    def observed(state, player):
        return Observation(
            text=f"{state.step}", grammar=YES_NO, system="rules", fresh_context=state.step == 2
        )

    first, second = tree_conversations(play_one(Counting(length=3, players=("ada",), observed=observed)))
    assert [len(first.messages), first.part, second.part] == [5, 0, 1]
    assert second.messages[:2] == (Message(role="system", content="rules"), Message(role="user", content="2"))


def test_conversation_when_the_game_was_truncated_then_it_ends_with_what_was_not_answered() -> None:
    def outcome(step, actions, chance):
        return StepOutcome(rewards={"ada": 1.0, "bo": 1.0}, truncated=step == 1)

    tree = play_one(Counting(length=2, outcome=outcome))
    heard = [turn.observation.text for turn in tree.steps[-1].closing]
    assert heard == ["step 2", "step 2"]
    for one in tree_conversations(tree):
        assert [m.role for m in one.messages] == ["system", *["user", "assistant"] * 2, "user"]
        assert one.messages[-1].content == "step 2"
    fresh = replace(tree.steps[-1].closing[0].observation, fresh_context=True)
    closing = (replace(tree.steps[-1].closing[0], observation=fresh), tree.steps[-1].closing[1])
    anew = replace(tree, steps=(*tree.steps[:-1], replace(tree.steps[-1], closing=closing)))
    assert [(one.player, one.part, one.messages[-1].role) for one in tree_conversations(anew)] == [
        ("ada", 0, "assistant"),
        ("ada", 1, "user"),
        ("bo", 0, "user"),
    ]


def test_conversation_when_an_episode_or_branch_failed_then_no_return() -> None:
    tree = play_one(Counting(length=5, max_steps=2), Scripted, max_failed_share=1.0)
    assert {(one.status, one.total) for one in tree_conversations(tree)} == {("failed", None)}
    whole = forked(play_one(Counting(length=3), Scripted))
    last: Step = replace(whole.steps[-1], status="failed", rewards={}, turns=())
    broken = replace(whole, steps=(*whole.steps[:-1], last))
    assert [one.total for one in tree_conversations(broken)] == [3.0, 3.0, None, None]


def test_view_when_written_then_one_schema_and_the_rows_of_the_trees(tmp_path: Path) -> None:
    said = "half \ud83d and \0 and <script>"
    for iteration in (0, 1):
        agents = {"ada": Tokens, "bo": lambda seat: Scripted(seat, say=said)}
        write_rollouts(tmp_path, iteration, play(Counting(), agents, iteration=iteration, num_groups=2))
    assert write_conversations(tmp_path) == 8
    for iteration in (0, 1):
        path = part_path(tmp_path, "conversations", iteration)
        assert [place.name for place in path.parent.iterdir()] == ["part-0.parquet"]
        schema = pq.read_schema(path)
        assert (schema.names, schema.metadata) == (
            conversations_schema().names,
            conversations_schema().metadata,
        )
        rows = read_part(path).to_pylist()
        assert len(rows) == 4
        for row, one in zip(rows, conversations(tmp_path, iteration), strict=True):
            assert row["return"] == one.total and row["player"] == one.player
            assert [(m["role"], unshield(m["content"])) for m in row["messages"]] == [
                (m.role, m.content) for m in one.messages
            ]
    assert {type(m["content"]) for row in rows for m in row["messages"]} == {str}
    assert conversations_table([]).schema.equals(conversations_schema(), check_metadata=True)


def test_conversations_when_asked_by_player_or_group_then_only_those(tmp_path: Path) -> None:
    write_rollouts(tmp_path, 0, play(Counting(), num_groups=2))
    found = list(conversations(tmp_path, players=["bo"], groups="000000/g0001"))
    assert [(one.player, one.group) for one in found] == [("bo", "000000/g0001")]
    with pytest.raises(ValueError, match="did you mean 'ada'"):
        conversations(tmp_path, players=["adda"])
