"""Rollouts in other programs' forms, read back by those programs where they are installed."""

import json
from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from rollout_fakes import Counting, Scripted, Tokens, play, play_one

from coplay.games import StepOutcome
from coplay.rollout_tree import (
    Conversation,
    RolloutTree,
    build_trajectories,
    to_networkx,
    to_verifiers,
    tree_conversations,
)
from coplay.rollout_tree.export import (
    export_graphml,
    export_inspect,
    export_messages,
    export_node_link,
    export_verifiers,
)
from coplay.rollout_tree.json_text import shield

HOSTILE = 'half \ud83d "quoted" <script>\0\x1b[31m\u202e'


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def forked(tree: RolloutTree, at: int = 1) -> RolloutTree:
    """With a branch to the end in which ada's reply of step `at` is another one, and bo's is held."""
    own = []
    for place, step in enumerate(tree.steps[at:]):
        ada, bo = step.turns
        if place == 0:
            reply = replace(ada.segments[1], ids=(77, 78), log_probs=(-1.5, -2.5))
            ada = replace(ada, reply="branched", segments=(ada.segments[0], reply))
            bo = replace(bo, trains_once_for=str(step.id))
        number = 100 + place
        parent = step.parent if place == 0 else number - 1
        own.append(replace(step, id=number, parent=parent, branch="b", turns=(ada, bo)))
    return replace(tree, steps=tree.steps + tuple(own))


def node_tokens(trace: dict, leaf: int) -> tuple[list[int], list[bool], list[float]]:
    """What a path's nodes add up to, as their reader concatenates them."""
    path = [leaf]
    while trace["nodes"][path[-1]]["parent"] is not None:
        path.append(trace["nodes"][path[-1]]["parent"])
    nodes = [trace["nodes"][n] for n in reversed(path)]
    ids, mask = ([x for n in nodes for x in n[name]] for name in ("token_ids", "mask"))
    spread = np.zeros(len(ids), dtype=np.float32)
    spread[np.array(mask, dtype=bool)] = [x for n in nodes for x in n["logprobs"]]
    return ids, mask, spread.tolist()


def leaves(trace: dict) -> list[int]:
    inner = {node["parent"] for node in trace["nodes"]}
    return [n for n in range(len(trace["nodes"])) if n not in inner]


def rows_of(tree: RolloutTree, player: str) -> list[tuple[list[int], list[bool], list[float]]]:
    """Ids, mask and log-probs of a player's rows along the main line."""
    (found,) = [path for path in build_trajectories(tree) if path.player == player]
    return [(row.ids.tolist(), row.sampled.tolist(), row.log_probs.tolist()) for row in found.rows]


def along_branch(tree: RolloutTree) -> RolloutTree:
    """The tree whose main line is the branch; held turns train there, as their one node does."""
    at = min(step.index for step in tree.steps if step.branch)
    chosen = [step for step in tree.steps if step.branch or step.index < at]
    return replace(
        tree,
        steps=tuple(
            replace(step, branch="", turns=tuple(replace(turn, trains_once_for="") for turn in step.turns))
            for step in chosen
        ),
    )


@pytest.mark.parametrize("fresh_at", [(), (2,)])
@pytest.mark.parametrize("player", ["ada", "bo"])
def test_trace_when_a_tree_branches_then_its_paths_are_our_rows_and_shared_turns_stand_once(
    fresh_at: tuple[int, ...], player: str
) -> None:
    """Law 1, rule 11."""
    tree = forked(play_one(Counting(length=4), lambda seat: Tokens(seat, fresh_at=fresh_at)))
    (trace,) = [t for t in to_verifiers(tree)["traces"] if t["agent"]["name"] == player]
    expected = rows_of(tree, player) + rows_of(along_branch(tree), player)
    distinct = [row for n, row in enumerate(expected) if row not in expected[:n]]
    found = [node_tokens(trace, leaf) for leaf in leaves(trace)]
    assert sorted(found) == sorted(distinct)
    said = [node for node in trace["nodes"] if node["message"]["role"] == "assistant"]
    if player == "bo":
        assert len(said) == 4, "held and later equal turns are the same nodes"
    assert sum(node["sampled"] for node in trace["nodes"]) == len(said) == len(trace["calls"])


