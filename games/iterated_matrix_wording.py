"""What players of an iterated matrix game read, in full sentences and in few tokens."""

from dataclasses import dataclass
from typing import Literal

from coplay.games.parameters import join_names
from coplay.games.replies import number_text

Cell = tuple[str, str, float, float]
"""Own move, the other's move, own pay, the other's pay."""

Phrasing = Literal["plain", "friendly", "formal"]

PHRASES: dict[Phrasing, dict[str, str]] = {
    "plain": {
        "row": "- you play {own}, {other} plays {their}: you get {pay}, {other} gets {theirs}",
        "opening": "You are {player}. You play {game} with {others}.\n"
        "In every round all choose a move at the same time. Your moves: {moves}.\n"
        "Points in a round:\n{table}",
        "meets": "\nYour one move meets the move of every other player; your points are the mean over these pairs.",
        "fixed": "\nThere are {rounds} rounds.",
        "random": "\nAfter each round the game goes on with probability {going}, up to {rounds} rounds.",
        "closing": " You want as many points as you can get over the whole game.\n"
        "Reply with your move: {reply}. Any other reply counts as {fallback}.",
    },
    "friendly": {
        "row": "- {own} from you and {their} from {other} bring you {pay} and {other} {theirs}",
        "opening": "Hello {player}! Today you meet {others} in {game}.\n"
        "Each round, everybody picks one option without seeing what the others pick. You can pick: {moves}.\n"
        "This is what the picks bring:\n{table}",
        "meets": "\nYou pick once, for everybody: what you get is the mean over your pairs with each of the others.",
        "fixed": "\nYou will play {rounds} rounds.",
        "random": "\nAfter every round there is a chance of {going} that another one follows; {rounds} are the most.",
        "closing": " Try to collect as many points as you can from first to last.\n"
        "Tell your pick like this: {reply}. Anything else is taken as {fallback}.",
    },
    "formal": {
        "row": "- own action {own}, action {their} of {other}: {pay} points to you, {theirs} points to {other}",
        "opening": "Participant: {player}. Task: {game}. Counterparties: {others}.\n"
        "Actions are chosen simultaneously in each round. Available actions: {moves}.\n"
        "Payoffs of a round:\n{table}",
        "meets": "\nA single action is matched with that of each counterparty; the payoff is the mean over the pairs.",
        "fixed": "\nNumber of rounds: {rounds}.",
        "random": "\nProbability of a further round after each: {going}; maximal number of rounds: {rounds}.",
        "closing": " The objective is the largest total of your own points.\n"
        "Required form of the answer: {reply}. An answer in another form is recorded as {fallback}.",
    },
}
"""The sentences of the rules: of a row of the table, and of each part in the order in which they are told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixRules:
    """The rules as one seat sees them."""

    player: str
    others: tuple[str, ...]
    cells: tuple[Cell, ...]
    """The table row by row, own move first."""
    moves: tuple[str, ...]
    num_rounds: int
    continuation_probability: float | None
    title: str | None
    """The game's name, if it is to be told."""
    reply: str
    """How to write a move."""
    fallback: str
    """The move that any other reply counts as."""


def terse_rules(rules: MatrixRules) -> str:
    """The table, then what follows a letter.

    `x`: number of rounds; `p`: chance to go on, if not fixed; `n`: number of players, if more than two.
    """
    told = [
        f"{own} {other} {number_text(pay)} {number_text(theirs)}" for own, other, pay, theirs in rules.cells
    ]
    told.append(f"x {rules.num_rounds}")
    if rules.continuation_probability is not None:
        told.append(f"p {number_text(rules.continuation_probability)}")
    if len(rules.others) > 1:
        told.append(f"n {len(rules.others) + 1}")
    return " ".join(told)


def terse_round(last: tuple[str, ...], seat: int) -> str:
    """`go`, then nothing but the others' last moves, in the order of players."""
    return " ".join(last[:seat] + last[seat + 1 :]) if last else "go"


def full_rules(rules: MatrixRules, phrasing: Phrasing = "plain") -> str:
    """Who plays, the table, how long it goes on, and how to reply; every phrasing states the same facts."""
    several = len(rules.others) > 1
    other = "the other" if several else rules.others[0]
    row = PHRASES[phrasing]["row"]
    told = {
        "player": rules.player,
        "others": join_names(rules.others),
        "game": "a game" if rules.title is None else f"the {rules.title}",
        "moves": ", ".join(rules.moves),
        "rounds": str(rules.num_rounds),
        "going": number_text(rules.continuation_probability or 0.0),
        "reply": rules.reply,
        "fallback": rules.fallback,
        "table": "\n".join(
            row.format(own=own, their=their, other=other, pay=number_text(pay), theirs=number_text(theirs))
            for own, their, pay, theirs in rules.cells
        ),
    }
    parts = [
        "opening",
        *["meets"] * several,
        "fixed" if rules.continuation_probability is None else "random",
        "closing",
    ]
    return "".join(PHRASES[phrasing][part].format(**told) for part in parts)


def full_round(
    players: tuple[str, ...], seat: int, heading: str, last: tuple[str, ...], pay: tuple[float, ...]
) -> str:
    """Which round it is, and what happened in the last one."""
    text = heading
    if last:
        told = [
            f"{'you' if place == seat else player} played {last[place]} and got"
            f" {number_text(round(pay[place], 6))}"
            for place, player in enumerate(players)
        ]
        text += f" Last round {', '.join(told)}."
    return f"{text} Your move?"
