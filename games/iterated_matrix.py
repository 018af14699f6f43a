"""Iterated matrix games: the same table of payoffs, round after round; all players choose at the same time.

Presets, as (row, column) pay for the moves (first, second); the first move is always the cooperative one:

    prisoners_dilemma    3,3  0,5 / 5,0  1,1    cooperate, defect (Axelrod 1984)
    stag_hunt            4,4  0,3 / 3,0  2,2    stag, hare
    chicken              3,3  1,4 / 4,1  0,0    swerve, straight
    battle_of_the_sexes  3,2  0,0 / 0,0  2,3    the row player's favourite, the column player's favourite
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from math import isfinite
from operator import getitem
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from coplay.games.base import Game, GameSpec, MalformedRule, Observation, StepOutcome
from coplay.games.best_outcomes import matrix_yardsticks
from coplay.games.chance import Chance
from coplay.games.grammar import Action, Choice, Malformed
from coplay.games.iterated_matrix_wording import MatrixRules, full_round, full_rules, terse_round, terse_rules
from coplay.games.parameters import RoundsParameters, Tag

Payoffs = tuple[tuple[tuple[float, float], ...], ...]

PRESETS: dict[str, Payoffs] = {
    "prisoners_dilemma": (((3, 3), (0, 5)), ((5, 0), (1, 1))),
    "stag_hunt": (((4, 4), (0, 3)), ((3, 0), (2, 2))),
    "chicken": (((3, 3), (1, 4)), ((4, 1), (0, 0))),
    "battle_of_the_sexes": (((3, 2), (0, 0)), ((0, 0), (2, 3))),
}
TITLES = {name: f"iterated {name.replace('_', ' ')}" for name in PRESETS} | {
    "prisoners_dilemma": "iterated prisoner's dilemma",
    "custom": "iterated matrix game",
}
LETTERS = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")


class IteratedMatrixParameters(RoundsParameters):
    """What the iterated matrix game can be told."""

    kind: Literal["iterated_matrix"] = "iterated_matrix"
    preset: Literal["prisoners_dilemma", "stag_hunt", "chicken", "battle_of_the_sexes", "custom"] = (
        "prisoners_dilemma"
    )
    """The table of payoffs; `custom` takes `payoffs`."""
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

    def table(self) -> Payoffs:
        """The payoffs of preset or custom game."""
        return PRESETS[self.preset] if self.payoffs is None else self.payoffs

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


@dataclass(frozen=True, slots=True)
class MatrixState:
    """Of constant size, however long the game."""

    round: int = 0
    """Rounds played."""
    last: tuple[int, ...] = ()
    """Index of each player's last move; empty before the first round."""
    over: bool = False


