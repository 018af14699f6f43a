"""Sentences that the full wordings of several games share."""

from collections.abc import Sequence

from coplay.games.answers import wrap_answer
from coplay.games.replies import quote_text


def listed(items: Sequence[str], numbers: Sequence[int]) -> str:
    """`1 books, 0 hats, 2 balls`."""
    return ", ".join(f"{number} {item}" for item, number in zip(items, numbers, strict=True))


def heard_from(speaker: str, text: str) -> str:
    """What another said, quoted; that he said nothing, where it is empty."""
    return f"{speaker} says: {quote_text(text)}" if text else f"{speaker} says nothing."


def round_opening(number: int, num_rounds: int, last: tuple[bool, str] | None) -> list[str]:
    """The first lines of a round of dealing.

    Args:
        number: of the round, from 1.
        last: whether the last round ended in a deal, and what it brought, as a clause; None in the first round.
    """
    lines = [f"Round {number} of {num_rounds}."]
    if last is not None:
        agreed, gain = last
        lines.append(f"Last round ended in {'a deal' if agreed else 'no deal'}; {gain}.")
    return lines


def reply_with_a_legal_move(tag: str | None) -> str:
    """How to choose among legal moves that are shown at each turn, in the tag if there is one."""
    form = "" if tag is None else f" as {wrap_answer(tag, '...')}"
    return f"Reply with one of them{form}. Any other reply counts as the first of the legal moves."
