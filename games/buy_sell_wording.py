"""What buyers and sellers read, in full sentences and in few tokens."""

from dataclasses import dataclass

from coplay.games.buy_sell_parameters import BuySellParameters
from coplay.games.replies import quote_text
from coplay.games.sentences import heard_from, round_opening


@dataclass(frozen=True, slots=True, kw_only=True)
class TradeView:
    """What one seat is told at one of its turns."""

    seat: int
    """0 sells, 1 buys."""
    number: int
    """Of the round, from 1."""
    starts: bool
    """True at the seat's first turn of the round."""
    reservation: int
    """The seller's cost or the buyer's value."""
    turn: int
    """Turns taken in the round."""
    heard: str | None
    """The other's message, if that was his last move; silence is empty."""
    price: int | None
    """The other's price, if that was his last move."""
    last: tuple[bool, int] | None
    """Whether the last round ended in a deal, and the seat's points; None in the first round."""


def terse_rules(told: BuySellParameters, seat: int, reply: str) -> str:
    """Role and range of prices, then what follows a letter.

    `give`: sells; `get`: buys; `more`: the value is above the cost; `t` turns; `m`: length of messages; `x`: number
    of rounds.
    """
    parts = ["give" if seat == 0 else "get", f"coins 0 - {told.max_price}"]
    parts += ["more"] if told.always_gains else []
    parts.append(f"t {told.max_turns}")
    parts += [f"m {told.max_message_characters}"] if told.talk else []
    return " ".join([*parts, f"x {told.num_rounds}"])


def terse_turn(told: BuySellParameters, view: TradeView, reply: str) -> str:
    """Last round's `yes` or `no` and points (`go` in the first), own reservation price; message or `offer` price."""
    parts: list[str] = []
    if view.starts:
        parts += ["go"] if view.last is None else ["yes" if view.last[0] else "no", str(view.last[1])]
        parts.append(str(view.reservation))
    if view.price is not None:
        parts += ["offer", str(view.price)]
    elif view.heard is not None:
        parts.append(quote_text(view.heard))
    return " ".join(parts)


def full_rules(told: BuySellParameters, seat: int, reply: str) -> str:
    """Who sells what to whom, what each knows, and how to reply."""
    seller, buyer = told.players
    several = told.num_rounds > 1
    most = told.max_price
    gains = " The value is always above the cost." if told.always_gains else ""
    lines = [
        f"You are {told.players[seat]}. {seller} may sell one thing to {buyer}"
        f"{f' in each of {told.num_rounds} rounds' if several else ''}.",
        f"It costs {seller} something to part with it, and it has a value for {buyer}: whole numbers from 0 to {most},"
        f" drawn by lot. {seller} alone knows the cost, {buyer} alone the value.{gains}",
        f"You take turns. At your turn, {'say something, ' if told.talk else ''}name a price from 0 to {most}, accept"
        " the other's last price, or end without a deal. A price stands until its owner names another. After"
        f" {told.max_turns} turns in all there is no deal.",
    ]
    if told.talk:
        lines.append(
            f"A message has at most {told.max_message_characters} characters; what is longer is cut. What stands"
            " beside a price or an answer is not heard."
        )
    own = "the price less the cost" if seat == 0 else "the value less the price"
    lines.append(
        f"In a deal your points are {own}, which may be less than nothing; without one they are 0. You want as many"
        " points as you can get over the whole game. A reply that is no move is silence."
    )
    return "\n".join(lines)


def full_turn(told: BuySellParameters, view: TradeView, reply: str) -> str:
    """What is new at one turn."""
    other = told.players[1 - view.seat]
    lines = []
    if view.starts:
        last = None if view.last is None else (view.last[0], f"you got {view.last[1]} points")
        lines += round_opening(view.number, told.num_rounds, last)
        lines.append(f"Your {'cost' if view.seat == 0 else 'value'} is {view.reservation}.")
    if view.price is not None:
        lines.append(f"{other} names the price {view.price}.")
    elif view.heard is not None:
        lines.append(heard_from(other, view.heard))
    return "\n".join([*lines, f"Turn {view.turn + 1} of {told.max_turns}. Reply with {reply}."])
