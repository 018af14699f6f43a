"""Training on turns with tool calls: what tools say is context everywhere, the sampler's constraint is mirrored sample
by sample, and a run with tools resumes to the bit.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from question_fakes import PENALTY
from run_fakes import play_iteration, tiny_config, tiny_run

from coplay.agents.base import Sampling, Segment, ToolCall
from coplay.agents.constraint import build_trie
from coplay.agents.loading import load_agent
from coplay.agents.tools import ToolsNotConfiguredError
from coplay.games import Choice, FreeText, Move, Observation, Tool, Tools
from coplay.rollout_tree import build_trajectories, read_rollouts, write_rollouts
from coplay.rollout_tree.records import RolloutTree, Step, Turn
from coplay.training.draws import AllowedSets
from coplay.training.extract import extract, token_batch, value_batch
from coplay.training.kl import penalise
from coplay.training.loop import train
from coplay.training.metrics import read_metrics
from coplay.training.run import resume_run

needs_search = pytest.mark.needs("bm25s")
SEARCH: dict[str, Any] = {
    "game": {"kind": "search_qa", "wording": "terse", "max_calls": 2},
    "agents.tools": {"book": {"kind": "bm25", "corpus": "search_qa_terse", "top_k": 2, "layout": "plain"}},
    "agents.sampling": {"max_new_tokens": 8},
    "collect": {"num_groups": 8, "group_size": 16},
    "objective": {"largest_gap": 1e-5},
}
TOOLS = Tools(offered=(Tool(name="b", terms=("x", "y")),), form="plain", max_calls=1)
IDS = {"b": 1, "x": 2, "y": 3, "P": 4, "Q": 5}
MOVES = Choice(("P", "Q"))


def trie_of(grammar: Any) -> Any:
    return build_trie(grammar.labels(), lambda label: [IDS[word] for word in label.split()], 0)


def turn_of(
    *, first_constrained: bool = True, last_constrained: bool = True, sampled_call: bool = True
) -> Turn:
    """A question 9, the call `b x` (b and x sampled), its result 7 7, the reply Q."""
    call = ToolCall(
        text="b x", tool="b", arguments={"query": "x"}, result="x P", outcome="ok",
        constrained=first_constrained, place=2,
    )  # fmt: skip
    return Turn(
        player="Ada",
        observation=Observation(text="?", grammar=MOVES, tools=TOOLS),
        reply="Q",
        action=Move(value="Q", text="Q"),
        segments=(
            Segment((9,)),
            Segment((1, 2), True, (-1.0, -0.7)),
            Segment((7, 7)),
            Segment((5,), True, (-0.6,)),
        ),
        policy="shared@0",
        finish="grammar",
        sampling=Sampling(temperature=1.0, max_new_tokens=4, seed=0, constrained=last_constrained),
        tokenizer="t",
        fresh_context=True,
        calls=(call,),
    )


def _silent(update: int, values: Mapping[str, float]) -> None:
    """Report nothing."""


def tree_of(turn: Turn) -> RolloutTree:
    step = Step(
        id=0,
        parent=None,
        branch="",
        index=0,
        tick=0,
        turns=(turn,),
        rewards={"Ada": 1.0},
        status="terminated",
    )
    return RolloutTree(
        episode="000000/00000", iteration=0, game="g", group="g", group_seed=0, seats={"Ada": "shared@0"},
        steps=(step,),
    )  # fmt: skip


def test_tokens_when_a_turn_has_a_result_then_it_is_context_and_the_turn_is_one() -> None:
    batch = token_batch(extract([tree_of(turn_of())]), policy="shared@0", trie_of=trie_of, reward_scale=1.0)
    assert batch is not None
    assert batch.targets.tolist() == [1, 2, 5] and batch.column.tolist() == [1, 2, 5]
    assert batch.behaviour.tolist() == pytest.approx([-1.0, -0.7, -0.6])
    assert batch.turn.tolist() == [0, 0, 0] and batch.tick.tolist() == [0, 0, 0]
    assert batch.ids.tolist() == [[9, 1, 2, 7, 7, 5]]


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("last", [True, False])
def test_allowed_tokens_when_mirrored_then_sample_by_sample(first: bool, last: bool) -> None:
    """Rule 10: calls and moves while the budget lasts, then moves alone; each sample as it was drawn."""
    turn = turn_of(first_constrained=first, last_constrained=last)
    batch = token_batch(extract([tree_of(turn)]), policy="shared@0", trie_of=trie_of, reward_scale=1.0)
    assert batch is not None
    free = token_batch(
        extract([tree_of(replace(turn, sampling=None, calls=(replace(turn.calls[0], constrained=False),)))]),
        policy="shared@0", trie_of=trie_of, reward_scale=1.0,
    )  # fmt: skip
    assert free is not None
    expected = [((1, 4, 5) if first else None), ((2, 3) if first else None), ((4, 5) if last else None)]
    assert _lists(batch.allowed) == expected
    assert _lists(free.allowed) == [None, None, None]


def _lists(allowed: AllowedSets) -> list[tuple[int, ...] | None]:
    """The set of each token; None: all tokens."""
    return [
        None if row < 0 else tuple(allowed.table[row][allowed.table_mask[row]].tolist())
        for row in allowed.index.tolist()
    ]


def test_critic_when_a_turn_has_calls_then_reads_before_the_first_sampled_token_alone() -> None:
    """Search-R1's defect: values and returns at retrieved tokens."""
    (trajectory,) = build_trajectories(tree_of(turn_of()))
    batch = value_batch([trajectory])
    assert batch.column.tolist() == [0] and batch.tick.tolist() == [0]


