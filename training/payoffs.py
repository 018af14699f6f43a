"""Who earns what against whom: a matrix of policies by policies, in games of the same luck."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter

from coplay.games import Game
from coplay.training.evaluate import Contestant, Interval, Pairing, Result, evaluate
from coplay.training.record import write_json

FILE = "payoffs.json"

Entrant = Mapping[str, Contestant]
"""Who plays for it in each seat of the game."""


class Cell(BaseModel):
    """What one agent earns against another."""

    pay: Interval
    """The row's return per tick in raw reward units, one value a game, each seat in as many games."""
    games: int
    failed: int
    self_play: bool


class PayoffMatrix(BaseModel):
    """Rows earn, against columns."""

    game: str
    seed: int
    games: int
    """Asked of each pairing and seat."""
    rows: list[str]
    columns: list[str]
    cells: list[list[Cell]]

    def least(self) -> list[int]:
        """Of each row, the column against which it earns least: what it can count on among these."""
        return [min(range(len(row)), key=lambda place: row[place].pay.mean) for row in self.cells]


def payoff_matrix(
    game: Game[Any],
    rows: Mapping[str, Entrant],
    columns: Mapping[str, Entrant],
    *,
    games: int,
    seed: int,
) -> PayoffMatrix:
    """Every row against every column, in each seat alone among copies of the column's agent.

    Each pairing and seat has the same `games` draws of luck, so that cells can be compared game by game. A row
    that meets itself fills all seats: self-play, its pay the mean over them. Of two players a match gives both
    agents' pay, so it is not played again where they meet the other way round.

    Args:
        game: the game.
        rows: agents by name.
        columns: agents by name; the same name is the same agent.
        games: of each pairing and seat.
        seed: of the luck.

    Raises:
        TooManyFailedEpisodes: if more than half of a pairing's games fail.
    """
    met: dict[tuple[str, str], Cell] = {}
    for row, own in rows.items():
        for column, other in columns.items():
            if (row, column) in met:
                continue
            found = _meet(game, row, own, column, other, games=games, seed=seed)
            met[row, column] = _cell(found.own, found, row == column)
            if len(game.spec.players) == 2 and found.other is not None:
                met[column, row] = _cell(found.other, found, False)
    return PayoffMatrix(
        game=game.name,
        seed=seed,
        games=games,
        rows=list(rows),
        columns=list(columns),
        cells=[[met[row, column] for column in columns] for row in rows],
    )


def _meet(
    game: Game[Any], row: str, own: Entrant, column: str, other: Entrant, *, games: int, seed: int
) -> Result:
    name, players = f"{row} against {column}", game.spec.players
    if row == column:
        pairings = [Pairing(name=name, seats=own, own=players)]
    else:
        pairings = [
            Pairing(name=name, seats={**other, player: own[player]}, own=(player,)) for player in players
        ]
    return evaluate(game, pairings, games=games, seed=seed)[0]


def _cell(pay: Interval, found: Result, self_play: bool) -> Cell:
    return Cell(pay=pay, games=found.games, failed=found.failed, self_play=self_play)


def record_payoffs(folder: Path, matrix: PayoffMatrix) -> Path:
    """Keep a matrix in a run's folder, in place of an earlier one of the same rows and columns.

    Raises:
        ValueError: if the file there is damaged.
    """
    path = folder / FILE
    kept = [one for one in _read(path) if (one.rows, one.columns) != (matrix.rows, matrix.columns)]
    write_json(folder, FILE, [one.model_dump() for one in [*kept, matrix]])
    return path


def _read(path: Path) -> Sequence[PayoffMatrix]:
    if not path.is_file():
        return []
    try:
        return TypeAdapter(list[PayoffMatrix]).validate_json(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"'{path}' is no list of payoff matrices; expected one, or no such file") from error
