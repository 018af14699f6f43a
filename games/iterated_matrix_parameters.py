"""The parameters of iterated matrix games."""

from math import isfinite
from typing import Literal

from pydantic import Field, model_validator

from coplay.games.grammar import Choice
from coplay.games.iterated_matrix_presets import (
    PRESETS,
    OrdinalType,
    Payoffs,
    Preset,
    game_title,
    ordinal_table,
)
from coplay.games.iterated_matrix_wording import Phrasing
from coplay.games.parameters import RoundsParameters, Tag

LETTERS = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")


class IteratedMatrixParameters(RoundsParameters):
    """What the iterated matrix game can be told."""

    kind: Literal["iterated_matrix"] = "iterated_matrix"
    preset: Preset = "prisoners_dilemma"
    """The table of payoffs; `ordinal` takes `row_type` and `column_type`, `custom` takes `payoffs`."""
    row_type: OrdinalType | None = None
    """With `ordinal`: the symmetric game whose ranks, 1 to 4, are the row player's pay."""
    column_type: OrdinalType | None = None
    """With `ordinal`: the symmetric game whose ranks are the column player's pay; None takes `row_type`."""
    payoffs: tuple[tuple[tuple[float, float], ...], ...] | None = None
    """With `custom`: for each move of the row player, for each of the column player, (row pay, column
    pay)."""
    moves: tuple[str, ...] | None = None
    """Names of the moves (of the row player); None names them A, B, C and on. The first is the cooperative
    one."""
    column_moves: tuple[str, ...] | None = None
    """Names of the column player's moves; None takes `moves`, or A, B, C and on where the table is not
    square."""
    continuation_probability: float | None = Field(None, ge=0.0, lt=1.0)
    """None plays `num_rounds` rounds; else the game goes on after each round with this probability, up to
    `num_rounds`."""
    listed: Literal["table", "reversed"] = "table"
    """Order in which the rules tell the moves and the rows of the table: as they stand, or from the last; the moves'
    meaning stays."""
    phrasing: Phrasing = "plain"
    """Sentences of the full wording, all with the same facts; the terse wording is `plain` only."""
    show_name: bool = False
    """Whether the rules name the game."""
    malformed_move: str | None = None
    """The move that a malformed reply counts as; None takes the player's last move (in the dilemma:
    defect)."""
    tag: Tag = "move"
    """In the full wording, the tag that a move stands in; None for the move alone. Terse moves have no
    tag."""

    @model_validator(mode="after")
    def _fits_together(self) -> "IteratedMatrixParameters":
        if (self.payoffs is None) == (self.preset == "custom"):
            raise ValueError(
                f"preset {self.preset!r} with payoffs {self.payoffs!r}; expected payoffs exactly with"
                " preset = 'custom'"
            )
        if (self.row_type is None) == (self.preset == "ordinal") or (
            self.row_type is None and self.column_type is not None
        ):
            raise ValueError(
                f"preset {self.preset!r} with row_type {self.row_type!r} and column_type {self.column_type!r}; expected"
                " row_type, and if it differs column_type, exactly with preset = 'ordinal'"
            )
        table = self.table()
        if not table or not table[0] or any(len(row) != len(table[0]) for row in table):
            raise ValueError(f"payoffs {table!r}; expected rows of the same length, at least one by one")
        if not all(isfinite(pay) for row in table for pair in row for pay in pair):
            raise ValueError(f"payoffs {table!r}; expected finite numbers")
        if max(len(table), len(table[0])) > len(LETTERS) and (
            self.moves is None or self.column_moves is None
        ):
            raise ValueError(
                f"a table of {len(table)} by {len(table[0])} needs its own names in moves and column_moves"
            )
        rows, columns = self.labels()
        if len(rows) != len(table) or len(columns) != len(table[0]):
            raise ValueError(
                f"moves {rows!r} and column_moves {columns!r}; expected {len(table)} and"
                f" {len(table[0])} names"
                " as in payoffs"
            )
        if self.malformed_move is not None and not (
            self.malformed_move in rows and self.malformed_move in columns
        ):
            raise ValueError(
                f"malformed_move {self.malformed_move!r}; expected a move of every player: {rows!r},"
                f" {columns!r}"
            )
        if len(self.players) > 2 and not self.symmetric():
            raise ValueError(
                f"{len(self.players)} players in a game that is not symmetric; expected two players,"
                " or a square table"
                " in which swapping the seats swaps the pay, and no column_moves"
            )
        for labels in (rows, columns):
            Choice(labels, self.tag if self.wording == "full" else None)
        return self

    @model_validator(mode="after")
    def _is_worded(self) -> "IteratedMatrixParameters":
        if self.wording == "terse" and self.phrasing != "plain":
            raise ValueError(
                f"phrasing {self.phrasing!r} with the terse wording; expected 'plain', or wording = 'full'"
            )
        return self

    def table(self) -> Payoffs:
        """The payoffs of preset, ordinal or custom game."""
        if self.row_type is not None:
            return ordinal_table(self.row_type, self.column_type or self.row_type)
        return PRESETS[self.preset] if self.payoffs is None else self.payoffs

    def title(self) -> str:
        """What the game is called where its name is told."""
        return game_title(self.preset, self.row_type, self.column_type or self.row_type)

    def labels(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of the row and the column player's moves."""
        table = self.table()
        rows = LETTERS[: len(table)] if self.moves is None else self.moves
        if self.column_moves is not None:
            return rows, self.column_moves
        return rows, rows if len(table) == len(table[0]) else LETTERS[: len(table[0])]

    def symmetric(self) -> bool:
        """True if swapping the seats swaps the pay, under the same names of moves."""
        table, (rows, columns) = self.table(), self.labels()
        size = range(len(rows))
        return rows == columns and all(table[i][j] == table[j][i][::-1] for i in size for j in size)
