"""Ways through a tree by its parent links; never by the order of the list, never by recursion."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from coplay.rollout_tree.records import RolloutTree, Step


def steps_by_id(tree: RolloutTree) -> dict[int, Step]:
    """Every step under its id, once parent links are known to lead to a first step.

    Raises:
        ValueError: if an id occurs twice, a parent is missing, or parents form a cycle; it names the step.
    """
    steps = {step.id: step for step in tree.steps}
    if len(steps) != len(tree.steps):
        ids = sorted(step.id for step in tree.steps)
        twice = next(one for one, other in pairwise(ids) if one == other)
        raise ValueError(f"episode {tree.episode!r} has two steps with the id {twice}; expected unique ids")
    if all(step.parent is None or (step.parent < step.id and step.parent in steps) for step in tree.steps):
        return steps
    grounded: set[int] = set()
    for step in tree.steps:
        _ground(tree.episode, step, steps, grounded)
    return steps


def _ground(episode: str, step: Step, steps: Mapping[int, Step], grounded: set[int]) -> None:
    """Follow parents up to a step known to be sound; each step is walked once in all."""
    chain: list[int] = []
    on_chain: set[int] = set()
    current = step
    while current.id not in grounded:
        if current.id in on_chain:
            raise ValueError(f"episode {episode!r} has a cycle through step {current.id}; expected a tree")
        chain.append(current.id)
        on_chain.add(current.id)
        if current.parent is None:
            break
        if current.parent not in steps:
            raise ValueError(
                f"step {current.id} of episode {episode!r} names parent {current.parent}, which is not there"
            )
        current = steps[current.parent]
    grounded.update(chain)


def main_line(tree: RolloutTree) -> tuple[Step, ...]:
    """The steps of the main line from first to last, found from its last step by parent links.

    Raises:
        ValueError: if the links are broken, or the main line has several ends or gaps.
    """
    before: int | None = None
    for step in tree.steps:  # as it was played: nothing to look for
        if step.branch or step.parent != before or (before is not None and step.id <= before):
            break
        before = step.id
    else:
        return tree.steps
    steps = steps_by_id(tree)
    main = {step.id for step in tree.steps if not step.branch}
    ends = main - {step.parent for step in tree.steps if not step.branch}
    if len(ends) > 1:
        raise ValueError(f"the main line of episode {tree.episode!r} has several ends: steps {sorted(ends)}")
    path: list[Step] = []
    current: int | None = ends.pop() if ends else None
    while current is not None:
        path.append(steps[current])
        current = steps[current].parent
    path.reverse()
    if len(path) != len(main):
        raise ValueError(f"the main line of episode {tree.episode!r} is not one path of {len(main)} steps")
    return tuple(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """Where one player's reply was sampled several times."""

    step: Step
    """The step of the line that forks, with the reply taken; `step.branch` names that line."""
    player: str
    branches: tuple[str, ...]
    """Names of the branches that were played, each with another reply; at least one."""


def branch_steps(tree: RolloutTree) -> dict[str, tuple[Step, ...]]:
    """Name of each branch -> its own steps from first to last, in the order of their first ids.

    A branch whose last step has the status `failed` was not played to its end.

    Raises:
        ValueError: if the links are broken, or a branch is not one path.
    """
    steps = steps_by_id(tree)
    found: dict[str, list[Step]] = {}
    for number in sorted(steps):
        step = steps[number]
        if step.branch:
            line = found.setdefault(step.branch, [])
            if line and step.parent != line[-1].id:
                raise ValueError(
                    f"branch {step.branch!r} of episode {tree.episode!r} is not one path: step {step.id} has the"
                    f" parent {step.parent}; expected {line[-1].id}"
                )
            line.append(step)
    return {branch: tuple(line) for branch, line in found.items()}


def forks(tree: RolloutTree) -> tuple[Fork, ...]:
    """The forks of the main line by step, then those of its branches and so on; failed branches are left out.

    Raises:
        ValueError: if the links are broken, or a branch does not start beside a later step of a line.
    """
    lines = {"": main_line(tree)} | branch_steps(tree)
    line_of = {step.id: name for name, line in lines.items() for step in line}
    after = {(name, step.parent): step for name, line in lines.items() for step in line}
    order = {name: place for place, name in enumerate(lines)}
    found: dict[tuple[int, str], list[str]] = {}
    taken: dict[int, Step] = {}
    for branch, line in lines.items():
        first = line[0] if line else None
        if first is None or not branch or line[-1].status == "failed":
            continue
        deviators = {turn.player for turn in first.turns if not turn.trains_once_for}
        beside = after.get(("" if first.parent is None else line_of[first.parent], first.parent))
        if beside is None or len(deviators) != 1:
            raise ValueError(
                f"branch {branch!r} of episode {tree.episode!r} starts after step {first.parent} with new replies of"
                f" {sorted(deviators)}; expected a step of its line beside it and one player"
            )
        taken[beside.id] = beside
        found.setdefault((beside.id, deviators.pop()), []).append(branch)
    ordered = sorted(found.items(), key=lambda one: (order[taken[one[0][0]].branch], taken[one[0][0]].index))
    return tuple(
        Fork(step=taken[step], player=player, branches=tuple(branches))
        for (step, player), branches in ordered
    )


def branch_paths(tree: RolloutTree) -> dict[str, tuple[Step, ...]]:
    """The way from the first step to the end of the main line ("") and of each branch, failed ones included.

    Raises:
        ValueError: if the links are broken, or the main line or a branch is not one path.
    """
    steps = steps_by_id(tree)
    paths = {"": main_line(tree)}
    for branch, line in branch_steps(tree).items():
        shared: list[Step] = []
        parent = line[0].parent
        while parent is not None:
            shared.append(steps[parent])
            parent = steps[parent].parent
        paths[branch] = (*reversed(shared), *line)
    return paths
