"""The rules of scripted agents for `split` and `trust_and_split`, and what scripted agents say and understand."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from coplay.agents.base import TurnKey
from coplay.agents.scripted_exact import Seated
from coplay.games import Number, Observation
from coplay.games.random_moves import LINE
from coplay.games.trust_and_split import HANDS


def nearest_number(allowed: Iterable[int], target: float) -> int:
    """The allowed number nearest to a target, the smaller of two."""
    return min(allowed, key=lambda number: (abs(number - target), number))


def last_named(heard: Iterable[str], words: Collection[str]) -> str | None:
    """The word in the last message that names exactly one of `words`."""
    told = None
    for text in heard:
        named = {word for word in text.lower().replace(".", " ").replace(",", " ").split() if word in words}
        told = next(iter(named)) if len(named) == 1 else told
    return told


def _claim_share(observation: Observation, part: Mapping[str, float] | float) -> Any:
    """Claim a part of each item (of the coins): the nearest number allowed, the smaller of two."""
    facts, grammar = observation.facts, observation.grammar
    if facts["game"] == "split":
        stock = facts["stock"]
        parts = part if isinstance(part, Mapping) else dict.fromkeys(facts["items"], part)
        return {item: nearest_number(range(stock + 1), parts[item] * stock) for item in facts["items"]}
    assert isinstance(grammar, Number) and not isinstance(part, Mapping)
    allowed = facts["claims"] or range(facts["coins"] + 1)
    return nearest_number(allowed, part * facts["coins"])


def greedy(observation: Observation, agent: Seated, key: TurnKey) -> Any:
    """Claim everything."""
    return _claim_share(observation, 1.0)


def fair(observation: Observation, agent: Seated, key: TurnKey) -> Any:
    """Claim half of each item."""
    return _claim_share(observation, 0.5)


def _part_by_value(own: float, best_other: float) -> float:
    return 0.5 if own == best_other else float(own > best_other)


def welfare_maximising(observation: Observation, agent: Seated, key: TurnKey) -> Any:
    """Claim all of what nobody values more, half where the highest value is shared, none of the rest.

    Where hands are private, believe the hand that the other last named; claim half if he named none.
    """
    facts, player = observation.facts, agent.seat.player
    if facts["game"] == "split":
        values: Mapping[str, Mapping[str, int]] = facts["values"]
        others = [worth for name, worth in values.items() if name != player]
        parts = {
            item: _part_by_value(own, max(worth[item] for worth in others))
            for item, own in values[player].items()
        }
        return _claim_share(observation, parts)
    if "value" in facts:
        return _claim_share(observation, _part_by_value(facts["value"], facts["other_value"]))
    theirs = last_named(facts["heard"], HANDS)
    ahead = 0 if theirs is None else (HANDS.index(facts["hand"]) - HANDS.index(theirs)) % 3
    return _claim_share(observation, {0: 0.5, 1: 1.0, 2: 0.0}[ahead])


def own_hand(observation: Observation) -> str:
    """The truth about the own hand, where it is private."""
    hand = observation.facts.get("hand")
    return LINE if hand is None else f"My hand is {hand}."
