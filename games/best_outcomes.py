"""What a step could have paid at best: the yardsticks that games put beside its rewards in `info`.

Two yardsticks: `best_total`, the largest sum of all players' rewards, by which efficiency is measured; and the
efficient reward vectors, those on which no player can gain without another's loss (Pareto). Where goods are
divided, both are taken as if units could be cut at will, and whole units cannot do better; `whole_unit_yardsticks`
knows whole units only.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import product
from typing import Any

Corners = tuple[tuple[float, float], ...]


def division_yardsticks(
    players: Sequence[str], values: Sequence[Sequence[float]], stock: float
) -> dict[str, Any]:
    """`best_total` of a division, and between two players the `efficient_line`, as `info` has them."""
    return {**_division(tuple(players), tuple(map(tuple, values)), stock)}


@lru_cache(maxsize=4096)
def _division(
    players: tuple[str, ...], values: tuple[tuple[float, ...], ...], stock: float
) -> dict[str, Any]:
    """Kept, since games of a group meet the same values: what is in it is read and never changed."""
    told: dict[str, Any] = {"best_total": _whole(division_best_total(values, stock))}
    if len(players) == 2:
        told["efficient_line"] = _named(players, division_corners(values, stock))
    return told


def whole_unit_yardsticks(
    players: Sequence[str],
    counts: tuple[int, ...],
    values: tuple[tuple[float, ...], ...],
    scales: tuple[float, float] = (1, 1),
) -> dict[str, Any]:
    """`best_total` and the `efficient` pay of two players who divide `counts` of each item in whole units.

    Args:
        players: both names.
        counts: units of each item.
        values: for both players, a unit's worth of each item.
        scales: for both players, what pay is divided by.
    """
    points = split_points(counts, values)
    best = max(one / scales[0] + other / scales[1] for one, other in points)
    efficient = tuple((one / scales[0], other / scales[1]) for one, other in efficient_points(points))
    return {"best_total": _whole(best), "efficient": _named(players, efficient)}


@lru_cache(maxsize=1024)
def split_points(counts: tuple[int, ...], values: tuple[tuple[float, ...], ...]) -> Corners:
    """The pay of both players for every division of whole units, in the order of the first one's bundles."""
    return tuple(
        (
            float(sum(units * worth for units, worth in zip(own, values[0], strict=True))),
            float(sum((n - u) * worth for n, u, worth in zip(counts, own, values[1], strict=True))),
        )
        for own in product(*(range(count + 1) for count in counts))
    )


def efficient_points(points: Iterable[tuple[float, float]]) -> Corners:
    """The points that no other betters for one player without a loss for the other, the first player's best first."""
    kept: list[tuple[float, float]] = []
    for point in sorted(set(points), reverse=True):
        if not kept or point[1] > kept[-1][1]:
            kept.append(point)
    return tuple(kept)


def matrix_yardsticks(
    players: Sequence[str], table: Sequence[Sequence[tuple[float, float]]]
) -> dict[str, Any]:
    """`best_total` and the `efficient` vectors of a matrix game of two; nothing for more players."""
    if len(players) != 2:
        return {}
    best = max(one + other for row in table for one, other in row)
    return {"best_total": _whole(best), "efficient": _named(players, efficient_cells(table))}


def _named(players: Sequence[str], vectors: Corners) -> dict[str, list[float]]:
    columns = zip(*vectors, strict=True)
    return {player: [*map(_whole, column)] for player, column in zip(players, columns, strict=True)}


def _whole(number: float) -> float:
    """As an int where it is one: every step's info is checked for what JSON cannot hold, floats one by one."""
    return int(number) if number == int(number) else float(number)


def division_best_total(values: Sequence[Sequence[float]], stock: float) -> float:
    """Σ_items stock · max_i v_i(item): every unit goes to whoever values it most.

    Args:
        values: for each player, a unit's worth of each item, none negative.
        stock: units of each item.
    """
    best: float = stock * sum(max(worth) for worth in zip(*values, strict=True))
    return best


def division_corners(values: Sequence[Sequence[float]], stock: float) -> Corners:
    """Corners of the line of efficient pay of two players, from all for the second to all for the first.

    What only one of them values is his throughout. The rest changes hands one item after the other, those first
    of which a unit gains the first player most for each point it costs the second: between two corners one item
    is shared.

    Args:
        values: for both players, a unit's worth of each item, none negative.
        stock: units of each item.
    """
    pairs = list(zip(*values, strict=True))
    first = stock * sum(one for one, other in pairs if not other)
    second = stock * sum(other for _, other in pairs)
    corners = [(float(first), float(second))]
    for one, other in sorted((p for p in pairs if p[0] and p[1]), key=lambda p: p[1] / p[0]):
        first, second = first + stock * one, second - stock * other
        corners.append((float(first), float(second)))
    return tuple(corners)


def efficient_cells(table: Sequence[Sequence[tuple[float, float]]]) -> Corners:
    """The cells of a matrix game that no other cell betters for one player without a loss for the other."""
    cells = dict.fromkeys((float(one), float(other)) for row in table for one, other in row)
    kept = set(efficient_points(cells))
    return tuple(cell for cell in cells if cell in kept)
