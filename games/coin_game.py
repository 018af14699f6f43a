"""Coin game: two players on a small torus, and one coin that belongs to one of them.

Source: Lerer and Peysakhovich 2017; on 3×3 cells Foerster et al. 2018. Each round both move one cell north, east, south
or west at the same time; both may stand in one cell. Whoever comes to the coin's cell takes it and gets 1, whoever owns
it; if the other takes a coin (alone or together with its owner), its owner loses 2. Then a new coin appears on a cell
without players, each free cell and each owner equally likely. Players begin in different cells.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field

from coplay.games.base import Game, GameSpec, MalformedRule, Observation, StepOutcome
from coplay.games.chance import Chance
from coplay.games.grammar import Action, Choice, Malformed
from coplay.games.parameters import RoundsParameters, Tag, TwoPlayers
from coplay.games.replies import number_text

STEPS = ((-1, 0), (0, 1), (1, 0), (0, -1))
"""(rows, columns) of the four moves."""
MOVES = ("north", "east", "south", "west")
TERSE_MOVES = ("N", "E", "S", "W")
GAIN, LOSS = 1, -2
"""To whoever takes a coin; to the owner of a coin that the other takes."""


class CoinGameParameters(RoundsParameters):
    """What the coin game can be told."""

    kind: Literal["coin_game"] = "coin_game"
    players: TwoPlayers = ("Ada", "Bo")
    """Names of the two seats."""
    num_rounds: int = Field(50, ge=1, le=1_000_000)
    """Number of rounds."""
    size: int = Field(3, ge=2, le=10)
    """Cells on each side of the grid."""
    tag: Tag = "move"
    """In the full wording, the tag that a move stands in; None for the move alone. Terse moves have no tag."""


@dataclass(frozen=True, slots=True)
class CoinState:
    """Of constant size, however long the game. Cells are numbered row by row from 0."""

    places: tuple[int, int]
    """Each player's cell."""
    coin: int
    """The coin's cell."""
    owner: int
    """Seat that owns the coin."""
    round: int = 0
    """Rounds played."""
    last: tuple[int, ...] = ()
    """Each player's reward of the last round; empty before the first."""


def neighbour(cell: int, move: int, size: int) -> int:
    """The cell that a move (an index into `MOVES`) leads to on a torus."""
    row, column = divmod(cell, size)
    down, right = STEPS[move]
    return (row + down) % size * size + (column + right) % size


def distance(one: int, other: int, size: int) -> int:
    """The least number of moves between two cells of a torus."""
    gaps = (abs(a - b) for a, b in zip(divmod(one, size), divmod(other, size), strict=True))
    return sum(min(gap, size - gap) for gap in gaps)


def pay(takes: tuple[bool, bool], owner: int) -> tuple[int, int]:
    """Rewards of both, given who takes the coin and whose it is."""
    first, second = (GAIN * taken for taken in takes)
    if takes[1 - owner]:
        return (first + LOSS, second) if owner == 0 else (first, second + LOSS)
    return first, second


