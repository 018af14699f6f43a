"""A tree as a networkx graph, for analysis and for drawing programs."""

import json
import os
from typing import TYPE_CHECKING, Any

from coplay.games import Malformed
from coplay.rollout_tree.paths import steps_by_id
from coplay.rollout_tree.records import RolloutTree, Step, Turn

if TYPE_CHECKING:
    import networkx as nx


def to_networkx(tree: RolloutTree) -> "nx.DiGraph":
    """Build a graph whose nodes are the steps, by their ids, with edges from parent to child.

    Attributes are scalars: `branch`, `index`, `tick`, `status`, `num_turns`, `reward:PLAYER`, and as JSON
    text `info` and `turns`. The graph itself carries the episode. A step without parent is a root: one,
    unless the tree branches at its first step.

    Raises:
        ValueError: if the links are no tree; the message names the step.
    """
    import networkx as nx

    steps = steps_by_id(tree)
    failure = tree.failure
    graph = nx.DiGraph(
        episode=_visible(tree.episode),
        iteration=tree.iteration,
        game=_visible(tree.game),
        group=_visible(tree.group),
        group_seed=tree.group_seed,
        seats=json.dumps(dict(tree.seats)),
        status=tree.status,
        failure="" if failure is None else _visible(failure.reason),
    )
    graph.add_nodes_from((step.id, _attributes(step)) for step in steps.values())
    graph.add_edges_from((step.parent, step.id) for step in steps.values() if step.parent is not None)
    return graph


def _attributes(step: Step) -> dict[str, Any]:
    rewards = {f"reward:{_visible(player)}": float(reward) for player, reward in step.rewards.items()}
    return {
        "branch": _visible(step.branch),
        "index": step.index,
        "tick": step.tick,
        "status": step.status,
        "num_turns": len(step.turns),
        "info": json.dumps(step.info),
        "turns": json.dumps([_summary(turn) for turn in step.turns]),
        **rewards,
    }


def _summary(turn: Turn) -> dict[str, Any]:
    action = turn.action
    played = {"malformed": action.reason} if isinstance(action, Malformed) else {"move": action.value}
    return {
        "player": turn.player,
        "policy": turn.policy,
        "attempt": turn.attempt,
        "observation": turn.observation.text,
        "reply": turn.reply,
        **played,
    }


def _visible(text: str) -> str:
    """A text that XML can hold: itself if printable, else its JSON form, which is ASCII."""
    return text if text.isprintable() else json.dumps(text)


def to_graphml(tree: RolloutTree, path: str | os.PathLike[str]) -> None:
    """Write the graph as GraphML, readable by Gephi, yEd and Cytoscape."""
    import networkx as nx

    nx.write_graphml_xml(to_networkx(tree), path)


def to_node_link(tree: RolloutTree) -> dict[str, Any]:
    """The graph as a JSON object, for `networkx.node_link_graph(data, edges="edges")`."""
    import networkx as nx

    data: dict[str, Any] = nx.node_link_data(to_networkx(tree), edges="edges")
    return data
