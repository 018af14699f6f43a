"""Hand-made games that branch."""

from dataclasses import replace

from run_fakes import make_tree

from coplay.rollout_tree import RolloutTree, main_line


def grow(
    tree: RolloutTree, line: str, at: int, player: str, rewards: list[dict[str, float]], **changes
) -> RolloutTree:
    """The tree with one more branch beside step `at` (an index) of a line, with the main line's turns."""
    own = {step.index: step for step in tree.steps if step.branch == line}
    models = {step.index: step for step in main_line(tree)}
    place = f"{line}/s{at}.{player}." if line else f"s{at}.{player}."
    beside = {step.branch for step in tree.steps if step.branch.startswith(place)}
    name = f"{place}{1 + len(beside)}"
    parent, steps = own[at].parent, list(tree.steps)
    for offset, gains in enumerate(rewards):
        model, last = models[at + offset], offset == len(rewards) - 1
        turns = tuple(
            replace(turn, trains_once_for=str(own[at].id) if not offset and turn.player != player else "")
            for turn in model.turns
        )
        steps.append(
            replace(
                model, id=len(steps), parent=parent, branch=name, turns=turns, rewards=gains,
                status=changes.get("status", "terminated") if last else "running",
                info={"branch_fork": {"last_tick": changes["last_tick"]}}
                if "last_tick" in changes and not offset else {},
            )
        )  # fmt: skip
        parent = steps[-1].id
    return replace(tree, steps=tuple(steps))


def branch(
    tree: RolloutTree, at: int, player: str, rewards: list[dict[str, float]], number: int
) -> RolloutTree:
    """The tree with the player's next branch of the main line at a step, which is to be that of a number."""
    found = grow(tree, "", at, player, rewards)
    assert found.steps[-1].branch == f"s{at}.{player}.{number}"
    return found


def asymmetric() -> list[RolloutTree]:
    """Ada answers four ways at step 0 and Bo two ways at step 1; the other game of the group does not branch."""
    tree = make_tree({"Ada": [1.0, 4.0], "Bo": [0.0, 2.0]}, episode="e0")
    for number, (ada, bo) in enumerate([(1.0, 6.0), (2.0, 0.0), (10.0, 4.0)], start=1):
        tree = branch(tree, 0, "Ada", [{"Ada": ada, "Bo": 0.0}, {"Ada": 0.0, "Bo": bo}], number)
    tree = branch(tree, 1, "Bo", [{"Ada": 8.0, "Bo": 6.0}], 1)
    return [tree, make_tree({"Ada": [2.0, 1.0], "Bo": [0.5, 0.5]}, episode="e1")]
