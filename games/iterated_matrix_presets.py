"""Tables of matrix games by name: the well-known ones, and every strictly ordinal 2×2 game.

A strictly ordinal game ranks its four outcomes 1 to 4 for either player. Up to the names of moves there are 144, up to
the players' seats too 78 (Rapoport and Guyer 1966). In each the moves can be put in exactly one order such that the
first move of either player is the one under which the other can reach his 4, as cooperation in the dilemma. A player's
ranks are then those of one of twelve symmetric games, so a pair of types names every game (Bruns 2015, on the topology
of Robinson and Goforth 2005): `chicken` for the row player with `prisoners_dilemma` for the column player.

With ranks (R, S, T, P) for (first, first), (first, second), (second, first), (second, second), own move first, the
twelve lie on two rings, neighbours on which differ by a swap of two adjacent ranks; a swap of 3 and 4 leads from one to
the other (prisoner's dilemma to stag hunt):

    prisoners_dilemma 3142, chicken 3241, battle_of_the_sexes 2341, hero 1342, compromise 1243, deadlock 2143
    stag_hunt 4132, assurance 4123, coordination 4213, peace 4312, harmony 4321, concord 4231
"""

from typing import Literal

Payoffs = tuple[tuple[tuple[float, float], ...], ...]
"""For each move of the row player, for each of the column player: (row pay, column pay)."""
Ranks = tuple[int, int, int, int]

OrdinalType = Literal[
    "prisoners_dilemma",
    "chicken",
    "battle_of_the_sexes",
    "hero",
    "compromise",
    "deadlock",
    "stag_hunt",
    "assurance",
    "coordination",
    "peace",
    "harmony",
    "concord",
]
Preset = OrdinalType | Literal["matching_pennies", "ordinal", "custom"]

_LOW, _MIDDLE, _HIGH = (1, 2), (2, 3), (3, 4)
_FIRST_RING = ("prisoners_dilemma", "chicken", "battle_of_the_sexes", "hero", "compromise", "deadlock")
_SECOND_RING = ("stag_hunt", "assurance", "coordination", "peace", "harmony", "concord")


def _swap(ranks: Ranks, pair: tuple[int, int]) -> Ranks:
    """The ranks with two of them exchanged."""
    other = dict(zip(pair, reversed(pair), strict=True))
    r, s, t, p = (other.get(rank, rank) for rank in ranks)
    return r, s, t, p


def _ring(names: tuple[str, ...], ranks: Ranks, swaps: tuple[tuple[int, int], ...]) -> dict[str, Ranks]:
    """The types of a ring, beginning with `ranks`, the two swaps taking turns."""
    found = {}
    for place, name in enumerate(names):
        found[name] = ranks
        ranks = _swap(ranks, swaps[place % 2])
    return found


_DILEMMA: Ranks = (3, 1, 4, 2)
ORDINAL_TYPES: dict[str, Ranks] = _ring(_FIRST_RING, _DILEMMA, (_LOW, _MIDDLE)) | _ring(
    _SECOND_RING, _swap(_DILEMMA, _HIGH), (_MIDDLE, _LOW)
)
"""By name the ranks (R, S, T, P)."""


def ordinal_table(row_type: str, column_type: str) -> Payoffs:
    """The strictly ordinal game of two types, ranks as pay; symmetric if both are the same."""
    row, column = ORDINAL_TYPES[row_type], ORDINAL_TYPES[column_type]
    return tuple(tuple((row[2 * i + j], column[2 * j + i]) for j in (0, 1)) for i in (0, 1))


PRESETS: dict[str, Payoffs] = {name: ordinal_table(name, name) for name in ORDINAL_TYPES} | {
    "prisoners_dilemma": (((3, 3), (0, 5)), ((5, 0), (1, 1))),
    "stag_hunt": (((4, 4), (0, 3)), ((3, 0), (2, 2))),
    "chicken": (((3, 3), (1, 4)), ((4, 1), (0, 0))),
    "battle_of_the_sexes": (((3, 2), (0, 0)), ((0, 0), (2, 3))),
    "matching_pennies": (((1, -1), (-1, 1)), ((-1, 1), (1, -1))),
}
"""Tables by name: four with the pay they are known by, the other symmetric games with their ranks as pay."""


def game_title(preset: str, row_type: str | None, column_type: str | None) -> str:
    """What a game is called where its name is told."""
    if preset == "custom":
        return "iterated matrix game"
    if preset == "ordinal":
        return f"iterated game of {_name(str(row_type))} and {_name(str(column_type))}"
    return f"iterated {_name(preset)}"


def _name(preset: str) -> str:
    return "prisoner's dilemma" if preset == "prisoners_dilemma" else preset.replace("_", " ")
