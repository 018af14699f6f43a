"""From plays to a tree: the main line's steps as they are, those of its branches behind them."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from coplay.rollout_tree.play import Play
from coplay.rollout_tree.records import RolloutTree, Step, Turn


def make_tree(game: str, main: Play, branches: Sequence[Play] = ()) -> RolloutTree:
    """The record of an episode.

    Ids of branch steps go on after the main line's, branch by branch in the order given: a branch of a branch stands
    behind it. A branch that failed keeps its complete steps; a last step with the status `failed`, no turns and no
    rewards names the reason.
    """
    plan, steps = main.plan, list(main.steps)
    ids = count(len(steps))
    numbered = {"": {step.index: step.id for step in steps}}
    for branch in branches:
        origin = branch.origin
        assert origin is not None
        line, own = numbered[origin.line], numbered.setdefault(branch.branch, {})
        parent = line[origin.step - 1] if origin.step else None
        for step in (*branch.steps, *_failed_step(branch)):
            turns = step.turns
            if step.index == origin.step and origin.line:
                turns = tuple([_held_from(turn, line[origin.step]) for turn in turns])
            steps.append(replace(step, id=next(ids), parent=parent, turns=turns))
            parent = own[step.index] = steps[-1].id
    return RolloutTree(
        episode=plan.episode,
        iteration=plan.iteration,
        game=game,
        group=plan.group,
        group_seed=plan.group_seed,
        seats={player: plan.seat_names[player] for player in main.players},
        steps=tuple(steps),
        failure=main.failure,
    )


def _held_from(turn: Turn, step: int) -> Turn:
    return replace(turn, trains_once_for=str(step)) if turn.trains_once_for else turn


def _failed_step(branch: Play) -> tuple[Step, ...]:
    """Marks the step that a failed branch could not play; none of a whole one."""
    failure = branch.failure
    if failure is None:
        return ()
    assert branch.origin is not None
    step = Step(
        id=0,
        parent=None,
        branch=branch.origin.branch,
        index=failure.step,
        tick=branch.tick,
        turns=(),
        rewards={},
        status="failed",
        info={"failure": {"player": failure.player, "reason": failure.reason}},
    )
    return (step,)
