"""What a critic says of a player before a reply, asked once lines are over, for the places that may fork."""

from collections.abc import Iterable, Mapping, Sequence

from coplay.rollout_tree.branching import BranchPlan, ValueReader, ValueRow
from coplay.rollout_tree.budget import Schedule
from coplay.rollout_tree.play import Play
from coplay.rollout_tree.records import Step


def values_before(
    plan: BranchPlan, reader: ValueReader | None, lines: Sequence[tuple[Schedule, Play]]
) -> list[Mapping[tuple[int, str], float]]:
    """For each line, (step, player) -> value before the reply, where it decides on a fork; one call of the reader."""
    told: list[dict[tuple[int, str], float]] = [{} for _ in lines]
    if not plan.reads_value:
        return list(told)
    assert reader is not None
    rows: list[ValueRow] = []
    places: list[list[tuple[int, int, str]]] = []
    for number, (schedule, line) in enumerate(lines):
        if line.forks is None or line.failure is not None:
            continue
        wanted: dict[str, set[int]] = {}
        for step, players in line.forks.candidates(line.steps).items():
            for player in players:
                wanted.setdefault(player, set()).add(step)
        path = schedule.path(line) if wanted else ()
        for player, steps in wanted.items():
            for row, found in _rows(path, player, steps):
                rows.append(row)
                places.append([(number, step, player) for step in found])
    for values, asked in zip(reader(rows) if rows else (), places, strict=True):
        for value, (number, step, player) in zip(values, asked, strict=True):
            told[number][step, player] = value
    return list(told)


def _rows(path: Iterable[Step], player: str, wanted: set[int]) -> list[tuple[ValueRow, list[int]]]:
    """The contexts of a player that hold a wanted step, each with the steps of its positions."""
    found: list[tuple[ValueRow, list[int]]] = [(ValueRow(), [])]
    for step in path:
        for turn in [turn for turn in step.turns if turn.player == player]:
            if turn.fresh_context:
                found.append((ValueRow(), []))
            row, steps = found[-1]
            for segment in turn.segments:
                if segment.sampled and step.index in wanted and step.index not in steps and not turn.attempt:
                    row.positions.append(len(row.ids) - 1)
                    steps.append(step.index)
                row.ids.extend(segment.ids)
    return [(row, steps) for row, steps in found if steps]