def test_turn_when_its_result_found_no_room_then_what_was_sampled_trains() -> None:
    turn = turn_of()
    lost = replace(turn.calls[0], outcome="too_long", place=None)
    cut = replace(turn, reply="b x", finish="length", segments=turn.segments[:2], calls=(lost,))
    batch = token_batch(extract([tree_of(cut)]), policy="shared@0", trie_of=trie_of, reward_scale=1.0)
    assert batch is not None and batch.targets.tolist() == [1, 2]
    assert _lists(batch.allowed) == [(1, 4, 5), (2, 3)]


def test_free_turn_when_moves_cannot_be_listed_then_no_sets() -> None:
    turn = replace(
        turn_of(first_constrained=False, last_constrained=False),
        observation=Observation(text="?", grammar=FreeText(9), tools=TOOLS),
    )
    batch = token_batch(extract([tree_of(turn)]), policy="shared@0", trie_of=trie_of, reward_scale=1.0)
    assert batch is not None and _lists(batch.allowed) == [None] * 3


@needs_search
def test_ratio_when_turns_have_calls_then_one_on_every_sampled_token(tmp_path: Path) -> None:
    """Law 2, through the whole path: sampler, records, rows, trainer."""
    run = tiny_run(tmp_path, SEARCH)
    iteration = play_iteration(run)
    calls = [call for tree in iteration.trees for turn in tree.steps[0].turns for call in turn.calls]
    assert {call.outcome for call in calls} == {"ok"} and len(calls) > 10
    assert max(len(turn.calls) for tree in iteration.trees for turn in tree.steps[0].turns) == 2
    credit = iteration.credit(run)
    sampled = sum(
        len(segment.log_probs)
        for tree in iteration.trees for segment in tree.steps[0].turns[0].segments
    )  # fmt: skip
    assert credit.batch.num_tokens == sampled
    result = run.trainers[0].step(credit, update=0, folder=tmp_path)
    assert result.metrics["ratio_gap_max"] <= 1e-5


def test_cells_of_a_result_when_filled_with_rubbish_then_invisible() -> None:
    """Law 3."""
    (trajectory,) = build_trajectories(tree_of(turn_of()))
    (row,) = trajectory.rows
    odd = replace(row, log_probs=np.where(row.sampled, row.log_probs, np.float32("nan")))
    batches = [
        token_batch([replace(trajectory, rows=(one,))], policy="shared@0", trie_of=trie_of, reward_scale=1.0)
        for one in (row, odd)
    ]
    assert batches[0] is not None and batches[1] is not None
    assert torch.equal(batches[0].behaviour, batches[1].behaviour) and np.isnan(odd.log_probs).sum() == 3


@needs_search
def test_run_when_stopped_and_resumed_then_as_without_the_stop(tmp_path: Path) -> None:
    """Law 8, with tools."""
    whole = tiny_run(tmp_path / "whole", SEARCH)
    train(whole, _silent)
    first = tiny_run(tmp_path / "parts", {**SEARCH, "update.num_updates": 1})
    train(first, _silent)
    longer = tiny_config(tmp_path / "parts", SEARCH)
    (first.folder / "config.json").write_text(longer.model_dump_json(), encoding="utf-8")
    train(resume_run(first.folder), _silent)
    for iteration in range(3):
        assert list(read_rollouts(whole.folder, iteration)) == list(read_rollouts(first.folder, iteration))
    ours, theirs = (
        [
            {k: v for k, v in line.items() if not k.startswith("time/")}
            for line in read_metrics(folder / "metrics.jsonl")
        ]
        for folder in (whole.folder, first.folder)
    )
    assert ours == theirs and ours[0]["rollout/tool_calls/Ada"] > 0


@needs_search
def test_agent_when_loaded_from_a_run_then_has_its_tools(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, {**SEARCH, "update.num_updates": 1})
    train(run, _silent)
    assert load_agent(run.folder, "Ada").tools is not None


def test_run_when_nobody_runs_what_the_game_offers_then_refused_before_anything_is_played(
    tmp_path: Path,
) -> None:
    with pytest.raises(ToolsNotConfiguredError, match=r"'book'.*agents\.tools is empty"):
        tiny_run(tmp_path, {"game": {"kind": "search_qa", "wording": "terse"}})


def test_rows_when_stored_and_read_back_then_the_same_batch(tmp_path: Path) -> None:
    tree = tree_of(turn_of())
    write_rollouts(tmp_path, 0, [tree])
    (back,) = read_rollouts(tmp_path, 0)
    batches = [
        token_batch(extract([one]), policy="shared@0", trie_of=trie_of, reward_scale=1.0)
        for one in (tree, back)
    ]
    assert batches[0] is not None and batches[1] is not None
    assert np.array_equal(batches[0].column, batches[1].column)
    assert _lists(batches[0].allowed) == _lists(batches[1].allowed) != [None] * 3