def test_record_when_made_then_says_how_it_went_and_who_is_trained() -> None:
    agents = {"ada": Tokens, "bo": Scripted}
    whole = to_verifiers(play_one(Counting(), agents))
    ada, bo = whole["traces"]
    assert (
        whole["ok"] and ada["rewards"] == {"return": {"score": 2.0}} and ada["stop_condition"] == "terminated"
    )
    assert (ada["agent"]["trainable"], bo["agent"]["trainable"]) == (True, False)
    assert (
        to_verifiers(play_one(Counting(), agents), trained=["other"])["traces"][0]["agent"]["trainable"]
        is False
    )
    assert (
        to_verifiers(play_one(Counting(), agents), trained=["tiny"])["traces"][0]["agent"]["trainable"]
        is True
    )
    failed = to_verifiers(play_one(Counting(length=5, max_steps=2), agents, max_failed_share=1.0))
    assert (
        not failed["ok"]
        and failed["errors"][0]["type"]
        and failed["traces"][0]["rewards"] == {"return": None}
    )
    first = ada["calls"][0]
    assert first["usage"] == {"prompt_tokens": 3, "completion_tokens": 2} and first["finish_reason"] == "stop"


def truncated(length: int = 3) -> RolloutTree:
    def outcome(step, actions, chance):
        return StepOutcome(rewards={"ada": 1.0, "bo": 0.5}, truncated=step == length - 1)

    return play_one(Counting(length=length, outcome=outcome))


def test_trace_when_the_game_was_truncated_then_what_was_not_answered_is_its_last_node() -> None:
    tree = truncated()
    for player, trace in zip(tree.players, to_verifiers(tree)["traces"], strict=True):
        (leaf,) = leaves(trace)
        assert trace["nodes"][leaf]["message"] == {"role": "user", "content": "step 3"}
        assert [node_tokens(trace, leaf)] == rows_of(tree, player)
        assert not any(trace["nodes"][leaf]["mask"]) and len(trace["calls"]) == 3


@pytest.mark.readers
@pytest.mark.needs("verifiers")
def test_episodes_when_exported_then_their_own_reader_gives_the_same_tokens(tmp_path: Path) -> None:
    """The conformance that counts: `WireEpisode` validates the record, and its branches are our rows."""
    from verifiers import v1

    trees = [
        forked(play_one(Counting(length=4))),
        forked(play_one(Counting(length=4), lambda seat: Tokens(seat, fresh_at=(2,)))),
        truncated(),
        play_one(Counting(), Scripted),
        play_one(Counting(), {"ada": Tokens, "bo": lambda seat: Scripted(seat, say=HOSTILE)}),
        play_one(Counting(length=5, max_steps=2), max_failed_share=1.0),
    ]
    assert export_verifiers(trees, tmp_path / "traces.jsonl") == len(trees)
    for tree, record in zip(trees, lines(tmp_path / "traces.jsonl"), strict=True):
        episode = v1.WireEpisode.model_validate(record)
        assert episode.ok == (tree.failure is None) and episode.group.id == tree.group
        for player, trace in zip(tree.players, episode.traces, strict=True):
            lines_of = [tree] if tree.failure or len(tree.steps) < 5 else [tree, along_branch(tree)]
            expected = [
                row for line in lines_of for row in (rows_of(line, player) if not line.failure else [])
            ]
            found = [
                (b.token_ids, b.sampled_mask, np.float32(b.logprobs).tolist())
                for b in trace.branches
                if b.token_ids
            ]
            if tree.failure is None:
                assert all(row in found for row in expected) and all(row in expected for row in found)
            assert trace.agent.name == player and trace.agent.config.model == tree.seats[player]
            if tree.failure is None:
                main = sum(step.rewards[player] for step in tree.steps if not step.branch)
                assert trace.reward == main


