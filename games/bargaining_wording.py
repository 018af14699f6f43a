"""What players of bargaining read, in full sentences and in few tokens."""

from dataclasses import dataclass

from coplay.games.bargaining_parameters import BargainingParameters
from coplay.games.parameters import join_names
from coplay.games.replies import number_text, quote_text
from coplay.games.sentences import heard_from, listed, round_opening


@dataclass(frozen=True, slots=True, kw_only=True)
class BargainingView:
    """What one seat is told at one of its turns."""

    seat: int
    number: int
    """Of the round, from 1."""
    starts: bool
    """True where the round's pool is to be told."""
    counts: tuple[int, ...]
    values: tuple[int, ...]
    """The seat's own."""
    heard: str | None
    """The message that came with the other's last proposal; None where there is none to tell."""
    offer: tuple[int, ...]
    """What the other's proposal leaves, where it is to be told."""
    speaks: bool
    """True: a message is asked for; False: a proposal or an answer."""
    accepts: bool
    """True where there is a proposal to accept."""
    last: tuple[bool, float] | None
    """Whether the last round ended in a deal, and the seat's pay; None in the first round."""


def terse_rules(told: BargainingParameters, seat: int, message: str) -> str:
    """Items, then what follows a letter or word.

    `-`: range of turns; `m`: symbols and alphabet, or the length of a text; `all`: pay is a part of the whole;
    `hands` where proposals are not seen; `x`: number of rounds.
    """
    parts = [*told.items, f"{told.min_turns} - {told.max_turns}"]
    if told.messages == "symbols":
        parts.append(f"m {told.num_symbols} {told.alphabet_size}")
    elif told.messages == "text":
        parts.append(f"m {told.max_message_characters}")
    parts += ["all"] if told.reward == "fraction" else []
    parts += [] if told.show_proposals else ["hands"]
    return " ".join([*parts, f"x {told.num_rounds}"])


def terse_turn(told: BargainingParameters, view: BargainingView, reply: str) -> str:
    """Last round's `yes` or `no` and pay (`go` in the first), counts, own values; message, offer; what is wanted.

    `say`: a message; `claim`: a proposal; `deal`: a proposal or accept.
    """
    parts: list[str] = []
    if view.starts:
        parts += ["go"] if view.last is None else ["yes" if view.last[0] else "no", _pay(view.last[1])]
        parts += [str(number) for number in (*view.counts, *view.values)]
    parts += [] if view.heard is None else [quote_text(view.heard)]
    parts += ["offer", *map(str, view.offer)] if view.offer else []
    return " ".join([*parts, "say" if view.speaks else "deal" if view.accepts else "claim"])


def full_rules(told: BargainingParameters, seat: int, message: str) -> str:
    """Who plays, what is divided and how, and how long it lasts."""
    other = told.players[1 - seat]
    several = told.num_rounds > 1
    lines = [
        f"You are {told.players[seat]}. You divide items with {other}.",
        f"There {f'are {told.num_rounds} rounds' if several else 'is one round'}. In {'each' if several else 'it'}"
        f" there are 0 to {told.max_count} units each of {join_names(told.items)}. Each of you has values of his own"
        f" for a unit, from 0 to {told.max_value}; neither knows the other's.",
        "You take turns. At your turn, propose what you take yourself, or accept the other's last proposal, which"
        " gives you the rest and ends the round. The number of turns is drawn by lot, from"
        f" {told.min_turns} to {told.max_turns} for both together, and not told; when they are over without an"
        " acceptance, nobody gets anything.",
    ]
    if told.messages != "none":
        cut = "; what is longer is cut" if told.messages == "text" else ""
        lines.append(f"Before each of these moves you send a message, which {other} gets: {message}{cut}.")
    if not told.show_proposals:
        lines.append("Proposals bind, but nobody sees the other's.")
    pay = (
        "Your pay is the value of what you get, as a part of what all would be worth to you."
        if told.reward == "fraction"
        else "Your pay is the value of what you get."
    )
    lines.append(
        f"{pay} You want as much as you can get over the whole game. A reply that is no move takes back your last"
        " proposal and makes none; a reply that is no message is silence."
    )
    return "\n".join(lines)


def full_turn(told: BargainingParameters, view: BargainingView, reply: str) -> str:
    """What is new at one turn."""
    other = told.players[1 - view.seat]
    lines = []
    if view.starts:
        last = None if view.last is None else (view.last[0], f"your pay was {_pay(view.last[1])}")
        lines += round_opening(view.number, told.num_rounds, last)
        lines.append(f"There are {listed(told.items, view.counts)}.")
        worth = ", ".join(f"{item} {value}" for item, value in zip(told.items, view.values, strict=True))
        lines.append(f"Values of one to you: {worth}.")
    if view.heard is not None:
        lines.append(heard_from(other, view.heard))
    if view.offer:
        lines.append(f"{other}'s proposal leaves you {listed(told.items, view.offer)}.")
    if view.speaks:
        asked = f"Your message to {other}?"
    elif view.accepts:
        asked = "Do you accept, or what do you propose to take?"
    else:
        asked = "What do you propose to take?"
    return "\n".join([*lines, f"{asked} Reply with {reply}."])


def _pay(pay: float) -> str:
    return number_text(round(pay, 2))
