"""Every play of a small game, one by one, and what a credit by tick is worth on average of them.

`solve.py` passes over nodes; what depends on a whole play, as a product of advantages at different ticks does, has to
be summed over plays. Their number grows with the power of the length.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from coplay.games.chance_outcomes import EnumerationError
from coplay.games.game_tree import Decision, GameTree, Information, Real
from coplay.games.solve import Strategies

MAX_PLAYS = 200_000


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply of a play."""

    decision: Decision
    reply: str
    tick: int


@dataclass(frozen=True, slots=True)
class Play:
    """One way from the start to the end."""

    probability: Real
    start: int
    """Place of the luck of the start among its outcomes."""
    replies: tuple[Reply, ...]
    rewards: tuple[tuple[Real, ...], ...]
    """By tick, in the order of players."""


Credit = Callable[[Play], Sequence[Real]]
"""What each tick of a play is credited with."""


def plays(tree: GameTree, strategies: Strategies, *, max_plays: int = MAX_PLAYS) -> Iterator[Play]:
    """All plays that can happen, each with its probability; what is never played is left out.

    Raises:
        EnumerationError: if there are more than `max_plays`.
    """
    nothing = (0,) * len(tree.players)
    chances = {
        index: strategies[node.player](node)
        for index, node in enumerate(tree.nodes)
        if isinstance(node, Decision)
    }
    open_plays: list[tuple[int, Play, int]] = [(0, Play(1, 0, (), (nothing,)), 0)]
    told = 0
    while open_plays:
        index, play, tick = open_plays.pop()
        node = tree.nodes[index]
        if isinstance(node, Decision):
            for reply, child in zip(node.moves, node.children, strict=True):
                if child is not None and (share := chances[index].get(reply, 0)):
                    replies = (*play.replies, Reply(node, reply, tick))
                    grown = Play(play.probability * share, play.start, replies, play.rewards)
                    open_plays.append((child, grown, tick))
            continue
        for place, outcome in enumerate(node.outcomes):
            paid = tuple(a + b for a, b in zip(play.rewards[-1], outcome.rewards, strict=True))
            rewards = (*play.rewards[:-1], paid)
            later = index > 0 and outcome.tick_ended and outcome.child is not None
            start = play.start if index else place
            grown = Play(
                play.probability * outcome.probability,
                start,
                play.replies,
                (*rewards, nothing) if later else rewards,
            )
            if outcome.child is not None:
                open_plays.append((outcome.child, grown, tick + later))
                continue
            told += 1
            if told > max_plays:
                raise EnumerationError(
                    f"the game has more than {max_plays} plays; expected fewer rounds or moves, or a larger max_plays"
                )
            yield grown


def credit_gradient(
    tree: GameTree, player: str, strategies: Strategies, credit: Credit
) -> dict[tuple[Information, str], Real]:
    """E[Σ_t c_t ∇ log π(a_t)] = Σ_z P(z) Σ_t c_t (1[a_t] − π), in the logits of the softmax that a strategy is.

    With rewards-to-go as credit it is `solve.logit_gradient`; a credit may be any function of the play.
    """
    slope: dict[tuple[Information, str], Real] = {}
    for play in plays(tree, strategies):
        credits = credit(play)
        for taken in play.replies:
            if taken.decision.player != player:
                continue
            weight = play.probability * credits[taken.tick]
            for reply, share in strategies[player](taken.decision).items():
                cell = (taken.decision.information, reply)
                slope[cell] = slope.get(cell, 0) + weight * ((reply == taken.reply) - share)
    return slope
