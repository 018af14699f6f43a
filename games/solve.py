"""Exact solutions of small games, computed on their tree (`game_tree.py`).

What strategies are worth, best responses, NashConv. Each passes over every node a fixed number of times.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby

from coplay.games.chance_outcomes import EnumerationError
from coplay.games.game_tree import Decision, GameTree, Information, Real

Strategy = Callable[[Decision], Mapping[str, Real]]
"""A behaviour strategy: from a decision to the probability of each reply; those left out have none."""
Strategies = Mapping[str, Strategy]
Payoffs = tuple[Real, ...]
"""In the order of players."""

TOLERANCE = 1e-9


def uniform(decision: Decision) -> dict[str, Real]:
    """Every reply equally likely."""
    return dict.fromkeys(decision.moves, Fraction(1, len(decision.moves)))


def table_strategy(table: Mapping[Information, Mapping[str, Real]]) -> Strategy:
    """The strategy that looks a decision's information up.

    Raises:
        EnumerationError: when it is asked for an information that the table lacks.
    """

    def look_up(decision: Decision) -> Mapping[str, Real]:
        if decision.information not in table:
            raise EnumerationError(
                f"the strategy of {decision.player!r} has no row for the information {decision.information!r};"
                f" expected one for each of his decisions (it has {len(table)})"
            )
        return table[decision.information]

    return look_up


def values(tree: GameTree, strategies: Strategies) -> dict[str, Real]:
    """The expected (discounted) sum of rewards of each player, Σ_z P(z)·G_i(z).

    Raises:
        EnumerationError: if a player has no strategy, or one that is no distribution over his moves.
    """
    chances = _chances(tree, strategies, tree.players)
    return dict(zip(tree.players, _expected(tree, chances)[0], strict=True))


def reach_probabilities(tree: GameTree, strategies: Strategies) -> list[Real]:
    """For each node the probability of passing it."""
    return _reach(tree, _chances(tree, strategies, tree.players))


@dataclass(frozen=True, slots=True)
class BestResponse:
    """What one player can get at most against strategies of the others, and how."""

    value: Real
    replies: Mapping[Information, str]
    """His reply to each information; of equal ones the first."""

    def strategy(self) -> Strategy:
        """The same as a strategy."""
        return table_strategy({information: {reply: 1} for information, reply in self.replies.items()})


def best_response(tree: GameTree, player: str, strategies: Strategies) -> BestResponse:
    """The best response of `player`: at each information the reply with the greatest Σ_h P₋ᵢ(h)·v(h, reply).

    P₋ᵢ(h) is the probability of node h if the player does all to reach it. Strategies of the player himself are
    not asked for.

    Raises:
        EnumerationError: if the player does not remember what he did and saw, or lacks a strategy's partner.
    """
    seat = _seat(tree, player)
    others = tuple(name for name in tree.players if name != player)
    chances = _chances(tree, strategies, others)
    weights = _reach(tree, chances)
    _check_player(tree, player)
    worth: list[Real] = [0.0] * len(tree.nodes)
    replies: dict[Information, str] = {}
    order = sorted(range(len(tree.nodes)), key=lambda index: tree.nodes[index].level, reverse=True)
    for _, group in groupby(order, key=lambda index: tree.nodes[index].level):
        indices = list(group)
        own = [index for index in indices if _decides(tree, index, player)]
        _choose(tree, own, weights, worth, replies)
        for index in indices:
            node = tree.nodes[index]
            if not isinstance(node, Decision):
                worth[index] = sum(
                    o.probability
                    * (o.rewards[seat] + o.discount * (0 if o.child is None else worth[o.child]))
                    for o in node.outcomes
                )
            elif node.player != player:
                worth[index] = sum(p * worth[child] for p, child in _played(chances[index], node))
    return BestResponse(worth[0], replies)


def _choose(
    tree: GameTree, own: list[int], weights: list[Real], worth: list[Real], replies: dict[Information, str]
) -> None:
    """Settle the decisions of one level: for each information the same reply at all its nodes."""
    together: dict[Information, list[tuple[int, Decision]]] = {}
    for index in own:
        node = tree.nodes[index]
        assert isinstance(node, Decision)
        together.setdefault(node.information, []).append((index, node))
    for information, members in together.items():
        moves = members[0][1].moves
        sums: list[Real] = [0] * len(moves)
        for index, node in members:
            for move, child in enumerate(_all(node)):
                sums[move] += weights[index] * worth[child]
        best = max(range(len(moves)), key=sums.__getitem__)
        replies[information] = moves[best]
        for index, node in members:
            worth[index] = worth[_all(node)[best]]


def nash_conv(tree: GameTree, strategies: Strategies) -> Real:
    """NashConv: Σ_i (best response value of i against the others' strategies − value of i); 0 in equilibrium."""
    now = values(tree, strategies)
    return sum(best_response(tree, player, strategies).value - now[player] for player in tree.players)


def exploitability(tree: GameTree, strategies: Strategies) -> Real:
    """NashConv over the number of players; in a zero-sum game of two, what a strategy loses on average of seats."""
    return nash_conv(tree, strategies) / len(tree.players)


def _seat(tree: GameTree, player: str) -> int:
    if player not in tree.players:
        raise EnumerationError(f"player {player!r} is not in this game; expected one of {tree.players!r}")
    return tree.players.index(player)


def _decides(tree: GameTree, index: int, player: str) -> bool:
    node = tree.nodes[index]
    return isinstance(node, Decision) and node.player == player


def logit_gradient(
    tree: GameTree, player: str, strategies: Strategies, weights: Mapping[str, Real] | None = None
) -> dict[tuple[Information, str], Real]:
    """The slope of Σ_i w_i·J_i in θ(information, reply), the logits of whose softmax the player's strategy is.

    Σ_h P(h)·π(reply)·(Q(h, reply) − V(h)) over the nodes h of an information (Sutton et al. 2000). On a tree made
    with a discount, Q and V are discounted from h on and P is not: without the factor γ^t.

    Args:
        weights: w_i by player; None: 1 for the player himself.
    """
    chances = _chances(tree, strategies, tree.players)
    reach, expected = _reach(tree, chances), _expected(tree, chances)
    shares = {player: 1} if weights is None else weights
    seats = [(_seat(tree, name), share) for name, share in shares.items()]
    worth = [sum(share * payoffs[seat] for seat, share in seats) for payoffs in expected]
    slope: dict[tuple[Information, str], Real] = {}
    for index, node in enumerate(tree.nodes):
        if isinstance(node, Decision) and node.player == player:
            for reply, p, child in zip(node.moves, chances[index], node.children, strict=True):
                if child is not None:
                    part = reach[index] * p * (worth[child] - worth[index])
                    slope[node.information, reply] = slope.get((node.information, reply), 0) + part
    return slope


def information_values(
    tree: GameTree, player: str, strategies: Strategies
) -> dict[Information, tuple[Real, Real]]:
    """For each information of a player: P(information), and V(information), what he still expects there.

    V = Σ_h P(h)·V(h) / Σ_h P(h) over its nodes; 0 where it is never reached.
    """
    chances = _chances(tree, strategies, tree.players)
    reach, expected = _reach(tree, chances), _expected(tree, chances)
    seat = _seat(tree, player)
    found: dict[Information, tuple[Real, Real]] = {}
    for information, indices in tree.decisions(player).items():
        total = sum(reach[index] for index in indices)
        worth = sum(reach[index] * expected[index][seat] for index in indices)
        found[information] = (total, worth / total if total else 0)
    return found


Chances = list[tuple[Real, ...]]
"""For each node the probability of each reply; empty where luck or a free player decides."""


def _chances(tree: GameTree, strategies: Strategies, players: tuple[str, ...]) -> Chances:
    missing = [player for player in players if player not in strategies]
    if missing:
        raise EnumerationError(
            f"player {missing[0]!r} has no strategy; expected one for each of {players!r}, got {tuple(strategies)!r}"
        )
    return [
        _distribution(node, strategies[node.player])
        if isinstance(node, Decision) and node.player in players
        else ()
        for node in tree.nodes
    ]


def _distribution(node: Decision, strategy: Strategy) -> tuple[Real, ...]:
    told = strategy(node)
    chances: tuple[Real, ...] = tuple(told.get(reply, 0) for reply in node.moves)
    lost = any(p and child is None for p, child in zip(chances, node.children, strict=True))
    if abs(float(sum(chances)) - 1) > TOLERANCE or min(map(float, chances)) < 0 or lost:
        raise EnumerationError(
            f"the strategy of {node.player!r} at {node.information!r} is {dict(told)!r}; expected probabilities of"
            f" {node.moves!r} that sum to 1, and none for moves that the tree was made without (`fixed`)"
        )
    return chances


def _all(node: Decision) -> tuple[int, ...]:
    return tuple(child for child in node.children if child is not None)


def _played(chances: tuple[Real, ...], node: Decision) -> list[tuple[Real, int]]:
    """Probability and node of each reply that the tree holds."""
    return [(p, child) for p, child in zip(chances, node.children, strict=True) if child is not None]


def _expected(tree: GameTree, chances: Chances) -> list[Payoffs]:
    """For each node what is still to be expected, in the order of players."""
    seats = range(len(tree.players))
    worth: list[Payoffs] = [()] * len(tree.nodes)
    end: Payoffs = (0,) * len(tree.players)
    for index in reversed(range(len(tree.nodes))):
        node = tree.nodes[index]
        if isinstance(node, Decision):
            pairs = _played(chances[index], node)
            worth[index] = tuple(sum(p * worth[child][seat] for p, child in pairs) for seat in seats)
        else:
            rest = [end if o.child is None else worth[o.child] for o in node.outcomes]
            worth[index] = tuple(
                sum(
                    o.probability * (o.rewards[seat] + o.discount * later[seat])
                    for o, later in zip(node.outcomes, rest, strict=True)
                )
                for seat in seats
            )
    return worth


def _reach(tree: GameTree, chances: Chances) -> list[Real]:
    """For each node the probability that luck and the given chances lead there; a free player goes everywhere."""
    reach: list[Real] = [0] * len(tree.nodes)
    reach[0] = 1
    for index, node in enumerate(tree.nodes):
        if isinstance(node, Decision):
            for p, child in _played(chances[index] or (1,) * len(node.moves), node):
                reach[child] += reach[index] * p
        else:
            for outcome in node.outcomes:
                if outcome.child is not None:
                    reach[outcome.child] += reach[index] * outcome.probability
    return reach


def _check_player(tree: GameTree, player: str) -> None:
    """Refuse information that joins several nodes after different own pasts, or at different steps.

    One node alone may have several pasts: what follows does not depend on them.
    """
    if any(isinstance(n, Decision) and n.player == player and None in n.children for n in tree.nodes):
        raise EnumerationError(
            f"the tree was made with a fixed strategy of {player!r}; expected a tree with all of his moves"
        )
    pasts: list[set[tuple[Information, str] | None]] = [set() for _ in tree.nodes]
    pasts[0] = {None}
    for index, node in enumerate(tree.nodes):
        if isinstance(node, Decision):
            for reply, child in zip(node.moves, node.children, strict=True):
                if child is not None:
                    pasts[child] |= {(node.information, reply)} if node.player == player else pasts[index]
        else:
            for outcome in node.outcomes:
                if outcome.child is not None:
                    pasts[outcome.child] |= pasts[index]
    for information, indices in tree.decisions(player).items():
        levels = {tree.nodes[index].level for index in indices}
        before = {past for index in indices for past in pasts[index]}
        if len(indices) > 1 and (len(levels) > 1 or len(before) > 1):
            raise EnumerationError(
                f"player {player!r} knows {information!r} after different pasts of his own; a best response expects"
                " perfect recall, or a text that tells the step and all that counts"
            )
