"""From trees to rows: every sampled token once, in its context, at its tick; by ids and links, never by order."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rollout_fakes import STOP, Counting, Scripted, Tokens, play, play_one

from coplay.agents.base import Segment
from coplay.games import StepOutcome
from coplay.rollout_tree import RolloutTree, ValuePoint, build_trajectories, main_line


def with_turn(tree: RolloutTree, **changes) -> RolloutTree:
    """The tree with ada's turn of step 1 changed."""
    step = tree.steps[1]
    turns = (replace(step.turns[0], **changes), *step.turns[1:])
    return replace(tree, steps=(tree.steps[0], replace(step, turns=turns), *tree.steps[2:]))


def test_row_when_built_then_holds_the_sampled_ids_in_their_context() -> None:
    """Law 1, B07: the end token is sampled where it was sampled and context where it was given."""
    ada, bo = build_trajectories(play_one(Counting(length=2)))
    (row,) = ada.rows
    assert row.ids.tolist() == [STOP, 1, 100, 5, STOP, STOP, 1, 101, 6, STOP]
    assert row.sampled.tolist() == [False] * 3 + [True] * 2 + [False] * 3 + [True] * 2
    assert row.log_probs.tolist() == [0, 0, 0, -0.5, -0.5, 0, 0, 0, -0.5, -0.5]
    assert row.turn.tolist() == row.tick.tolist() == [0] * 5 + [1] * 5
    assert (ada.player, ada.policy, ada.opponents) == ("ada", "tiny@0", ("tiny@0",))
    assert bo.rewards.tolist() == [0.0, 1.0] and ada.rewards.tolist() == [1.0, 0.0]
    assert ada.acted.tolist() == [True, True] and not ada.truncated


def test_value_points_when_built_then_at_the_last_context_token_before_the_reply() -> None:
    """Rule 8."""
    ada, _ = build_trajectories(play_one(Counting(length=2)))
    assert ada.value_points == (
        ValuePoint(tick=0, row=0, position=2),
        ValuePoint(tick=1, row=0, position=7),
    )


def test_value_points_when_a_tick_has_several_turns_then_one_at_the_first() -> None:
    """Rule 2: all turns of a tick share its credit, and its value is read before the first."""
    rewards = iter([1.0, 10.0, 100.0, 1000.0])

    def outcome(step, actions, chance):
        return StepOutcome(
            rewards={"ada": next(rewards), "bo": 0.0}, round_ended=step in (1, 3), terminated=step == 3
        )

    ada, bo = build_trajectories(play_one(Counting(length=4, outcome=outcome, has_rounds=True)))
    assert ada.rewards.tolist() == [11.0, 1100.0] and bo.rewards.tolist() == [0.0, 0.0]
    assert [(p.tick, p.position) for p in ada.value_points] == [(0, 2), (1, 12)]
    assert ada.rows[0].tick.tolist() == [0] * 10 + [1] * 10 and ada.rows[0].turn.tolist()[::5] == [0, 1, 2, 3]


def truncating(step, actions, chance) -> StepOutcome:
    return StepOutcome(rewards={"ada": 1.0, "bo": 0.0}, truncated=step == 1)


def test_value_points_when_the_game_is_truncated_then_one_more_after_the_last_tick() -> None:
    """B15: a bootstrap value is read in the state after the last action, not before it."""
    tree = play_one(Counting(outcome=truncating))
    ada, bo = build_trajectories(tree)
    for path in (ada, bo):
        assert path.truncated and path.num_ticks == 2
        assert path.value_points[-1] == ValuePoint(tick=2, row=0, position=len(path.rows[0].ids) - 1)
        assert path.rows[0].ids[-2:].tolist() == [1, 7] and not path.rows[0].sampled[-2:].any()
        assert path.rows[0].tick.max() == 1 and path.acted.tolist() == [True, True]
    unread = replace(tree, steps=(*tree.steps[:-1], replace(tree.steps[-1], closing=())))
    ada, _ = build_trajectories(unread)
    assert ada.value_points[-1] == ValuePoint(tick=2, row=0, position=9)


def test_row_when_a_context_starts_anew_then_a_further_row() -> None:
    """Law 1: a rewritten history is never merged."""
    ada, _ = build_trajectories(play_one(Counting(length=4), lambda s: Tokens(s, fresh_at=(0, 2))))
    assert [row.ids.tolist()[2::5] for row in ada.rows] == [[100, 101], [102, 103]]
    assert [row.turn.tolist() for row in ada.rows] == [[0] * 5 + [1] * 5, [2] * 5 + [3] * 5]
    assert [(p.tick, p.row, p.position) for p in ada.value_points] == [
        (0, 0, 2),
        (1, 0, 7),
        (2, 1, 2),
        (3, 1, 7),
    ]


def test_trajectory_when_a_player_has_no_tokens_then_rewards_remain() -> None:
    """Rule 3: packets exist for scripted players too."""
    ada, bo = build_trajectories(play_one(Counting(), {"ada": Tokens, "bo": Scripted}))
    assert bo.rows == () and bo.value_points == () and bo.rewards.tolist() == [1.0, 1.0, 1.0]
    assert not bo.acted.any() and len(bo.turns) == 3 and ada.acted.all()


def test_reply_when_it_has_no_sampled_token_then_the_reward_stays_and_no_token_gets_it() -> None:
    """B14."""
    tree = play_one(Counting(length=1), lambda s: Tokens(s, words={"yes": (), "no": ()}))
    ada, _ = build_trajectories(tree)
    assert ada.rewards.tolist() == [1.0] and not ada.acted.any()
    assert not ada.rows[0].sampled.any() and ada.value_points == ()


