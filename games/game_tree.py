"""A small game's whole tree with its chances, for exact solutions (`solve.py`).

Luck is a function of names, so every outcome of a step is found by playing the step again with other answers to
the same questions. Simultaneous moves become one decision after the other, of which the later knows nothing of
the earlier. What a player knows at a decision, his information, is the texts he was shown and the replies he
gave, in order (perfect recall), or the newest text alone. Plays that reach the same state with the same
information of all share one node.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Generic, Literal, TypeVar

from coplay.games.base import Game, Observation
from coplay.games.chance_outcomes import EnumerationError, chance_outcomes
from coplay.games.grammar import Action

Information = tuple[str, ...]
"""Texts shown and replies given, in order; or the newest text alone."""
Real = float | Fraction
Recall = Literal["perfect", "last"]

MAX_NODES = 300_000


class TooLargeError(EnumerationError):
    """A game has more nodes than a tree may have."""


State = TypeVar("State")


@dataclass(frozen=True, slots=True)
class Decision:
    """A player chooses a reply."""

    player: str
    information: Information
    observation: Observation
    moves: tuple[str, ...]
    """The canonical replies."""
    children: tuple[int | None, ...]
    """Index of the node after each; None where a fixed strategy never goes."""
    level: tuple[int, int]
    """(step, place among those who move in it); every child has a greater one."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One outcome of a step's luck."""

    probability: Real
    rewards: tuple[Real, ...]
    """In the order of players."""
    discount: Real
    """What the worth of the rest is multiplied with: γ where a tick ended, else 1."""
    tick_ended: bool
    child: int | None
    """Index of the node that follows; None at the end."""


@dataclass(frozen=True, slots=True)
class Transition:
    """All have chosen; luck decides."""

    outcomes: tuple[Outcome, ...]
    level: tuple[int, int]


Node = Decision | Transition


@dataclass(frozen=True, slots=True)
class GameTree:
    """All nodes, each before its children; the first is the luck of the start."""

    players: tuple[str, ...]
    nodes: tuple[Node, ...]

    def decisions(self, player: str) -> dict[Information, tuple[int, ...]]:
        """The nodes of each information of a player."""
        found: dict[Information, list[int]] = {}
        for index, node in enumerate(self.nodes):
            if isinstance(node, Decision) and node.player == player:
                found.setdefault(node.information, []).append(index)
        return {information: tuple(indices) for information, indices in found.items()}


Memories = tuple[Information, ...]
Layer = dict[tuple[Any, Memories], int]
Pending = tuple[Fraction, tuple[float, ...], bool, int | None]
"""Probability, rewards, whether a tick ended, place in the next layer."""


def game_tree(
    game: Game[Any],
    *,
    recall: Recall = "perfect",
    fixed: Mapping[str, Callable[[Decision], Mapping[str, Real]]] | None = None,
    discount: Real = 1.0,
    exact: bool = False,
    max_nodes: int = MAX_NODES,
) -> GameTree:
    """Enumerate every play of legal moves, step after step.

    Args:
        game: any game whose grammars list their moves and whose draws are whole numbers.
        recall: `last` forgets all but the newest text, and so joins more plays; right where the text tells all.
        fixed: strategies by player; moves to which they give probability 0 are left out of the tree.
        discount: γ, per tick.
        exact: whether probabilities and rewards are fractions rather than floats.
        max_nodes: the limit.

    Raises:
        TooLargeError: if the game has more nodes.
        EnumerationError: if it cannot be enumerated.
    """
    return _Builder(game, recall, dict(fixed or {}), discount, exact, max_nodes).build()


