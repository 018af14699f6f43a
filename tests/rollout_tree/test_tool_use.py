"""Tool calls in records: stored and read back, shown, exported, counted, played again in branches."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from coplay.agents.base import Reply, Segment, ToolCall, ToolResult
from coplay.agents.named import named_agent
from coplay.agents.retrievers import read_corpus
from coplay.agents.tools import ToolDesk
from coplay.games import make_game
from coplay.rollout_tree import (
    CollectPlan,
    RolloutTree,
    collect_sync,
    plan_episodes,
    read_rollouts,
    summary,
    write_rollouts,
)
from coplay.rollout_tree.checks import check_reply
from coplay.rollout_tree.conversations import tree_conversations
from coplay.rollout_tree.episode_json import to_verifiers
from coplay.rollout_tree.page_data import Tables, episode_data
from coplay.rollout_tree.records import Turn
from coplay.rollout_tree.render import render_text
from coplay.rollout_tree.statistics import line_of
from coplay.rollout_tree.storage import part_path, read_part
from coplay.rollout_tree.tool_use import exchanges, tool_use


class Lookup:
    """Finds the passage that begins with the query."""

    blocks = False
    data = None

    def run(self, calls: Sequence[Mapping[str, Any]]) -> list[ToolResult]:
        passages = read_corpus("search_qa_terse")
        return [
            ToolResult(next((p for p in passages if p.startswith(f"{call['query']} ")), "nothing"))
            for call in calls
        ]


def searched(agent: str = "searcher", *, num_groups: int = 4) -> list[RolloutTree]:
    game = make_game("search_qa", wording="terse")
    seats = {"Ada": named_agent(agent, tools=ToolDesk({"book": Lookup()}))}
    plans = plan_episodes(
        game,
        run_seed=1,
        iteration=0,
        num_groups=num_groups,
        group_size=1,
        seats=seats,
        seat_names={"Ada": agent},
    )
    return collect_sync(CollectPlan(game=game, episodes=plans))


def with_tokens(tree: RolloutTree) -> RolloutTree:
    """The same with token ids: the question 1 1, the call 2 (sampled) 3, its result 4 4 4, the reply 5 (sampled)."""
    (step,) = tree.steps
    (turn,) = step.turns
    segments = (
        Segment((1, 1)),
        Segment((2,), True, (-0.5,)),
        Segment((3,)),
        Segment((4, 4, 4)),
        Segment((5,), True, (-0.25,)),
    )
    calls = tuple(replace(call, place=3) for call in turn.calls)
    turn = replace(turn, segments=segments, calls=calls, fresh_context=True, tokenizer="t")
    return replace(tree, steps=(replace(step, turns=(turn,)),))


def test_scripted_agents_when_they_search_then_right_as_often_as_worked_out() -> None:
    share = {
        name: summary(searched(name, num_groups=400))["return/Ada"]
        for name in ("searcher", "guesser", "clumsy_searcher")
    }
    assert share["searcher"] == 1.0
    assert abs(share["guesser"] - 0.1) < 0.045  # 3 standard errors of 400 draws
    assert abs(share["clumsy_searcher"] - (1 / 8 + 7 / 8 * 0.1)) < 0.062


def test_calls_when_stored_then_read_back_as_they_were(tmp_path: Path) -> None:
    trees = [with_tokens(tree) for tree in searched()]
    write_rollouts(tmp_path, 0, trees)
    back = list(read_rollouts(tmp_path, 0))
    assert back == trees and back[0].steps[0].turns[0].calls[0].outcome == "ok"
    assert back[0].steps[0].turns[0].observation.tools is back[1].steps[0].turns[0].observation.tools


def test_turns_when_stored_before_there_were_tools_then_still_read(tmp_path: Path) -> None:
    trees = searched("guesser")
    write_rollouts(tmp_path, 0, trees)
    path = part_path(tmp_path, "turns", 0)
    table = read_part(path)
    pq.write_table(table.drop_columns(["tools_json", "calls_json"]), path)
    (turn,) = next(iter(read_rollouts(tmp_path, 0))).steps[0].turns
    assert turn.calls == () and turn.observation.tools is None


def test_parts_of_a_turn_when_taken_apart_then_each_has_its_tokens() -> None:
    (turn,) = with_tokens(searched()[0]).steps[0].turns
    call, told, reply = exchanges(turn)
    assert [(part.role, [s.ids for s in part.segments]) for part in (call, told, reply)] == [
        ("assistant", [(2,), (3,)]),
        ("tool", [(4, 4, 4)]),
        ("assistant", [(5,)]),
    ]
    assert call.text.startswith("book ") and told.text == turn.calls[0].result and reply.text == turn.reply
    lost = replace(turn.calls[0], outcome="too_long", place=None)
    cut = replace(turn, reply=call.text, calls=(lost,), segments=turn.segments[:3])
    assert [(part.role, part.text) for part in exchanges(cut)] == [("assistant", call.text)]


def test_use_when_counted_then_calls_outcomes_valid_share_and_tokens() -> None:
    tree = with_tokens(searched()[0])
    numbers = tool_use(line_of(tree))
    assert numbers["tool_calls/Ada"] == numbers["tool_calls/Ada/ok"] == numbers["tool_calls_valid/Ada"] == 1.0
    assert numbers["tool_calls/Ada/over_budget"] == 0.0 and numbers["tool_tokens/Ada"] == 3.0
    assert numbers["sampled_share/Ada"] == 2 / 6
    (turn,) = tree.steps[0].turns
    calls = tuple(
        replace(turn.calls[0], outcome=o, place=None) for o in ("ok", "malformed", "unknown", "over_budget")
    )
    bare = replace(turn, calls=calls, segments=())
    found = tool_use(line_of(replace(tree, steps=(replace(tree.steps[0], turns=(bare,)),))))
    assert found["tool_calls/Ada"] == 4.0 and found["tool_calls_valid/Ada"] == 0.25
    assert found["tool_calls/Ada/malformed"] == 1.0 and "tool_tokens/Ada" not in found
    guessed = tool_use(line_of(searched("guesser")[0]))
    assert guessed["tool_calls/Ada"] == 0.0 and "tool_calls_valid/Ada" not in guessed


def test_metrics_when_a_game_offers_no_tools_then_none_of_tools() -> None:
    game = make_game("iterated_matrix", num_rounds=2)
    seats = dict.fromkeys(game.spec.players, named_agent("random"))
    plans = plan_episodes(
        game, run_seed=1, iteration=0, num_groups=1, group_size=1, seats=seats,
        seat_names=dict.fromkeys(seats, "random"),
    )  # fmt: skip
    assert not [key for key in summary(collect_sync(CollectPlan(game=game, episodes=plans))) if "tool" in key]


def test_chat_when_exported_then_results_are_what_the_user_says_as_in_the_context() -> None:
    (chat,) = tree_conversations(searched()[0])
    assert [message.role for message in chat.messages] == ["system", "user", "assistant", "user", "assistant"]
    (turn,) = searched()[0].steps[0].turns
    assert [m.content for m in chat.messages[2:]] == [turn.calls[0].text, turn.calls[0].result, turn.reply]


def test_trace_when_exported_then_masks_and_ids_are_those_of_the_row() -> None:
    tree = with_tokens(searched()[0])
    (trace,) = to_verifiers(tree)["traces"]
    nodes = trace["nodes"]
    assert [node["message"]["role"] for node in nodes] == ["system", "user", "assistant", "user", "assistant"]
    assert [token for node in nodes for token in node["token_ids"]] == [1, 1, 2, 3, 4, 4, 4, 5]
    assert [mark for node in nodes for mark in node["mask"]] == [False, False, True, *[False] * 4, True]
    assert [number for node in nodes for number in node["logprobs"]] == [-0.5, -0.25]


def test_page_when_a_turn_has_calls_then_it_shows_them() -> None:
    tree = with_tokens(searched()[0])
    tables = Tables(pieces={})
    data = episode_data(tree, [], tables)
    ((text, result, outcome, place),) = data["steps"][0]["turns"][0]["calls"]
    (turn,) = tree.steps[0].turns
    assert (tables.texts.values[text], tables.texts.values[result]) == (
        turn.calls[0].text,
        turn.calls[0].result,
    )
    assert (outcome, place) == ("ok", 3)
    assert "calls" not in episode_data(searched("guesser")[0], [], Tables(pieces={}))["steps"][0]["turns"][0]


def test_transcript_when_rendered_then_calls_results_and_faults_in_order() -> None:
    tree = searched()[0]
    (turn,) = tree.steps[0].turns
    lines = render_text(tree).split("\n")
    places = [lines.index(line) for line in (
        f"    ? {turn.calls[0].text}", f"    < {turn.calls[0].result}", f"    > {turn.reply}")]  # fmt: skip
    assert places == sorted(places)
    bad = replace(turn, calls=(replace(turn.calls[0], outcome="timeout", result="late\x1b[2J"),))
    shown = render_text(replace(tree, steps=(replace(tree.steps[0], turns=(bad,)),)))
    assert "! call: timeout" in shown and "\x1b" not in shown


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"outcome": "great"}, TypeError),
        ({"arguments": {"x": object()}}, TypeError),
        ({"place": 0}, ValueError),
        ({"place": 7}, ValueError),
        ({"place": 1}, ValueError),
    ],
)
def test_reply_when_its_calls_could_not_be_kept_then_refused(
    change: dict[str, Any], error: type[Exception]
) -> None:
    call = ToolCall(text="x", tool="s", arguments={}, result="y", outcome="ok")
    segments = (Segment((1,)), Segment((2,), True, (-1.0,)), Segment((3,)), Segment((4,), True, (-1.0,)))
    reply = Reply(text="z", policy="p@0", segments=segments, calls=(replace(call, place=2),))
    check_reply(reply, "p@0")
    with pytest.raises(error):
        check_reply(replace(reply, calls=(replace(call, **change),)), "p@0")


def test_turn_without_calls_when_made_then_has_none() -> None:
    (turn,) = searched("guesser")[0].steps[0].turns
    assert isinstance(turn, Turn) and turn.calls == () and turn.observation.tools is not None
    assert asyncio.iscoroutinefunction(ToolDesk.run)
