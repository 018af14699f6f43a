"""What is asked of OpenSpiel before a play, and how its luck becomes ours."""

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from math import lcm
from typing import Any

from coplay.games.chance import Chance
from coplay.games.names import nearest

MAX_DENOMINATOR = 10_000
"""Chances are drawn as whole numbers if they are fractions of at most this."""


def draw_outcome(outcomes: Sequence[tuple[int, float]], chance: Chance, index: int) -> int:
    """Draw one of (action, probability); as a whole number where the probabilities are simple fractions."""
    possible = [(action, share) for action, share in outcomes if share > 0]
    if len(possible) == 1:
        return possible[0][0]
    shares = tuple(share for _, share in possible)
    counts = whole_shares(shares)
    place: float
    if counts:
        place = chance.integer("chance", sum(counts), index=index)
    else:
        place = chance.uniform("chance", index=index) * sum(shares)
    for (action, _), weight in zip(possible, counts or shares, strict=True):
        place -= weight
        if place < 0:
            return action
    return possible[-1][0]


@lru_cache(maxsize=256)
def whole_shares(shares: tuple[float, ...]) -> tuple[int, ...]:
    """Whole numbers in the proportions of `shares`, if a sum of at most `MAX_DENOMINATOR` is enough; else none."""
    near = [Fraction(share).limit_denominator(MAX_DENOMINATOR) for share in shares]
    whole = lcm(*(share.denominator for share in near))
    exact = all(abs(float(found) - share) < 1e-12 for found, share in zip(near, shares, strict=True))
    if not exact or sum(near) != 1 or whole > MAX_DENOMINATOR:
        return ()
    return tuple(int(share * whole) for share in near)


def load_game(spiel: Any, load: str) -> Any:
    """Load a game of the library by its string.

    Raises:
        ValueError: if it is no sequential or simultaneous game.
    """
    known = spiel.registered_names()
    short = load.split("(", maxsplit=1)[0]
    if short not in known:
        raise ValueError(
            f"OpenSpiel has no game {short!r}; expected one of its {len(known)} games, as 'kuhn_poker' or"
            f" 'goofspiel(num_cards=4)'{nearest(short, known)}"
        )
    try:
        game = spiel.load_game(load)
        mean_field = game.get_type().dynamics == spiel.GameType.Dynamics.MEAN_FIELD
    except spiel.SpielError as error:
        told = " ".join(str(error).split())
        raise ValueError(
            f"OpenSpiel cannot load {load!r}: {told}; expected a sequential or simultaneous game with its own"
            " parameters in brackets"
        ) from error
    if mean_field:
        raise ValueError(f"{load!r} is a mean-field game; expected a sequential or simultaneous one")
    return game


def needs_seed(spiel: Any, game: Any, load: str) -> bool:
    """Whether a game draws behind closed doors, and was not given the seed of that.

    Raises:
        ValueError: if it cannot be given one.
    """
    if game.get_type().chance_mode != spiel.GameType.ChanceMode.SAMPLED_STOCHASTIC:
        return False
    parameters = game.get_parameters()
    if "rng_seed" not in parameters:
        raise ValueError(
            f"{load!r} draws lots without a seed; expected a game with explicit chance or an rng_seed"
        )
    return bool(parameters["rng_seed"] < 0)


def which_strings(spiel: Any, kind: Any, load: str, wanted: str | None) -> str:
    """`observation` or `information_state`: what is wanted, or what tells most.

    Raises:
        ValueError: if the game has no such string.
    """
    offered = {
        "observation": kind.provides_observation_string,
        "information_state": kind.provides_information_state_string,
    }
    hidden = kind.information == spiel.GameType.Information.IMPERFECT_INFORMATION
    order = ("information_state", "observation") if hidden else ("observation", "information_state")
    found = [name for name in order if offered[name] and wanted in (None, name)]
    if not found:
        raise ValueError(
            f"{load!r} has no {wanted or 'observation'} string; expected strings ="
            f" {' or '.join(repr(name) for name in order if offered[name]) or 'another game'}"
        )
    return found[0]
