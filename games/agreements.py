"""What two or more players could reach at best in a small game, computed on its tree (`game_tree.py`).

The Pareto front, the Nash bargaining solution and the greatest welfare: yardsticks of whole plays, as
`best_outcomes.py` has those of single steps.
"""

from collections.abc import Iterable
from itertools import pairwise
from operator import itemgetter

from coplay.games.chance_outcomes import EnumerationError
from coplay.games.game_tree import Decision, GameTree, Outcome, Real


def welfare_maximum(tree: GameTree) -> Real:
    """The greatest expected sum of all rewards, if one who sees everything moved for all."""
    worth: list[Real] = [0.0] * len(tree.nodes)
    for index in reversed(range(len(tree.nodes))):
        node = tree.nodes[index]
        if isinstance(node, Decision):
            worth[index] = max(worth[child] for child in node.children if child is not None)
        else:
            worth[index] = sum(
                o.probability * (sum(o.rewards) + o.discount * (0 if o.child is None else worth[o.child]))
                for o in node.outcomes
            )
    return worth[0]


Front = tuple[tuple[Real, Real], ...]
"""Corners of a falling line of payoffs of two players, from the best for the second to the best for the first."""


def pareto_front(tree: GameTree) -> Front:
    """Corners of the line of expected payoffs that nobody can better without the other's loss.

    Attainable is what one who sees everything, hidden values too, could reach by moving for both, lots allowed.

    Raises:
        EnumerationError: if there are not two players.
    """
    if len(tree.players) != 2:
        raise EnumerationError(f"a Pareto front of {len(tree.players)} players; expected two players")
    fronts: list[Front] = [()] * len(tree.nodes)
    for index in reversed(range(len(tree.nodes))):
        node = tree.nodes[index]
        if isinstance(node, Decision):
            fronts[index] = _upper_hull(
                corner for child in node.children if child is not None for corner in fronts[child]
            )
        else:
            fronts[index] = _weighted_sum(node.outcomes, fronts)
    return fronts[0]


def _upper_hull(points: Iterable[tuple[Real, Real]]) -> Front:
    """The corners of the convex hull that face both axes' growth."""
    kept: list[tuple[Real, Real]] = []
    for x, y in sorted(set(points), reverse=True):
        if kept and y <= kept[-1][1]:
            continue
        while len(kept) >= 2 and (kept[-1][0] - kept[-2][0]) * (y - kept[-2][1]) <= (
            kept[-1][1] - kept[-2][1]
        ) * (x - kept[-2][0]):
            kept.pop()
        kept.append((x, y))
    return tuple(reversed(kept))


def _weighted_sum(outcomes: tuple[Outcome, ...], fronts: list[Front]) -> Front:
    """Minkowski sum Σ_o p_o·(r_o + γ_o·front_o): starts added up, then all edges, the flattest first."""
    x: Real = 0
    y: Real = 0
    edges: list[tuple[Real, Real]] = []
    for outcome in outcomes:
        front = ((0, 0),) if outcome.child is None else fronts[outcome.child]
        scale = outcome.probability * outcome.discount
        x += outcome.probability * outcome.rewards[0] + scale * front[0][0]
        y += outcome.probability * outcome.rewards[1] + scale * front[0][1]
        edges += [(scale * (b[0] - a[0]), scale * (b[1] - a[1])) for a, b in pairwise(front)]
    corners = [(x, y)]
    for right, down in sorted((edge for edge in edges if edge[0]), key=lambda edge: -edge[1] / edge[0]):
        x, y = x + right, y + down
        corners.append((x, y))
    return _upper_hull(corners)


def nash_bargaining_solution(front: Front, disagreement: tuple[Real, Real]) -> tuple[Real, Real]:
    """The point of the front with the greatest product (u₁ − d₁)(u₂ − d₂), both factors at least 0 (Nash 1950).

    Raises:
        EnumerationError: if no point of the front is at least as good as the disagreement for both.
    """
    found: list[tuple[Real, tuple[Real, Real]]] = []
    for (x0, y0), (x1, y1) in zip(front, front[1:] or front, strict=False):
        first, gain = x0 - disagreement[0], x1 - x0
        second, loss = y0 - disagreement[1], y1 - y0
        turn: Real = -(gain * second + first * loss) / (2 * gain * loss) if gain and loss else 0
        along = min(max(turn, 0), 1)
        point = (x0 + along * gain, y0 + along * loss)
        product = (point[0] - disagreement[0], point[1] - disagreement[1])
        if min(product) >= 0:
            found.append((product[0] * product[1], point))
    if not found:
        raise EnumerationError(
            f"no point of the front {front!r} is at least {disagreement!r} for both; expected a disagreement that"
            " some agreement betters"
        )
    return max(found, key=itemgetter(0))[1]
