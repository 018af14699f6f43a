"""Hand-made games that branch."""

from dataclasses import replace

from run_fakes import make_tree

from coplay.rollout_tree import RolloutTree, Step


def branch(
    tree: RolloutTree, at: int, player: str, rewards: list[dict[str, float]], number: int
) -> RolloutTree:
    """The tree with one more branch, which copies the main line's turns and has other rewards."""
    last = max(step.id for step in tree.steps)
    steps: list[Step] = []
    for offset, gains in enumerate(rewards):
        model = tree.steps[at + offset]
        turns = tuple(
            replace(turn, trains_once_for=str(at) if not offset and turn.player != player else "")
            for turn in model.turns
        )
        steps.append(
            replace(
                model,
                id=last + 1 + offset,
                parent=last + offset if offset else model.parent,
                branch=f"s{at}.{player}.{number}",
                turns=turns,
                rewards=gains,
                status="running" if offset < len(rewards) - 1 else "terminated",
            )
        )
    return replace(tree, steps=(*tree.steps, *steps))


def asymmetric() -> list[RolloutTree]:
    """Ada answers four ways at step 0 and Bo two ways at step 1; the other game of the group does not branch."""
    tree = make_tree({"Ada": [1.0, 4.0], "Bo": [0.0, 2.0]}, episode="e0")
    for number, (ada, bo) in enumerate([(1.0, 6.0), (2.0, 0.0), (10.0, 4.0)], start=1):
        tree = branch(tree, 0, "Ada", [{"Ada": ada, "Bo": 0.0}, {"Ada": 0.0, "Bo": bo}], number)
    tree = branch(tree, 1, "Bo", [{"Ada": 8.0, "Bo": 6.0}], 1)
    return [tree, make_tree({"Ada": [2.0, 1.0], "Bo": [0.5, 0.5]}, episode="e1")]