class CoinGame(Game[CoinState]):
    """Both move at the same time; all is public."""

    Parameters: ClassVar[type[CoinGameParameters]] = CoinGameParameters
    name: ClassVar[str] = "coin_game"

    def __init__(self, parameters: CoinGameParameters) -> None:
        super().__init__(parameters)
        self._players, self._size = parameters.players, parameters.size
        self._full = parameters.wording == "full"
        self._moves = MOVES if self._full else TERSE_MOVES
        self._grammar = Choice(self._moves, parameters.tag if self._full else None)
        self._rules = tuple(self._write_rules(seat) for seat in (0, 1))
        self._spec = GameSpec(
            players=self._players,
            max_steps=parameters.num_rounds,
            has_chance=True,
            has_rounds=False,
            zero_sum=False,
            symmetric=True,
            reward_range=(float(LOSS), float(GAIN)),
            malformed_rule=MalformedRule(
                retries=parameters.retries,
                penalty=parameters.penalty,
                consequence=f"counts as the move {self._moves[0]!r}",
            ),
        )

    def _write_rules(self, seat: int) -> str:
        size, num_rounds = self._size, self.parameters.num_rounds
        if not self._full:
            return f"{size} - {size} points {GAIN} {LOSS} x {num_rounds}"
        other = self._players[1 - seat]
        return (
            f"You are {self._players[seat]}. You and {other} walk on a grid of {size} by {size} cells that wraps"
            " around: who leaves it on one side comes in on the opposite side.\n"
            f"There are {num_rounds} rounds. In each both move one cell at the same time: north is up, east is right,"
            " south is down, west is left. Both may be in the same cell.\n"
            f"There is always one coin, yours or {other}'s. Whoever moves to its cell takes it and gets 1 point,"
            f" whoever owns it; if you take {other}'s coin, {other} loses 2 points, and if {other} takes yours, you do."
            " Both can take it at once. Then a new coin appears in a cell without players; cell and owner are drawn by"
            " lot.\n"
            f"In the picture, Y is you, O is {other}, B is both, y is a coin of yours, o is a coin of {other}'s.\n"
            "You want as many points as you can get over the whole game.\n"
            f"Reply with your move: {self._grammar.describe()}. Any other reply counts as {self._moves[0]}."
        )

    @property
    def spec(self) -> GameSpec:
        """What this game declares about itself."""
        return self._spec

    def initial_state(self, chance: Chance) -> CoinState:
        """Where both begin, and the first coin."""
        first = chance.integer("first place", self._size**2)
        second = chance.choice("second place", self._free((first,)))
        return CoinState((first, second), *self._new_coin((first, second), chance))

    def _free(self, taken: tuple[int, ...]) -> list[int]:
        return [cell for cell in range(self._size**2) if cell not in taken]

    def _new_coin(self, places: tuple[int, int], chance: Chance) -> tuple[int, int]:
        return chance.choice("coin place", self._free(places)), chance.integer("coin owner", 2)

    def to_move(self, state: CoinState) -> tuple[str, ...]:
        """Both, until all rounds are played."""
        return () if state.round >= self.parameters.num_rounds else self._players

    def observe(self, state: CoinState, player: str) -> Observation:
        """The grid, and the points of the last round."""
        seat = self._players.index(player)
        facts: dict[str, Any] = {
            "game": self.name,
            "round": state.round + 1,
            "num_rounds": self.parameters.num_rounds,
            "size": self._size,
            "places": self._by_player(tuple(self._row_and_column(cell) for cell in state.places)),
            "coin": self._row_and_column(state.coin),
            "owner": self._players[state.owner],
        }
        if state.last:
            facts["last"] = self._by_player(state.last)
        text = self._full_round(state, seat) if self._full else self._terse_round(state, seat)
        return Observation(text=text, grammar=self._grammar, system=self._rules[seat], facts=facts)

    def _row_and_column(self, cell: int) -> list[int]:
        return list(divmod(cell, self._size))

    def _by_player(self, pair: tuple[Any, ...]) -> dict[str, Any]:
        return dict(zip(self._players, pair, strict=True))

    def _terse_round(self, state: CoinState, seat: int) -> str:
        """Own last points (`go` at first); the cells, from 1, of oneself, the other and the coin; whose it is."""
        points = state.last[seat] if state.last else "go"
        cells = (state.places[seat], state.places[1 - seat], state.coin)
        whose = "my" if state.owner == seat else "their"
        return " ".join(map(str, (points, *(cell + 1 for cell in cells), whose)))

    def _full_round(self, state: CoinState, seat: int) -> str:
        cells = ["."] * self._size**2
        cells[state.places[seat]], cells[state.places[1 - seat]] = "Y", "O"
        if state.places[0] == state.places[1]:
            cells[state.places[0]] = "B"
        cells[state.coin] = "y" if state.owner == seat else "o"
        rows = [" ".join(cells[start : start + self._size]) for start in range(0, len(cells), self._size)]
        heading = f"Round {state.round + 1} of {self.parameters.num_rounds}."
        if state.last:
            own, theirs = (number_text(state.last[place]) for place in (seat, 1 - seat))
            heading += f" Points of the last round: you {own}, {self._players[1 - seat]} {theirs}."
        return "\n".join([heading, *rows, "Your move?"])

    def step(
        self, state: CoinState, actions: Mapping[str, Action], chance: Chance
    ) -> tuple[CoinState, StepOutcome]:
        """Move both, pay, and lay a new coin if the old one was taken."""
        moves = [self._move(actions[player]) for player in self._players]
        one, other = (neighbour(c, move, self._size) for c, move in zip(state.places, moves, strict=True))
        takes = (one == state.coin, other == state.coin)
        rewards = pay(takes, state.owner)
        coin, owner = self._new_coin((one, other), chance) if any(takes) else (state.coin, state.owner)
        played = state.round + 1
        outcome = StepOutcome(
            rewards=self._by_player(tuple(map(float, rewards))),
            terminated=played >= self.parameters.num_rounds,
            info={
                "moves": self._by_player(tuple(MOVES[move] for move in moves)),
                "owner": self._players[state.owner],
                "took": self._by_player(takes),
            },
        )
        return CoinState((one, other), coin, owner, played, rewards), outcome

    def _move(self, action: Action) -> int:
        return 0 if isinstance(action, Malformed) else self._moves.index(action.value)
