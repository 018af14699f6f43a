"""What players of alternating offers and of the ultimatum game read, in full sentences and in few tokens."""

from dataclasses import dataclass

from coplay.games.replies import number_text
from coplay.games.sentences import round_opening


@dataclass(frozen=True, slots=True, kw_only=True)
class OffersView:
    """What one seat is told at one of its turns."""

    number: int
    """Of the round, from 1."""
    starts: bool
    """True at the seat's first turn of the round."""
    offer: int | None
    """The other's, None before the first."""
    num_offers: int
    last: tuple[bool, float] | None
    """Whether the last round ended in a deal, and the seat's points; None in the first round."""


def terse_rules(
    players: tuple[str, ...],
    seat: int,
    coins: int,
    max_offers: int,
    discounts: tuple[float, ...],
    num_rounds: int,
) -> str:
    """Coins, then what follows a word or letter.

    `offers`: how many; `n`: own and the other's discount; `x`: number of rounds.
    """
    parts = [f"coins {coins} offers {max_offers}"]
    if max_offers > 1:
        parts.append(f"n {number_text(discounts[seat])} {number_text(discounts[1 - seat])}")
    return " ".join([*parts, f"x {num_rounds}"])


def terse_turn(view: OffersView, other: str, num_rounds: int, max_offers: int, reply: str) -> str:
    """Last round's `yes` or `no` and points, and what is offered, `end` after the last offer; or `go`."""
    parts: list[str] = []
    if view.starts and view.last is not None:
        parts += ["yes" if view.last[0] else "no", number_text(round(view.last[1], 2))]
    parts += ["go"] if view.offer is None else ["offer", str(view.offer)]
    if view.num_offers == max_offers > 1:
        parts.append("end")
    return " ".join(parts)


def full_rules(
    players: tuple[str, ...],
    seat: int,
    coins: int,
    max_offers: int,
    discounts: tuple[float, ...],
    num_rounds: int,
) -> str:
    """Who plays, who offers when, what delay costs."""
    player, other = players[seat], players[1 - seat]
    rounds = (
        "There is one round."
        if num_rounds == 1
        else f"There are {num_rounds} rounds; who offers first changes."
    )
    lines = [f"You are {player}. You divide {coins} coins with {other}.", rounds]
    if max_offers == 1:
        lines.append(
            "One offers the other some of the coins and keeps the rest; the other accepts or rejects. Rejected,"
            " nobody gets anything."
        )
    else:
        own, theirs = number_text(discounts[seat]), number_text(discounts[1 - seat])
        lines.append(
            "One offers the other some of the coins and keeps the rest; the other accepts, or rejects by offering"
            f" himself, and so on in turn. After {max_offers} offers the next must accept or reject; rejected,"
            " nobody gets anything."
        )
        lines.append(
            f"Every rejected offer makes later coins worth less: yours are multiplied by {own}, {other}'s by"
            f" {theirs}."
        )
    lines.append(
        "A reply that is no move offers nothing, and after the last offer rejects. Your points are your coins. You"
        " want as many points as you can get over the whole game."
    )
    return "\n".join(lines)


def full_turn(view: OffersView, other: str, num_rounds: int, max_offers: int, reply: str) -> str:
    """What is new at one turn."""
    lines = []
    if view.starts:
        last = (
            None
            if view.last is None
            else (view.last[0], f"you got {number_text(round(view.last[1], 2))} points")
        )
        lines += round_opening(view.number, num_rounds, last)
    if view.offer is None:
        lines.append(f"How many coins do you offer {other}? Reply with {reply}.")
        return "\n".join(lines)
    lines.append(f"Offer {view.num_offers} of {max_offers}: {other} offers you {view.offer} coins.")
    asked = "Do you accept?" if view.num_offers == max_offers else "Do you accept, or what do you offer?"
    return "\n".join([*lines, f"{asked} Reply with {reply}."])