def test_forced_tokens_when_they_open_a_reply_then_they_are_context() -> None:
    """Law 1: V is read after them, before the first choice."""
    tree = play_one(Counting(length=2))
    segments = (Segment((1, 2)), Segment((3,)), Segment((4,), True, (-0.25,)), Segment((5,)))
    ada, _ = build_trajectories(with_turn(tree, segments=segments))
    assert ada.rows[0].ids.tolist()[5:] == [1, 2, 3, 4, 5]
    assert ada.value_points[1].position == 7


def test_trajectories_when_steps_are_listed_in_another_order_then_the_same() -> None:
    """Law 5, B17: parents count, not places in a list."""
    tree = play_one(Counting(length=6, outcome=None))
    mixed = list(tree.steps)
    random.Random(1).shuffle(mixed)
    shuffled = replace(tree, steps=tuple(mixed))
    for one, other in zip(build_trajectories(tree), build_trajectories(shuffled), strict=True):
        assert np.array_equal(one.rewards, other.rewards) and one.value_points == other.value_points
        assert np.array_equal(one.rows[0].ids, other.rows[0].ids)
    assert shuffled.status == "terminated"


def test_main_line_when_branches_hang_on_it_then_they_are_left_out() -> None:
    """B17, B56."""
    tree = play_one(Counting(length=3))
    branch = replace(tree.steps[1], id=7, branch="b1", rewards={"ada": -50.0, "bo": 50.0})
    end = replace(tree.steps[2], id=8, parent=7, branch="b1")
    bushy = replace(tree, steps=(end, *tree.steps, branch))
    assert main_line(bushy) == tree.steps and bushy.status == "terminated"
    assert build_trajectories(bushy)[0].rewards.tolist() == build_trajectories(tree)[0].rewards.tolist()


def test_failed_episode_when_extracted_then_nothing() -> None:
    """Rule 12, B37."""
    tree = play_one(Counting(length=5, max_steps=2), max_failed_share=1.0)
    assert tree.status == "failed" and tree.steps and build_trajectories(tree) == ()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"policy": "tiny@1"}, "'tiny@1'; expected 'tiny@0'"),
        ({"tokenizer": "other"}, "mixes tokenizers"),
        ({"segments": (Segment((1, 2)), Segment((3, 4), True, (-1.0,)))}, "1 log-probs for 2 ids"),
        ({"segments": (Segment((1, 2), False, (-1.0, -1.0)),)}, "2 log-probs for 2 ids"),
        ({"segments": (Segment((1,)), Segment((3,), True, (float("nan"),)))}, "no finite number in turn 1"),
        ({"segments": (Segment((1,)), Segment((3,), True, (float("-inf"),)))}, "no finite number in turn 1"),
        ({"segments": (Segment((3,), True, (-1.0,)),), "fresh_context": True}, "without context"),
    ],
)
def test_turns_when_they_do_not_fit_then_the_player_and_episode_are_named(changes, words: str) -> None:
    """B09, B69, B75, B29."""
    tree = play_one(Counting())
    with pytest.raises(ValueError, match=words) as caught:
        build_trajectories(with_turn(tree, **changes))
    assert "'ada'" in str(caught.value) and tree.episode in str(caught.value)


def test_ticks_when_they_jump_then_refused() -> None:
    tree = play_one(Counting())
    odd = replace(tree, steps=(*tree.steps[:2], replace(tree.steps[2], tick=5)))
    with pytest.raises(ValueError, match="ticks"):
        build_trajectories(odd)


@given(
    lengths=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4)), min_size=1, max_size=12),
    fresh=st.sets(st.integers(0, 11)),
)
def test_sampled_tokens_when_rows_are_built_then_each_belongs_to_exactly_one_turn(lengths, fresh) -> None:
    """Law 1, B09: ids, masks and log-probs of the rows are those of the turns, none lost, none doubled."""
    tree = play_one(Counting(length=len(lengths)))
    steps = []
    for step, (given_, sampled) in zip(tree.steps, lengths, strict=True):
        probs = tuple(-0.5 * n for n in range(sampled))
        ids = tuple(range(10 * step.id, 10 * step.id + sampled))
        turn = replace(
            step.turns[0],
            segments=(Segment((1,) * given_), Segment(ids, True, probs)),
            fresh_context=step.id in fresh,
        )
        steps.append(replace(step, turns=(turn, *step.turns[1:])))
    ada, _ = build_trajectories(replace(tree, steps=tuple(steps)))
    for row in ada.rows:
        assert len({len(a) for a in (row.ids, row.sampled, row.log_probs, row.turn, row.tick)}) == 1
    for number, turn in enumerate(ada.turns):
        mine = [(row, row.turn == number) for row in ada.rows if (row.turn == number).any()]
        ((row, here),) = mine
        assert tuple(row.ids[here].tolist()) == turn.segments[0].ids + turn.segments[1].ids
        assert tuple(row.ids[here & row.sampled].tolist()) == turn.segments[1].ids
        assert tuple(row.log_probs[here & row.sampled].tolist()) == turn.segments[1].log_probs
    assert sum(int(row.sampled.sum()) for row in ada.rows) == sum(n for _, n in lengths)
    assert [p.tick for p in ada.value_points] == [n for n, (_, sampled) in enumerate(lengths) if sampled]


def test_behaviour_log_probs_when_two_seats_share_a_policy_then_each_keeps_its_own() -> None:
    """B29: they are stored at play time, nothing is computed again later."""
    (tree,) = play(
        Counting(), {"ada": lambda s: Tokens(s, log_prob=-0.25), "bo": lambda s: Tokens(s, log_prob=-2.0)}
    )
    ada, bo = build_trajectories(tree)
    assert set(ada.rows[0].log_probs.tolist()) == {0.0, -0.25} and set(bo.rows[0].log_probs.tolist()) == {
        0.0,
        -2.0,
    }
