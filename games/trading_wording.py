"""What traders read, in full sentences and in few tokens."""

from dataclasses import dataclass

from coplay.games.parameters import join_names
from coplay.games.trading_parameters import PASSES, TradingParameters

LETTERS = "ABCDEFGHIJ"
"""Names of the seats in the terse wording."""

Bundle = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Offer:
    """One player's offer to another, and what became of it."""

    proposer: int
    partner: int
    give: Bundle
    get: Bundle
    accepted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketView:
    """What one seat is told at one of its turns."""

    seat: int
    number: int
    """Of the round, from 1."""
    phase: str
    """`partner`, `give`, `get` or `answer`."""
    news: tuple[Offer, ...]
    """Trades since the seat's last turn, and its own offer if that was rejected."""
    values: Bundle
    """The seat's own."""
    holdings: tuple[Bundle, ...]
    starts: bool
    """True at the seat's first turn of the game."""
    partner: int
    """Whom the seat's offer goes to, or who makes the one to answer; -1 before it is known."""
    give: Bundle
    """What the proposer gives, once it is known."""
    get: Bundle
    """What the proposer gets, in an offer to answer."""


def bundle_text(goods: tuple[str, ...], numbers: Bundle) -> str:
    """The goods of which there are some: `2 wheat and 1 gold`, or `nothing`."""
    some = tuple(f"{number} {good}" for good, number in zip(goods, numbers, strict=True) if number)
    return join_names(some) if some else "nothing"


def terse_rules(told: TradingParameters, seat: int, reply: str) -> str:
    """Goods, units to begin with, then what follows a word or letter.

    `all`: of each good, `my`: of the one in the seat's place; `v`: range of values; `you`: the own letter; `n`:
    number of players; `x`: number of rounds.
    """
    start = "all" if told.endowment == "equal" else "my"
    return (
        f"{' '.join(told.goods)} {start} {told.units} v 1 - {told.max_value} you {LETTERS[seat]}"
        f" n {len(told.players)} x {told.num_rounds}"
    )


def terse_turn(told: TradingParameters, view: MarketView, reply: str) -> str:
    """Own values at first; trades as two letters, units given, units got, `no` if rejected; what is wanted.

    `move`: whom to offer, `give` and `get` units; or `offer`, who makes it, what he gives and gets.
    """
    parts: list[str] = []
    if view.starts:
        parts += ["go", *map(str, view.values)]
    for offer in view.news:
        parts += [LETTERS[offer.proposer], LETTERS[offer.partner]]
        parts += [str(number) for number in (*offer.give, *offer.get)] if offer.accepted else ["no"]
    if view.phase == "answer":
        parts += ["offer", LETTERS[view.partner], *map(str, view.give), *map(str, view.get)]
    else:
        parts.append({"partner": "move", "give": "give", "get": "get"}[view.phase])
    return " ".join(parts)


def full_rules(told: TradingParameters, seat: int, reply: str) -> str:
    """Who trades what, what each knows, and how."""
    others = tuple(player for place, player in enumerate(told.players) if place != seat)
    if told.endowment == "equal":
        begins = f"Everyone begins with {told.units} units of each."
    else:
        own = (
            f"{player} with {told.units} {good}"
            for player, good in zip(told.players, told.goods, strict=True)
        )
        begins = f"You begin with one good each: {join_names(tuple(own))}."
    return "\n".join(
        (
            f"You are {told.players[seat]}. You trade {join_names(told.goods)} with {join_names(others)}.",
            f"{begins} Everyone sees what everyone has. Each has values of his own for a unit of each good, from 1 to"
            f" {told.max_value}, drawn by lot; nobody knows another's.",
            f"There are {told.num_rounds} rounds. In each, one player, in turn, may make one offer to one other: units"
            " that he gives for units that he gets. The other accepts or rejects. Everyone is told of a trade.",
            "When you trade, your points are the value to you of what you get less that of what you give. You want as"
            " many points as you can get over the whole game.",
            "A reply that is no move passes, gives nothing, asks for nothing, or rejects.",
        )
    )


def full_turn(told: TradingParameters, view: MarketView, reply: str) -> str:
    """What is new at one turn."""
    goods, players = told.goods, told.players
    lines = []
    if view.starts:
        worth = ", ".join(f"{good} {value}" for good, value in zip(goods, view.values, strict=True))
        lines.append(f"Values of a unit to you: {worth}.")
    for offer in view.news:
        who = "You" if offer.proposer == view.seat else players[offer.proposer]
        whom = players[offer.partner]
        if offer.accepted:
            lines.append(
                f"{who} gave {whom} {bundle_text(goods, offer.give)} for {bundle_text(goods, offer.get)}."
            )
        else:
            lines.append(f"{whom} rejected your offer.")
    if view.phase in ("partner", "answer"):
        lines.append(f"Round {view.number} of {told.num_rounds}.")
        have = (
            f"{'you' if place == view.seat else players[place]}: {bundle_text(goods, units)}"
            for place, units in enumerate(view.holdings)
        )
        lines.append(f"What everyone has: {'; '.join(have)}.")
    partner = players[view.partner] if view.partner >= 0 else ""
    if view.phase == "answer":
        given, wanted = bundle_text(goods, view.give), bundle_text(goods, view.get)
        asked = f"{partner} offers you {given} for {wanted}. Do you accept?"
    else:
        asked = {
            "partner": f"Whom do you make an offer, or do you {PASSES}?",
            "give": f"What do you give {partner}?",
            "get": f"What do you want from {partner} for it?",
        }[view.phase]
    return "\n".join([*lines, f"{asked} Reply with {reply}."])
