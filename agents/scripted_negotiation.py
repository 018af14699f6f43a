"""How scripted agents negotiate: from what they are told to a move, without a memory of their own.

`greedy` asks for everything and takes any gain; `fair` asks for the least that is worth half of what he could
get, and takes no less than half; `lenient` asks for as much and takes no less than two fifths; `hardliner` asks
for everything and takes no less than four fifths; `bayesian` asks for what pays best on average against a `fair`
other whose values he does not know, and takes what is worth half; `subgame_perfect` plays alternating offers by
backward induction. What the strategies of buyers and sellers, and of traders, do stands with `buy_sell` and `trading`.
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from itertools import product
from typing import Any

from coplay.games import Choice, Fields, FreeText, Move, Observation, OneOf
from coplay.games.alternating_offers import subgame_perfect_offer
from coplay.games.deal_instances import all_instances

Negotiate = Callable[[Observation, str], Any]
"""From an observation and the own name to a move value."""

TAKE = "I take "
LEAST = {
    "greedy": Fraction(0),
    "fair": Fraction(1, 2),
    "lenient": Fraction(2, 5),
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
    if strategy in ("fair", "lenient"):
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


def trading(strategy: str) -> Negotiate:
    """Give a unit of what you value least for what you value most: a unit (`fair`) or all he has (`greedy`).

    Of those who have it the next one in turn is asked, another one each round; any gain is accepted.
    """

    def negotiate(observation: Observation, player: str) -> Any:
        facts, grammar = observation.facts, observation.grammar
        values, holdings, phase = facts["values"], facts["holdings"], facts["phase"]
        if phase == "answer":
            gain = sum((facts["give"][good] - facts["get"][good]) * worth for good, worth in values.items())
            return "accept" if gain > 0 else "reject"
        seats = list(holdings)
        start = seats.index(player) + facts["round"]
        others = [
            name for name in seats[start % len(seats) :] + seats[: start % len(seats)] if name != player
        ]
        least = min((good for good in values if holdings[player][good]), key=values.__getitem__, default=None)
        wanted = [good for good in values if any(holdings[name][good] for name in others)]
        best = max(wanted, key=values.__getitem__, default=None)
        if phase == "partner":
            assert isinstance(grammar, Choice)
            if least is None or best is None or values[best] <= values[least]:
                return grammar.options[-1]
            partner = next(name for name in others if holdings[name][best])
            return grammar.options[[name for name in seats if name != player].index(partner)]
        units = holdings[facts["partner"]][best] if phase == "get" and strategy == "greedy" else 1
        return dict.fromkeys(values, 0) | {least if phase == "give" else best: units}

    return negotiate


def buy_sell(strategy: str) -> Negotiate:
    """Name the strategy's price; accept one that is no worse than the own one would be now, or any gain.

    `greedy` names the price that is best for him, `truthful` his reservation price, `bayesian` the one that gains
    most on average if the other takes any gain, `conceding` goes from the best to his reservation price in equal
    steps. The first takes any gain, the next two no loss, the last nothing worse than what he would name.
    """

    def negotiate(observation: Observation, player: str) -> Any:
        facts = observation.facts
        sells, limit, most = facts["role"] == "seller", facts["reservation"], facts["max_price"]
        best = most if sells else 0
        own = best
        if strategy == "truthful":
            own = limit
        elif strategy == "bayesian":
            own = best_price(limit, most, sells=sells)
        elif strategy == "conceding":
            steps = max(1, facts["max_turns"] // 2 - 1)
            own = best + int((limit - best) * min(facts["turn"] // 2, steps) / steps)
        offered = next((price for name, price in facts["prices"].items() if name != player), None)
        if offered is not None:
            gain = offered - limit if sells else limit - offered
            better = offered >= own if sells else offered <= own
            if {"greedy": gain > 0, "conceding": better and gain >= 0}.get(strategy, gain >= 0):
                return {"answer": "accept"}
        return {"price": own}

    return negotiate


@lru_cache(maxsize=4096)
def best_price(limit: int, most: int, *, sells: bool) -> int:
    """The price that gains most on average against a uniform other who takes what loses him nothing.

    A seller of cost c: argmax_p (p - c)·(C + 1 - p), near (C + 1 + c)/2; a buyer of value v: argmax_p (v - p)·(p + 1).
    Of equal prices the one that is easier on the other.
    """
    if sells:
        return max(range(limit, most + 1), key=lambda price: ((price - limit) * (most + 1 - price), -price))
    return max(range(limit + 1), key=lambda price: ((limit - price) * (price + 1), price))


def offers(strategy: str) -> Negotiate:
    """Offer what is left of your wish; accept what is enough; reject to the end what is not."""

    def negotiate(observation: Observation, player: str) -> Any:
        facts = observation.facts
        coins, made, most = facts["coins"], facts["num_offers"], facts["max_offers"]
        other = next(name for name in facts["discounts"] if name != player)
        discounts = (facts["discounts"][player], facts["discounts"][other])
        offer = {"fair": (coins + 1) // 2, "lenient": (coins + 1) // 2, "greedy": 0, "hardliner": 0}.get(
            strategy
        )
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


BUY_SELL = ("greedy", "truthful", "bayesian", "conceding")
OFFERS = {
    strategy: offers(strategy) for strategy in ("greedy", "fair", "lenient", "hardliner", "subgame_perfect")
}

NEGOTIATORS: dict[str, dict[str, Negotiate]] = {
    "alternating_offers": OFFERS,
    "buy_sell": {strategy: buy_sell(strategy) for strategy in BUY_SELL},
    "trading": {strategy: trading(strategy) for strategy in ("greedy", "fair")},
    "bargaining": {strategy: bargaining(strategy) for strategy in ("greedy", "fair", "lenient", "hardliner")},
    "ultimatum": OFFERS,
    "deal_or_no_deal": {strategy: deal_or_no_deal(strategy) for strategy in LEAST},
}
"""By game, then by strategy."""
