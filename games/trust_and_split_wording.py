"""What players of trust and split read, in full sentences and in few tokens."""

from dataclasses import dataclass

from coplay.games.replies import number_text, quote_text
from coplay.games.sentences import heard_from
from coplay.games.trust_and_split_parameters import TrustAndSplitParameters


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustRules:
    """The rules as one seat sees them."""

    player: str
    other: str
    parameters: TrustAndSplitParameters
    claim: str
    """How to write a claim."""
    message: str
    """How to write a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundView:
    """What one seat knows of the round at one of its turns."""

    number: int
    starts: bool
    """True at the seat's first turn of the round."""
    last_claim: int | None
    """The other's, None in the first round."""
    last_upper: bool
    """True if the other had the upper hand last round."""
    hand: str
    upper: bool
    """True if the seat has the upper hand; only told where values are public."""
    speaks_first: bool
    heard: tuple[str, ...]
    """What the other said since the seat's last turn."""
    speaks: bool
    """True: a message is asked for; False: a claim."""


def terse_rules(rules: TrustRules) -> str:
    """Number of coins, then what follows a letter.

    `v`: high and low value; `c`: claims; `m`: messages of each, their length; `hands`, if private, with what
    beats what; `a`: chance that they alternate; `x`: number of rounds.
    """
    told = rules.parameters
    claims = f"0 - {told.coins}" if told.claims is None else " ".join(map(str, told.claims))
    parts = [f"coins {told.coins} v {told.high_value} {told.low_value} c {claims}"]
    if told.messages_per_player:
        parts.append(f"m {told.messages_per_player} {told.max_message_characters}")
    if not told.public_values:
        parts.append("hands rock > scissors > paper > rock")
    if told.alternating_hands or told.alternating_mix_ratio is not None:
        parts.append(
            f"a {number_text(1.0 if told.alternating_mix_ratio is None else told.alternating_mix_ratio)}"
        )
    return " ".join([*parts, f"x {told.num_rounds}"])


def full_rules(rules: TrustRules) -> str:
    """Who plays, hands and values, talk, how coins are divided, and how to reply."""
    told, other = rules.parameters, rules.other
    lines = [
        f"You are {rules.player}. You divide coins with {other}.",
        f"There are {told.num_rounds} rounds. In each, {told.coins} coins are on the table, and each of you gets a"
        " different hand: rock, paper or scissors. Rock beats scissors, scissors beats paper, paper beats rock."
        f" The winning (upper) hand's owner values a coin at {told.high_value}, the other at {told.low_value}.",
        "Both see both values." if told.public_values else "Each sees only his own hand.",
    ]
    if told.alternating_hands:
        lines.append("The upper hand changes sides every round.")
    elif told.alternating_mix_ratio is not None:
        chance = number_text(told.alternating_mix_ratio)
        lines.append(f"With chance {chance}, drawn once a game, the upper hand changes sides every round.")
    if told.messages_per_player:
        lines.append(
            f"Before the claims each of you sends {_times(told.messages_per_player)}, taking turns; who speaks"
            f" first changes every round. A message is {rules.message}; what is longer is cut."
        )
    lines += [
        f"{'Then both' if told.messages_per_player else 'Both'} say at the same time how many coins they keep."
        f" If the claims are at most {told.coins} together, each gets his claim and the rest is lost; if they are"
        f" more, the {told.coins} coins are divided in proportion to the claims.",
        "Your points are your coins times your value. You want as many points as you can get over the whole game.",
        f"A claim is {rules.claim}. Any other reply claims 0.",
    ]
    return "\n".join(lines)


def _times(number: int) -> str:
    return "one message" if number == 1 else f"{number} messages"


def turn_text(parameters: TrustAndSplitParameters, other: str, view: RoundView) -> str:
    """What is new at one turn."""
    if parameters.wording == "terse":
        return _terse_turn(parameters, view)
    return _full_turn(parameters, other, view)


def _terse_turn(parameters: TrustAndSplitParameters, view: RoundView) -> str:
    """The other's last claim and own value, and no more if values are public and nobody talks.

    `go` stands for the claim in the first round. With private hands, `u` or `l` tells the other's class, and
    the own hand stands for the value. Messages are quoted; with talk, `say` or `claim` tells what is wanted.
    """
    told = []
    if view.starts:
        told.append("go" if view.last_claim is None else str(view.last_claim))
        if parameters.public_values:
            told.append(str(parameters.high_value if view.upper else parameters.low_value))
        else:
            told += [] if view.last_claim is None else ["u" if view.last_upper else "l"]
            told.append(view.hand)
    told += [quote_text(text) for text in view.heard]
    if parameters.messages_per_player:
        told.append("say" if view.speaks else "claim")
    return " ".join(told)


def _full_turn(parameters: TrustAndSplitParameters, other: str, view: RoundView) -> str:
    lines = []
    if view.starts:
        lines.append(f"Round {view.number} of {parameters.num_rounds}.")
        if view.last_claim is not None:
            hand = "upper" if view.last_upper else "lower"
            lines.append(f"Last round {other} had the {hand} hand and claimed {view.last_claim} coins.")
        if parameters.public_values:
            values = (parameters.high_value, parameters.low_value)
            own, theirs = values if view.upper else values[::-1]
            lines.append(f"A coin is worth {own} to you and {theirs} to {other}.")
        else:
            lines.append(f"Your hand is {view.hand}.")
        if parameters.messages_per_player:
            lines.append("You speak first." if view.speaks_first else f"{other} speaks first.")
    lines += [heard_from(other, text) for text in view.heard]
    lines.append(f"Your message to {other}?" if view.speaks else "Your claim?")
    return "\n".join(lines)