def test_messages_when_exported_then_one_conversation_a_line_in_valid_text(tmp_path: Path) -> None:
    trees = play(Counting(), {"ada": Tokens, "bo": lambda seat: Scripted(seat, say=HOSTILE)}, num_groups=2)
    assert export_messages(trees, tmp_path / "deep" / "m.jsonl") == 4
    found = lines(tmp_path / "deep" / "m.jsonl")
    for entry, one in zip(found, (c for tree in trees for c in tree_conversations(tree)), strict=True):
        assert entry["return"] == one.total and entry["player"] == one.player
        assert [m["role"] for m in entry["messages"]] == [m.role for m in one.messages]
        json.dumps(entry, ensure_ascii=False).encode("utf-8")
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["m.jsonl"]


def logged(tmp_path: Path) -> list[Conversation]:
    """Writes a log of a forked tree with hostile text, a failed and a truncated one; gives what should be in it."""
    trees = [
        forked(play_one(Counting(), {"ada": Tokens, "bo": lambda seat: Scripted(seat, say=HOSTILE)})),
        play_one(Counting(length=5, max_steps=2), iteration=1, max_failed_share=1.0),
        replace(truncated(), iteration=2, episode="000002/00000"),
    ]
    assert export_inspect(trees, tmp_path / "log.json") == 8
    return [found for tree in trees for found in tree_conversations(tree)]


def test_log_when_exported_then_a_sample_for_each_conversation_scored_by_its_return(tmp_path: Path) -> None:
    expected = logged(tmp_path)
    log = json.loads((tmp_path / "log.json").read_text("utf-8"))
    for sample, one in zip(log["samples"], expected, strict=True):
        assert sample["metadata"]["player"] == one.player
        assert sample["scores"].get("return", {}).get("value") == one.total
        assert sample["output"]["choices"][0]["message"]["role"] == "assistant"
    assert len({sample["id"] for sample in log["samples"]}) == 8
    assert export_inspect([], tmp_path / "none.json") == 0
    assert json.loads((tmp_path / "none.json").read_text("utf-8"))["samples"] == []


@pytest.mark.readers
@pytest.mark.needs("inspect_ai")
def test_log_when_exported_then_its_own_reader_gives_the_same_messages(tmp_path: Path) -> None:
    from inspect_ai.log import read_eval_log

    expected = logged(tmp_path)
    read = read_eval_log(str(tmp_path / "log.json"))
    for sample, one in zip(read.samples, expected, strict=True):
        assert [m.role for m in sample.messages] == [m.role for m in one.messages]
        assert [m.text for m in sample.messages] == [shield(m.content) for m in one.messages]


def test_graphs_when_exported_then_networkx_reads_the_same_trees(tmp_path: Path) -> None:
    trees = [forked(tree) for tree in play(Counting(), num_groups=2)]
    assert export_node_link(trees, tmp_path / "n.jsonl") == 2
    for tree, data in zip(trees, lines(tmp_path / "n.jsonl"), strict=True):
        graph = nx.node_link_graph(data, edges="edges")
        assert nx.utils.graphs_equal(graph, to_networkx(tree)) and nx.is_arborescence(graph)
    assert export_graphml(trees, tmp_path / "g") == 2
    for tree in trees:
        graph = nx.read_graphml(tmp_path / "g" / f"{tree.episode.replace('/', '-')}.graphml", node_type=int)
        assert graph.nodes == to_networkx(tree).nodes
    assert len(list((tmp_path / "g").iterdir())) == 2


def test_graphml_when_names_meet_in_one_file_name_then_refused(tmp_path: Path) -> None:
    tree = play_one(Counting())
    one, other = replace(tree, episode="a/b"), replace(tree, episode="a:b")
    with pytest.raises(ValueError, match=r"'a/b' and 'a:b' would both be 'a-b'"):
        export_graphml([one, other], tmp_path)
    assert export_graphml([replace(tree, episode="../../etc/x")], tmp_path) == 1
    assert (tmp_path / "etc-x.graphml").exists()


def test_export_when_it_fails_midway_then_the_old_file_stands(tmp_path: Path) -> None:
    trees = play(Counting())
    export_messages(trees, tmp_path / "m.jsonl")
    before = (tmp_path / "m.jsonl").read_bytes()

    def broken():
        yield from trees
        raise RuntimeError("gone")

    with pytest.raises(RuntimeError, match="gone"):
        export_messages(broken(), tmp_path / "m.jsonl")
    assert (tmp_path / "m.jsonl").read_bytes() == before and len(list(tmp_path.iterdir())) == 1