class IteratedMatrix(Game[MatrixState]):
    """A matrix game played again and again; each one's single move meets every other's."""

    Parameters: ClassVar[type[IteratedMatrixParameters]] = IteratedMatrixParameters
    name: ClassVar[str] = "iterated_matrix"

    def __init__(self, parameters: IteratedMatrixParameters) -> None:
        super().__init__(parameters)
        table, labels = parameters.table(), parameters.labels()
        players = parameters.players
        self._players = players
        self._full = parameters.wording == "full"
        self._labels = (labels[0], *[labels[1]] * (len(players) - 1))
        # Per seat: own move, the other's move -> own pay.
        columns = tuple(tuple(row[j][1] for row in table) for j in range(len(table[0])))
        rows = tuple(tuple(pair[0] for pair in row) for row in table)
        self._pay = (rows, *[columns] * (len(players) - 1))
        self._index = tuple({label: place for place, label in enumerate(names)} for names in self._labels)
        self._malformed = tuple(
            len(names) - 1 if parameters.malformed_move is None else names.index(parameters.malformed_move)
            for names in self._labels
        )
        self._grammars = tuple(
            Choice(names, parameters.tag if self._full else None) for names in self._labels
        )
        self._seats = {player: seat for seat, player in enumerate(players)}
        self._spec = self._declare()
        self._rules = tuple(self._write_rules(seat) for seat in range(len(players)))
        self._cooperate = {player: names[0] for player, names in zip(players, self._labels, strict=True)}
        self._yardsticks = matrix_yardsticks(players, table)

    def _declare(self) -> GameSpec:
        pairs = tuple(chain.from_iterable(self.parameters.table()))
        fallback = self.parameters.malformed_move
        move = "the player's last move" if fallback is None else f"the move {fallback!r}"
        return GameSpec(
            players=self._players,
            max_steps=self.parameters.num_rounds,
            has_chance=self.parameters.continuation_probability is not None,
            has_rounds=False,
            zero_sum=all(row + column == 0 for row, column in pairs),
            symmetric=self.parameters.symmetric(),
            reward_range=(float(min(map(min, pairs))), float(max(map(max, pairs)))),
            malformed_rule=MalformedRule(
                retries=self.parameters.retries,
                penalty=self.parameters.penalty,
                consequence=f"counts as {move}",
            ),
        )

    def _write_rules(self, seat: int) -> str:
        others = tuple(player for player in self._players if player != self._players[seat])
        foe = 0 if seat else 1
        own, theirs = self._labels[seat], self._labels[foe]
        cells = tuple(
            (own[i], theirs[j], self._pay[seat][i][j], self._pay[foe][j][i])
            for i in range(len(own))
            for j in range(len(theirs))
        )
        rules = MatrixRules(
            player=self._players[seat],
            others=others,
            cells=cells,
            moves=own,
            num_rounds=self.parameters.num_rounds,
            continuation_probability=self.parameters.continuation_probability,
            title=TITLES[self.parameters.preset] if self.parameters.show_name else None,
            reply=self._grammars[seat].describe(),
            fallback=own[self._malformed[seat]],
        )
        return full_rules(rules) if self._full else terse_rules(rules)

    @property
    def spec(self) -> GameSpec:
        """What this game declares about itself."""
        return self._spec

    def initial_state(self, chance: Chance) -> MatrixState:
        """No luck before the first round."""
        return MatrixState()

    def to_move(self, state: MatrixState) -> tuple[str, ...]:
        """Everyone, until the game is over."""
        return () if state.over else self._players

    def observe(self, state: MatrixState, player: str) -> Observation:
        """The moves of the last round."""
        seat = self._seats[player]
        facts: dict[str, Any] = {
            "game": self.name,
            "round": state.round + 1,
            "num_rounds": self.parameters.num_rounds,
            "moves": list(self._labels[seat]),
            "cooperate": dict(self._cooperate),
        }
        last: tuple[str, ...] = ()
        if state.last:
            last = tuple(map(getitem, self._labels, state.last))
            facts["last"] = dict(zip(self._players, last, strict=True))
        if not self._full:
            text = terse_round(last, seat)
        else:
            pay = tuple(self._rewards(state.last).values()) if state.last else ()
            most = "" if self.parameters.continuation_probability is None else "at most "
            heading = f"Round {state.round + 1} of {most}{self.parameters.num_rounds}."
            text = full_round(self._players, seat, heading, last, pay)
        return Observation(text=text, grammar=self._grammars[seat], system=self._rules[seat], facts=facts)

    def _rewards(self, moves: tuple[int, ...]) -> dict[str, float]:
        """Each player's pay, the mean over his pairings with every other."""
        if len(moves) == 2:
            row, column = moves
            first, second = self._players
            return {first: float(self._pay[0][row][column]), second: float(self._pay[1][column][row])}
        return {
            player: sum(pay[own][other] for place, other in enumerate(moves) if place != seat)
            / (len(moves) - 1)
            for seat, (player, own, pay) in enumerate(zip(self._players, moves, self._pay, strict=True))
        }

    def step(
        self, state: MatrixState, actions: Mapping[str, Action], chance: Chance
    ) -> tuple[MatrixState, StepOutcome]:
        """Pay one round."""
        moves = tuple([self._move(seat, actions[player]) for seat, player in enumerate(self._players)])
        played = state.round + 1
        stay = self.parameters.continuation_probability
        over = played >= self.parameters.num_rounds or (
            stay is not None and chance.uniform("continue") >= stay
        )
        info = {
            "moves": {player: self._labels[seat][moves[seat]] for seat, player in enumerate(self._players)},
            "cooperated": {player: moves[seat] == 0 for seat, player in enumerate(self._players)},
            **self._yardsticks,
        }
        return MatrixState(played, moves, over), StepOutcome(
            rewards=self._rewards(moves), terminated=over, info=info
        )

    def _move(self, seat: int, action: Action) -> int:
        return self._malformed[seat] if isinstance(action, Malformed) else self._index[seat][action.value]

    def private(self, state: MatrixState, player: str) -> Mapping[str, Any]:
        """Nothing is hidden."""
        return {}

    def encode(self, state: MatrixState) -> Any:
        """The state as a JSON value."""
        return {"round": state.round, "last": list(state.last), "over": state.over}

    def decode(self, data: Any) -> MatrixState:
        """The inverse of `encode`."""
        return MatrixState(data["round"], tuple(data["last"]), data["over"])
