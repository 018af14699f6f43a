"""What players of the split game read, in full sentences and in few tokens."""

from dataclasses import dataclass

from coplay.games.parameters import join_names
from coplay.games.replies import number_text
from coplay.games.sentences import listed
from coplay.games.split_values import ValueRule

Table = tuple[tuple[int, ...], ...]

RANGES = {
    "ten_one_exclusive": "10 a unit for exactly one player and 1 a unit for everyone else",
    "five_one_exclusive": "5 a unit for exactly one player and 1 a unit for everyone else",
    "ten_one_ties": "10 or 1 a unit, drawn by lot for each player",
    "one_to_twenty": "1 to 20 a unit, drawn by lot for each player",
}
TERSE_RANGES = {
    "ten_one_exclusive": "1 | 10",
    "five_one_exclusive": "1 | 5",
    "ten_one_ties": "1 10",
    "one_to_twenty": "1 - 20",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRules:
    """The rules, the same for every seat."""

    items: tuple[str, ...]
    stock: int
    values: ValueRule
    num_rounds: int
    reward_divisor: float
    reply: str
    """How to write a proposal."""


def terse_rules(rules: SplitRules) -> str:
    """Items, stock, then what follows a letter.

    `v`: values, with `|` where one player alone has the high one, `=` for equal sums, `!` for a conflict;
    `x`: number of rounds; `n`: number of players, if more than two; `/`: what points are divided by, if not 1.
    """
    told = [*rules.items, str(rules.stock), "v", TERSE_RANGES[rules.values.generator]]
    told += ["="] if rules.values.equal_totals else []
    told += ["!"] if rules.values.at_least_one_conflict else []
    told.append(f"x {rules.num_rounds}")
    if rules.values.num_players > 2:
        told.append(f"n {rules.values.num_players}")
    if rules.reward_divisor != 1:
        told.append(f"/ {number_text(rules.reward_divisor)}")
    return " ".join(told)


def terse_round(seat: int, values: Table, last_claims: Table) -> str:
    """The others' last claims (`go` in the first round), own values, the others' values."""
    others = [place for place in range(len(values)) if place != seat]
    claims: list[str | int] = (
        [number for place in others for number in last_claims[place]] if last_claims else []
    )
    worths = [*values[seat], *(number for place in others for number in values[place])]
    return " ".join(map(str, [*(claims or ["go"]), *worths]))


def full_rules(rules: SplitRules, player: str, others: str) -> str:
    """Who plays, what is divided and how, and how to reply."""
    drawn = f"Values are drawn anew each round: an item is worth {RANGES[rules.values.generator]}."
    if rules.values.equal_totals:
        drawn += " Everyone's values have the same sum."
    if rules.values.at_least_one_conflict:
        drawn += " Not all have the same values."
    divided = "" if rules.reward_divisor == 1 else f", divided by {number_text(rules.reward_divisor)},"
    return (
        f"You are {player}. You divide items with {others}, without talking.\n"
        f"There are {rules.num_rounds} rounds. In each, there are {rules.stock} units each of"
        f" {join_names(rules.items)}. {drawn} Everyone sees all values.\n"
        "All say at the same time how many units of each item they want. Where the claims to an item are at"
        f" most {rules.stock} together, each gets his claim and the rest is lost; where they are more, the"
        f" {rules.stock} units are divided in proportion to the claims.\n"
        f"You get your units times your values{divided} as points. You want as many points as you can get over the"
        " whole game.\n"
        f"Reply with your proposal for yourself: {rules.reply}. Any other reply claims nothing."
    )


def full_round(
    heading: str,
    players: tuple[str, ...],
    seat: int,
    items: tuple[str, ...],
    told: tuple[Table, Table, tuple[float, ...]],
) -> str:
    """The values, and the claims and points of the last round; `told`: (values, last claims, points)."""
    values, claims, points = told
    lines = [heading]
    if claims:
        lines += [
            f"Last round {_name(place, seat, player)} claimed {listed(items, claims[place])}"
            f" and got {number_text(round(points[place], 2))} points."
            for place, player in enumerate(players)
        ]
    for place, player in enumerate(players):
        worth = ", ".join(f"{item} {value}" for item, value in zip(items, values[place], strict=True))
        lines.append(f"Values for {_name(place, seat, player)}: {worth}.")
    return "\n".join([*lines, "Your proposal?"])


def _name(place: int, seat: int, player: str) -> str:
    return "you" if place == seat else player
