"""What players of an iterated matrix game read, in full sentences and in few tokens."""

from dataclasses import dataclass

from coplay.games.parameters import join_names
from coplay.games.replies import number_text

Cell = tuple[str, str, float, float]
"""Own move, the other's move, own pay, the other's pay."""


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


def full_rules(rules: MatrixRules) -> str:
    """Who plays, the table, how long it goes on, and how to reply."""
    several = len(rules.others) > 1
    other = "the other" if several else rules.others[0]
    table = "\n".join(
        f"- you play {own}, {other} plays {their}: you get {number_text(pay)}, {other} gets"
        f" {number_text(theirs)}"
        for own, their, pay, theirs in rules.cells
    )
    meets = "\nYour one move meets the move of every other player; your points are the mean over these pairs."
    ends = f"There are {rules.num_rounds} rounds."
    if rules.continuation_probability is not None:
        going = number_text(rules.continuation_probability)
        ends = f"After each round the game goes on with probability {going}, up to {rules.num_rounds} rounds."
    game = "a game" if rules.title is None else f"the {rules.title}"
    return (
        f"You are {rules.player}. You play {game} with {join_names(rules.others)}.\n"
        f"In every round all choose a move at the same time. Your moves: {', '.join(rules.moves)}.\n"
        f"Points in a round:\n{table}{meets if several else ''}\n"
        f"{ends} You want as many points as you can get over the whole game.\n"
        f"Reply with your move: {rules.reply}. Any other reply counts as {rules.fallback}."
    )


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
