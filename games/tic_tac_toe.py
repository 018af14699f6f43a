"""Tic-tac-toe (noughts and crosses): three in a row on nine cells; the first player has the crosses.

The winner gets 1, the loser -1; a draw pays nothing, and is what perfect play comes to. Between two players who
choose any free cell with the same probability, X wins 737/1260 of the games, O 121/420, and 8/63 are drawn.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from coplay.games.base import Game, GameSpec, MalformedRule, Observation, StepOutcome
from coplay.games.chance import Chance
from coplay.games.grammar import Action, Choice, Malformed
from coplay.games.parameters import SeatsParameters, Tag, TwoPlayers

LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
SIGNS = "XO"
FREE = "-"


class TicTacToeParameters(SeatsParameters):
    """What tic-tac-toe can be told."""

    kind: Literal["tic_tac_toe"] = "tic_tac_toe"
    players: TwoPlayers = ("Ada", "Bo")
    """Names of the two seats; the first has the crosses and begins."""
    tag: Tag = "cell"
    """In the full wording, the tag that a cell stands in; None for the number alone. Terse moves have no tag."""


@dataclass(frozen=True, slots=True)
class TicTacToeState:
    """The board."""

    board: str = FREE * 9
    """Row after row: `X`, `O` or `-`."""


def winner(board: str) -> str | None:
    """The sign that has three in a row."""
    for a, b, c in LINES:
        if board[a] != FREE and board[a] == board[b] == board[c]:
            return board[a]
    return None


def free_cells(board: str) -> tuple[int, ...]:
    """Places, from 0, where a move is possible; none if the game is over."""
    return () if winner(board) else tuple(place for place, sign in enumerate(board) if sign == FREE)


def sign_to_move(board: str) -> str:
    """X first, then in turns."""
    return SIGNS[(9 - board.count(FREE)) % 2]


class TicTacToe(Game[TicTacToeState]):
    """One game of tic-tac-toe; cells are numbered 1 to 9."""

    Parameters: ClassVar[type[TicTacToeParameters]] = TicTacToeParameters
    name: ClassVar[str] = "tic_tac_toe"

    def __init__(self, parameters: TicTacToeParameters) -> None:
        super().__init__(parameters)
        self._players = parameters.players
        self._full = parameters.wording == "full"
        self._tag = parameters.tag if self._full else None
        self._spec = GameSpec(
            players=self._players,
            max_steps=9,
            has_chance=False,
            has_rounds=False,
            zero_sum=True,
            symmetric=False,
            reward_range=(-1.0, 1.0),
            malformed_rule=MalformedRule(
                retries=parameters.retries,
                penalty=parameters.penalty,
                consequence="counts as the free cell with the lowest number",
            ),
        )

    @property
    def spec(self) -> GameSpec:
        """What this game declares about itself."""
        return self._spec

    def initial_state(self, chance: Chance) -> TicTacToeState:
        """The empty board."""
        return TicTacToeState()

    def to_move(self, state: TicTacToeState) -> tuple[str, ...]:
        """One after the other, until there are three in a row or no free cell."""
        return (self._players[SIGNS.index(sign_to_move(state.board))],) if free_cells(state.board) else ()

    def observe(self, state: TicTacToeState, player: str) -> Observation:
        """The whole board."""
        seat = self._players.index(player)
        cells = tuple(str(place + 1) for place in free_cells(state.board))
        facts: dict[str, Any] = {
            "game": self.name,
            "sign": SIGNS[seat],
            "board": list(state.board),
            "moves": list(cells),
        }
        if self._full:
            rows = [" ".join(state.board[place : place + 3]) for place in (0, 3, 6)]
            text = "\n".join(("The board:", *rows, "Your cell?"))
        else:
            text = " ".join(state.board)
        return Observation(text=text, grammar=Choice(cells, self._tag), system=self._rules(seat), facts=facts)

    def _rules(self, seat: int) -> str:
        if not self._full:
            return f"you {SIGNS[seat]} 1 2 3 4 5 6 7 8 9"
        player, other = self._players[seat], self._players[1 - seat]
        tag = "" if self._tag is None else f" in <{self._tag}>...</{self._tag}>"
        return (
            f"You are {player}. You play tic-tac-toe with {other}. Your sign is {SIGNS[seat]}, {other}'s is"
            f" {SIGNS[1 - seat]}; X begins.\n"
            "The cells of the board are numbered row by row: 1 2 3, then 4 5 6, then 7 8 9; - is a free cell. Who"
            " first has three in a row, a column or a diagonal wins 1 point, and the other loses 1. A full board"
            " without is a draw.\n"
            f"Reply with the number of a free cell{tag}. Any other reply counts as the free cell with the lowest"
            " number."
        )

    def step(
        self, state: TicTacToeState, actions: Mapping[str, Action], chance: Chance
    ) -> tuple[TicTacToeState, StepOutcome]:
        """Put one sign on the board."""
        (player,) = self.to_move(state)
        action = actions[player]
        cell = free_cells(state.board)[0] if isinstance(action, Malformed) else int(action.value) - 1
        board = state.board[:cell] + sign_to_move(state.board) + state.board[cell + 1 :]
        won = winner(board)
        gain = 0.0 if won is None else 1.0 - 2 * SIGNS.index(won)
        return TicTacToeState(board), StepOutcome(
            rewards=dict(zip(self._players, (gain, 0.0 - gain), strict=True)),
            terminated=not free_cells(board),
            info={"player": player, "move": str(cell + 1), "winner": won},
        )