class _Builder(Generic[State]):
    def __init__(
        self,
        game: Game[State],
        recall: Recall,
        fixed: dict[str, Callable[[Decision], Mapping[str, Real]]],
        discount: Real,
        exact: bool,
        max_nodes: int,
    ) -> None:
        self.game, self.recall, self.fixed, self.max_nodes = game, recall, fixed, max_nodes
        self.players = game.spec.players
        self.number: Callable[[Any], Real] = Fraction if exact else float
        self.discount = self.number(discount)
        self.nodes: list[Node | None] = []
        self.pending: dict[int, list[Pending]] = {}
        self.levels: dict[int, tuple[int, int]] = {}

    def build(self) -> GameTree:
        layer: Layer = {}
        nothing = ((),) * len(self.players)
        self._reserve()
        self.levels[0] = (0, 0)
        self.pending[0] = [
            (share, (0.0,) * len(self.players), False, self._place(layer, state, nothing))
            for share, state in chance_outcomes(self.game.initial_state, 0)
        ]
        step = 0
        while layer:
            step += 1
            before, self.pending = self.pending, {}
            following: Layer = {}
            roots = [self._expand(step, state, memories, following) for state, memories in layer]
            self._settle(before, roots)
            layer = following
        self._settle(self.pending, [])
        return GameTree(self.players, tuple(node for node in self.nodes if node is not None))

    def _place(self, layer: Layer, state: State, memories: Memories) -> int | None:
        if not self.game.to_move(state):
            return None
        return layer.setdefault((state, memories), len(layer))

    def _reserve(self) -> int:
        if len(self.nodes) >= self.max_nodes:
            raise TooLargeError(
                f"game {self.game.name!r} has more than {self.max_nodes} nodes; expected a smaller game: take fewer"
                " rounds or moves, recall='last' where the newest text tells all, or a larger max_nodes"
            )
        self.nodes.append(None)
        return len(self.nodes) - 1

    def _settle(self, pending: dict[int, list[Pending]], roots: list[int]) -> None:
        """Make the transitions of a layer, now that the nodes of the next are numbered."""
        for index, outcomes in pending.items():
            self.nodes[index] = Transition(
                tuple(
                    Outcome(
                        self.number(share),
                        tuple(map(self.number, rewards)),
                        self.discount if ended else self.number(1),
                        ended,
                        None if place is None else roots[place],
                    )
                    for share, rewards, ended, place in outcomes
                ),
                self.levels.pop(index),
            )

    def _expand(self, step: int, state: State, memories: Memories, following: Layer) -> int:
        """The nodes of one step from one state; the index of the first."""
        movers = self.game.to_move(state)
        seen = [self.game.observe(state, player) for player in movers]
        knows = [
            self._observed(memories[self.players.index(player)], observation)
            for player, observation in zip(movers, seen, strict=True)
        ]

        def decide(place: int, chosen: tuple[str, ...]) -> int:
            index = self._reserve()
            if place == len(movers):
                actions = {
                    player: observation.grammar.parse(reply)
                    for player, observation, reply in zip(movers, seen, chosen, strict=True)
                }
                kept = list(memories)
                for player, known, reply in zip(movers, knows, chosen, strict=True):
                    kept[self.players.index(player)] = () if self.recall == "last" else (*known, reply)
                self.levels[index] = (step, place)
                self.pending[index] = self._resolve(step, state, actions, tuple(kept), following)
                return index
            node = Decision(
                movers[place],
                knows[place],
                seen[place],
                self._moves(movers[place], seen[place]),
                (),
                (step, place),
            )
            played = self._played(node)
            self.nodes[index] = replace(
                node,
                children=tuple(
                    decide(place + 1, (*chosen, reply)) if reply in played else None for reply in node.moves
                ),
            )
            return index

        return decide(0, ())

    def _observed(self, memory: Information, observation: Observation) -> Information:
        if self.recall == "last" or observation.fresh_context:
            return (observation.text,)
        return (*memory, observation.text)

    def _moves(self, player: str, observation: Observation) -> tuple[str, ...]:
        labels = observation.grammar.labels()
        if labels is None:
            raise EnumerationError(
                f"game {self.game.name!r} takes {observation.grammar.describe()} from {player!r}; expected a grammar"
                " that lists its moves: take parameters without free text and with few moves"
            )
        return labels

    def _played(self, node: Decision) -> tuple[str, ...]:
        """The moves that a fixed strategy may choose; all of a player who has none."""
        if node.player not in self.fixed:
            return node.moves
        chances = self.fixed[node.player](node)
        return tuple(reply for reply in node.moves if chances.get(reply, 0))

    def _resolve(
        self, step: int, state: State, actions: Mapping[str, Action], memories: Memories, following: Layer
    ) -> list[Pending]:
        found = []
        for share, (after, outcome) in chance_outcomes(
            lambda luck: self.game.step(state, actions, luck), step
        ):
            if outcome.truncated:
                raise EnumerationError(
                    f"game {self.game.name!r} is truncated at step {step}, so what follows has no known worth;"
                    " expected a game that ends by its rules"
                )
            rewards = tuple(outcome.rewards[player] for player in self.players)
            found.append((share, rewards, outcome.round_ended, self._place(following, after, memories)))
        return found