def test_masking_when_off_then_results_count_at_the_trainers_own_log_probs() -> None:
    """The ablation: their cells, free, between the samples; NaN until the trainer has read them."""
    batch = token_batch(
        extract([tree_of(turn_of())]), policy="shared@0", trie_of=trie_of, reward_scale=1.0, tool_output=True
    )
    assert batch is not None
    assert batch.targets.tolist() == [1, 2, 7, 7, 5] and batch.column.tolist() == [1, 2, 3, 4, 5]
    assert torch.isnan(batch.behaviour).tolist() == [False, False, True, True, False]
    assert _lists(batch.allowed) == [(1, 4, 5), (2, 3), None, None, (4, 5)]
    masked = token_batch(extract([tree_of(turn_of())]), policy="shared@0", trie_of=trie_of, reward_scale=1.0)
    assert masked is not None and masked.targets.tolist() == [1, 2, 5]


@needs_search
def test_masking_when_off_then_the_step_sees_results_at_ratio_one_and_nothing_else_changes(
    tmp_path: Path,
) -> None:
    changes = {"objective": {"largest_gap": 1e-5, "mask_tool_output": False}, "storage.credits": False}
    on, off = tiny_run(tmp_path / "on", SEARCH), tiny_run(tmp_path / "off", {**SEARCH, **changes})
    played = {run: play_iteration(run) for run in (on, off)}
    assert played[on].trees == played[off].trees
    credits = {run: iteration.credit(run) for run, iteration in played.items()}
    told = sum(
        len(turn.segments[call.place].ids)
        for tree in played[on].trees
        for turn in tree.steps[0].turns
        for call in turn.calls
        if call.place is not None
    )
    assert told and credits[off].batch.num_tokens == credits[on].batch.num_tokens + told
    results = {run: run.trainers[0].step(credits[run], update=0, folder=tmp_path) for run in (on, off)}
    assert results[off].metrics["ratio_gap_max"] <= 1e-5
    assert results[off].metrics["gradient_norm"] != results[on].metrics["gradient_norm"]


@needs_search
def test_masking_when_off_then_what_tools_say_lowers_no_reward(tmp_path: Path) -> None:
    """A KL in the rewards is of sampled tokens: the ablation counts results in the loss and nowhere else."""
    found = {}
    for masked in (True, False):
        changes = {
            "objective": {"largest_gap": None, "mask_tool_output": masked, "kl": PENALTY},
            "storage.credits": False,
        }
        run = tiny_run(tmp_path / str(masked), {**SEARCH, **changes})
        policy = run.policies["shared"]
        luck = torch.Generator().manual_seed(1)
        policy.load_state(
            {k: v + 0.05 * torch.randn(v.shape, generator=luck) for k, v in policy.state().items()}
        )
        played = play_iteration(run)
        batch = run.trainers[0].batch(played.trajectories, played.table)
        assert batch is not None and bool(torch.isnan(batch.behaviour).any()) is not masked
        penalty = penalise(run.trainers, played.trajectories, played.table)
        assert penalty is not None and float(penalty.ticks.abs().max()) > 0
        found[masked] = penalty
    torch.testing.assert_close(found[False].ticks, found[True].ticks, rtol=1e-4, atol=1e-6)
    assert found[False].means == pytest.approx(found[True].means, rel=1e-4)


def test_masking_when_off_and_credits_are_to_be_stored_then_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"storage\.credits = false"):
        tiny_config(tmp_path, {"objective.mask_tool_output": False})


@needs_search
def test_branches_when_a_turn_has_calls_then_the_whole_turn_is_played_anew_and_trains(tmp_path: Path) -> None:
    """Rule 11: siblings are turns, calls included, each under sampling seeds of its own branch."""
    changes = {
        "collect": {"num_groups": 8, "group_size": 4, "branching": {"every": 1, "num_alternatives": 3}},
        "estimator": {"kind": "branches"},
    }
    run = tiny_run(tmp_path, {**SEARCH, **changes})
    iteration = play_iteration(run)
    by_branch = {
        (tree.episode, step.branch): step.turns[0] for tree in iteration.trees for step in tree.steps
    }
    assert len(by_branch) == 8 * 4 * 4
    branched = [turn for (_, branch), turn in by_branch.items() if branch]
    assert any(turn.calls for turn in branched)
    assert any(
        turn.calls != by_branch[episode, ""].calls for (episode, branch), turn in by_branch.items() if branch
    )
    assert all(
        turn.segments[0] == by_branch[episode, ""].segments[0] for (episode, _), turn in by_branch.items()
    )
    credit = iteration.credit(run)
    sampled = sum(len(s.log_probs) for turn in by_branch.values() for s in turn.segments)
    assert credit.batch.num_tokens == sampled
    result = run.trainers[0].step(credit, update=0, folder=tmp_path)
    assert result.metrics["ratio_gap_max"] <= 1e-5
