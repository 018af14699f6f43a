"""How scripted agents negotiate: from what they are told to a move, without a memory of their own.

`greedy` asks for everything and takes any gain; `fair` asks for the least that is worth half of what he could
get, and takes no less than half; `hardliner` asks for everything and takes no less than four fifths; `bayesian`
asks for what pays best on average against a `fair` other whose values he does not know, and takes what is worth
half; `subgame_perfect` plays alternating offers by backward induction.
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from itertools import product
from typing import Any

from coplay.games import Fields, FreeText, Move, Observation, OneOf
from coplay.games.alternating_offers import subgame_perfect_offer
from coplay.games.deal_instances import all_instances

Negotiate = Callable[[Observation, str], Any]
"""From an observation and the own name to a move value."""

TAKE = "I take "
LEAST = {
    "greedy": Fraction(0),
    "fair": Fraction(1, 2),
    "hardliner": Fraction(4, 5),
    "bayesian": Fraction(1, 2),
}
"""The least share of what he could get at best that a strategy takes (but never nothing)."""

Bundle = tuple[int, ...]


def _worth(bundle: Bundle, values: Bundle) -> int:
    return sum(units * value for units, value in zip(bundle, values, strict=True))


def _rest(counts: Bundle, bundle: Bundle) -> Bundle:
    return tuple(count - units for count, units in zip(counts, bundle, strict=True))


def _bundles(counts: Bundle) -> list[Bundle]:
    return list(product(*(range(count + 1) for count in counts)))


def acceptable(strategy: str, worth: float, best: float) -> bool:
    """True if a strategy takes what is worth so much to it, where `best` is what it could get at best."""
    return worth > 0 and worth >= LEAST[strategy] * best


@lru_cache(maxsize=8192)
def wish(strategy: str, counts: Bundle, values: Bundle) -> Bundle:
    """The units of each item that a strategy asks for."""
    best = _worth(counts, values)
    if strategy == "fair":
        enough = [bundle for bundle in _bundles(counts) if 2 * _worth(bundle, values) >= best]
        return min(enough, key=lambda bundle: (_worth(bundle, values), sum(bundle), bundle))
    if strategy == "bayesian":
        return max(
            _bundles(counts),
            key=lambda bundle: _worth(bundle, values) * _taken_by_fair(counts, values, _rest(counts, bundle)),
        )
    return counts


@lru_cache(maxsize=64)
def _values_by_counts(counts: Bundle) -> Mapping[Bundle, tuple[Bundle, ...]]:
    """What the other's values may be, each equally likely, by the own ones."""
    found: dict[Bundle, list[Bundle]] = {}
    for instance in all_instances():
        if instance.counts == counts:
            found.setdefault(instance.values[0], []).append(instance.values[1])
    return {own: tuple(others) for own, others in found.items()}


def _taken_by_fair(counts: Bundle, values: Bundle, offer: Bundle) -> Fraction:
    others = _values_by_counts(counts).get(values, ())
    taken = sum(acceptable("fair", _worth(offer, theirs), _worth(counts, theirs)) for theirs in others)
    return Fraction(taken, max(1, len(others)))


def _announced(items: tuple[str, ...], counts: Bundle, texts: list[str]) -> Bundle | None:
    """The claim in the last text, if it is one."""
    if not texts or not texts[-1].startswith(TAKE):
        return None
    action = Fields(items, 0, counts).parse(texts[-1].removeprefix(TAKE))
    return tuple(action.value.values()) if isinstance(action, Move) else None


def said(observation: Observation, text: str) -> dict[str, str]:
    """A message as a move, cut to the limit."""
    grammar = observation.grammar
    assert isinstance(grammar, OneOf)
    message = grammar.option("message")
    assert isinstance(message, FreeText)
    return {"message": text[: message.max_characters].strip()}


def deal_or_no_deal(strategy: str) -> Negotiate:
    """Say once what you take; take what the other leaves if it is enough; else hold on to what you said."""

    def negotiate(observation: Observation, player: str) -> Any:
        facts = observation.facts
        items = tuple(facts["counts"])
        counts, values = tuple(facts["counts"].values()), tuple(facts["values"].values())
        best = _worth(counts, values)
        if facts["phase"] == "answer":
            offer = tuple(facts["offer"].values())
            return "accept" if acceptable(strategy, _worth(offer, values), best) else "reject"
        own = wish(strategy, counts, values)
        theirs = _announced(items, counts, facts["heard"])
        left = None if theirs is None else _rest(counts, theirs)
        follows = left is not None and acceptable(strategy, _worth(left, values), best)
        taken = left if follows and left is not None and not (facts["closed"] and facts["said"]) else own
        if facts["phase"] == "talk" and not follows and not facts["said"]:
            return said(
                observation, TAKE + " ".join(f"{n} {item}" for item, n in zip(items, own, strict=True))
            )
        claim = dict(zip(items, taken, strict=True))
        return {"deal": claim} if facts["phase"] == "talk" else claim

    return negotiate


def bargaining(strategy: str) -> Negotiate:
    """Propose your wish at every turn; accept what is enough. Symbols say nothing."""

    def negotiate(observation: Observation, player: str) -> Any:
        facts, grammar = observation.facts, observation.grammar
        if facts["phase"] == "message":
            assert isinstance(grammar, Fields)
            return dict.fromkeys(grammar.names, 0)
        counts, values = tuple(facts["counts"].values()), tuple(facts["values"].values())
        own = dict(zip(facts["counts"], wish(strategy, counts, values), strict=True))
        if not facts["accepts"]:
            return own
        offer = tuple(facts.get("offer", dict.fromkeys(own, 0)).values())
        enough = acceptable(strategy, _worth(offer, values), _worth(counts, values))
        return {"answer": "accept"} if enough else {"proposal": own}

    return negotiate


def offers(strategy: str) -> Negotiate:
    """Offer what is left of your wish; accept what is enough; reject to the end what is not."""

    def negotiate(observation: Observation, player: str) -> Any:
        facts = observation.facts
        coins, made, most = facts["coins"], facts["num_offers"], facts["max_offers"]
        other = next(name for name in facts["discounts"] if name != player)
        discounts = (facts["discounts"][player], facts["discounts"][other])
        offer = {"fair": (coins + 1) // 2, "greedy": 0, "hardliner": 0}.get(strategy)
        if offer is None:
            offer = subgame_perfect_offer(coins, discounts, most - made)
        if not made:
            return offer
        if strategy == "subgame_perfect":
            later = Fraction(str(discounts[0])) * (coins - offer) if made < most else 0
            takes = facts["offer"] >= later
        else:
            takes = acceptable(strategy, facts["offer"], coins)
        if made == most:
            return "accept" if takes else "reject"
        return {"answer": "accept"} if takes else {"offer": offer}

    return negotiate


OFFERS = {strategy: offers(strategy) for strategy in ("greedy", "fair", "hardliner", "subgame_perfect")}

NEGOTIATORS: dict[str, dict[str, Negotiate]] = {
    "alternating_offers": OFFERS,
    "bargaining": {strategy: bargaining(strategy) for strategy in ("greedy", "fair", "hardliner")},
    "ultimatum": OFFERS,
    "deal_or_no_deal": {strategy: deal_or_no_deal(strategy) for strategy in LEAST},
}
"""By game, then by strategy."""
