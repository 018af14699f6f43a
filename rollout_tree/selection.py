"""Which stored rows are asked for: row groups that cannot hold them are not read, other rows are dropped."""

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coplay.games.names import nearest
from coplay.rollout_tree.json_text import shield, unshield

if TYPE_CHECKING:
    import pyarrow as pa

STATUSES = ("running", "terminated", "truncated", "failed")
"""What `RolloutTree.status` can be."""
Wanted = Mapping[str, Collection[str]]
"""Column of text -> the values asked for, as they are stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A question to stored rollouts; None asks for all."""

    groups: frozenset[str] | None = None
    players: frozenset[str] | None = None
    """Whose turns are read."""
    status: frozenset[str] | None = None

    @property
    def episodes(self) -> Wanted:
        """What the rows of asked episodes have in the table `episodes`."""
        asked = {"group": self.groups, "status": self.status}
        return {name: _stored(values) for name, values in asked.items() if values is not None}

    @property
    def turns(self) -> Wanted:
        """What asked rows of one player have, in the tables that name one."""
        return {} if self.players is None else {"player": _stored(self.players)}


def selection(
    groups: Collection[str] | None = None,
    players: Collection[str] | None = None,
    status: Collection[str] | None = None,
) -> Selection:
    """Make a question of names; a text alone stands for itself.

    Raises:
        ValueError: if a status is none; the message has the nearest right name.
    """
    asked = Selection(groups=_names(groups), players=_names(players), status=_names(status))
    for name in asked.status or ():
        if name not in STATUSES:
            raise ValueError(
                f"status {name!r} is unknown; expected some of {', '.join(STATUSES)}{nearest(name, STATUSES)}"
            )
    return asked


def _names(values: Collection[str] | None) -> frozenset[str] | None:
    return None if values is None else frozenset([values] if isinstance(values, str) else values)


def _stored(values: Collection[str]) -> frozenset[str]:
    return frozenset(shield(value) for value in values)


def check_known(asked: Selection, episodes: Iterator["pa.Table"]) -> None:
    """See that every group and player asked for occurs in the tables `episodes`, reading as few as it takes.

    Raises:
        ValueError: if one occurs nowhere; a typo is no empty answer.
    """
    missing = {"group": set(asked.groups or ()), "player": set(asked.players or ())}
    known: dict[str, dict[str, None]] = {"group": {}, "player": {}}
    while any(missing.values()):
        table = next(episodes, None)
        if table is None:
            break
        seats = table.column("seats").to_pylist()
        known["group"] |= dict.fromkeys(map(unshield, table.column("group").unique().to_pylist()))
        known["player"] |= dict.fromkeys(unshield(seat["player"]) for row in seats for seat in row)
        for kind, names in missing.items():
            names.difference_update(known[kind])
    for kind, names in missing.items():
        for name in sorted(names):
            first = list(known[kind])[:8]
            raise ValueError(
                f"{kind} {name!r} is in none of the iterations asked for; expected one like {first!r}"
                f"{nearest(name, known[kind])}"
            )


def matching_row_groups(metadata: Any, wanted: Wanted) -> list[int]:
    """Numbers of the row groups of a Parquet file that can hold an asked row, by their statistics.

    A group without statistics can hold anything.
    """
    columns = {
        metadata.row_group(0).column(place).path_in_schema: place
        for place in range(metadata.num_columns if metadata.num_row_groups else 0)
    }
    values = {columns[name]: sorted(texts) for name, texts in wanted.items()}
    return [
        number
        for number in range(metadata.num_row_groups)
        if all(_may_hold(metadata.row_group(number).column(place), texts) for place, texts in values.items())
    ]


def _may_hold(chunk: Any, texts: Sequence[str]) -> bool:
    """True if one of the texts, which are sorted, lies between the least and the greatest of a column chunk."""
    known = chunk.statistics
    if known is None or not known.has_min_max:
        return bool(texts)
    low, high = known.min, known.max
    if not isinstance(low, str) or not isinstance(high, str):
        return bool(texts)
    place = bisect_left(texts, low)
    return place < len(texts) and texts[place] <= high


def matching_rows(table: "pa.Table", wanted: Wanted) -> "pa.Table":
    """The rows of a table in which every asked column has one of its values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for name, texts in wanted.items():
        values = pa.array(sorted(texts), pa.string())
        table = table.filter(pc.is_in(table.column(name).cast(pa.string()), value_set=values))
    return table
