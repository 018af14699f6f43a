"""What players of the commons read, in full sentences and in few tokens."""

from dataclasses import dataclass

from coplay.games.replies import number_text


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonsRules:
    """The rules, the same for every seat."""

    num_players: int
    num_rounds: int
    capacity: int
    stock: int
    """Units in the first round."""
    growth: float
    collapse_below: int
    reply: str
    """How to write a claim."""


def terse_rules(rules: CommonsRules) -> str:
    """Units at first, then what follows a word or letter.

    `take`: the claims allowed; `m`: growth; `high`: the capacity; `low`: fewer units left do not grow; `n`: number of
    players; `x`: number of rounds.
    """
    return (
        f"items {rules.stock} take 0 - {rules.capacity} m {number_text(rules.growth)} high {rules.capacity}"
        f" low {rules.collapse_below} n {rules.num_players} x {rules.num_rounds}"
    )


def terse_round(seat: int, stock: int, last: tuple[int, ...]) -> str:
    """The others' last claims (`go` in the first round), then the stock."""
    return " ".join(map(str, [*((*last[:seat], *last[seat + 1 :]) or ("go",)), stock]))


def full_rules(rules: CommonsRules, player: str, others: str) -> str:
    """Who plays, how the stock is harvested and grows, and how to reply."""
    grows = "what is left stays as it is"
    if rules.growth > 1:
        times = number_text(rules.growth)
        grows = f"what is left grows to {times} times as much, rounded down, but never above {rules.capacity}"
    gone = "The game ends early when nothing is left."
    if rules.collapse_below > 1:
        gone = (
            f"If fewer than {rules.collapse_below} units are left, the stock is gone for good and the game ends"
            " early."
        )
    return (
        f"You are {player}. You harvest one common stock together with {others}.\n"
        f"There are {rules.num_rounds} rounds and {rules.stock} units in the first. In each round all say at the same"
        " time how many units they want to take. If the claims are at most the stock together, each gets his claim; if"
        " they are more, the whole stock is divided in proportion to the claims.\n"
        f"After each round {grows}. {gone}\n"
        "Every unit you take is a point. You want as many points as you can get over the whole game.\n"
        f"Reply with your claim: {rules.reply}. Any other reply takes 0."
    )


def full_round(
    heading: str,
    players: tuple[str, ...],
    seat: int,
    told: tuple[int, tuple[int, ...], tuple[float, ...]],
) -> str:
    """The stock, and the claims and harvests of the last round; `told`: (stock, last claims, last harvests)."""
    stock, claims, got = told
    lines = [heading]
    if claims:
        harvested = [
            f"{'you' if place == seat else player} claimed {claims[place]} and got {number_text(round(got[place], 2))}"
            for place, player in enumerate(players)
        ]
        lines.append(f"Last round {', '.join(harvested)}.")
    return " ".join([*lines, f"The stock is {stock}. Your claim?"])
