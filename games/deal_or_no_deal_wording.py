"""What players of deal or no deal read, in full sentences and in few tokens."""

from dataclasses import dataclass

from coplay.games.deal_or_no_deal_parameters import DealOrNoDealParameters
from coplay.games.parameters import join_names
from coplay.games.replies import quote_text
from coplay.games.sentences import heard_from, listed, round_opening


@dataclass(frozen=True, slots=True, kw_only=True)
class DealView:
    """What one seat knows at one of its turns."""

    seat: int
    number: int
    """Of the round, from 1."""
    starts: bool
    """True until the seat has spoken in this round."""
    counts: tuple[int, ...]
    values: tuple[int, ...]
    """The seat's own."""
    heard: tuple[str, ...]
    """What the other said since the seat's last turn."""
    closed: bool
    """True if the other has said what he takes."""
    offer: tuple[int, ...]
    """What he leaves, where it is to be accepted or rejected."""
    phase: str
    last: tuple[bool, int] | None
    """Whether the last round ended in a deal, and the seat's points; None in the first round."""


def terse_rules(told: DealOrNoDealParameters, seat: int, message: str) -> str:
    """Items, then what follows a letter.

    `m`: messages, their length; `deal` where the second accepts or rejects; `x`: number of rounds.
    """
    parts = [*told.items]
    if told.max_messages:
        parts.append(f"m {told.max_messages} {told.max_message_characters}")
    if told.final_deal == "sequential":
        parts.append("deal accept reject")
    return " ".join([*parts, f"x {told.num_rounds}"])


def terse_turn(told: DealOrNoDealParameters, view: DealView, reply: str) -> str:
    """Last round's `yes` or `no` and points (`go` in the first), counts, own values; what was said; what is wanted.

    `say`: a message or a claim; `claim`: what one takes; `offer`: what the other leaves, to accept or reject.
    """
    parts: list[str] = []
    if view.starts:
        parts += ["go"] if view.last is None else ["yes" if view.last[0] else "no", str(view.last[1])]
        parts += [str(number) for number in (*view.counts, *view.values)]
    parts += [quote_text(text) for text in view.heard]
    if view.phase == "answer":
        parts += ["offer", *map(str, view.offer)]
    else:
        parts.append("say" if view.phase == "talk" else "claim")
    return " ".join(parts)


def full_rules(told: DealOrNoDealParameters, seat: int, message: str) -> str:
    """Who plays, what is divided and how, and how to reply."""
    other = told.players[1 - seat]
    several = told.num_rounds > 1
    lines = [
        f"You are {told.players[seat]}. You divide items with {other}.",
        f"There {f'are {told.num_rounds} rounds' if several else 'is one round'}. In {'each' if several else 'it'}"
        f" there are some {join_names(told.items)}, and each of you is told what one is worth to him; neither knows"
        " the other's values.",
    ]
    ends = f"After {told.max_messages} messages in all, whoever is next must do so."
    if told.max_messages:
        lines.append(
            "You take turns. At your turn, send a message, or end the talk by saying what you take yourself."
            f" {ends} A message is {message}; what is longer is cut."
        )
    if told.final_deal == "sequential":
        lines.append(
            "One says what he takes; the other sees it and accepts the rest or rejects. Rejected, or with a reply"
            " that is neither, there is no deal."
        )
    else:
        lines.append(
            "One says what he takes; then the other does, without being told. If the two claims together are"
            " exactly what there is, it is a deal; otherwise, or if a reply is no claim, there is none."
        )
    lines.append(
        "In a deal you get your values of what you take as points, without one nobody gets anything. You want as"
        " many points as you can get over the whole game."
    )
    return "\n".join(lines)


def full_turn(told: DealOrNoDealParameters, view: DealView, reply: str) -> str:
    """What is new at one turn."""
    other = told.players[1 - view.seat]
    lines = []
    if view.starts:
        last = None if view.last is None else (view.last[0], f"you got {view.last[1]} points")
        lines += round_opening(view.number, told.num_rounds, last)
        lines.append(f"There are {listed(told.items, view.counts)}.")
        worth = ", ".join(f"{item} {value}" for item, value in zip(told.items, view.values, strict=True))
        lines.append(f"Values of one to you: {worth}.")
    lines += [heard_from(other, text) for text in view.heard]
    if view.phase == "answer":
        lines.append(f"{other} leaves you {listed(told.items, view.offer)}. Do you accept?")
    elif view.closed:
        lines.append(f"{other} has said what he takes.")
    asked = {
        "talk": f"Your message to {other}, or what you take?",
        "deal": "What do you take?",
        "answer": "",
    }[view.phase]
    return "\n".join([*lines, *([asked] if asked else []), f"Reply with {reply}."])
