"""Iterated matrix games: the same table of payoffs, round after round; all players choose at the same time.

A move pays what the table says for it and the other's move; with more than two players, the mean over all others. The
tables known by name are those of `iterated_matrix_presets.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import getitem
from typing import Any, ClassVar, TypeVar

from coplay.games.base import Game, GameSpec, MalformedRule, Observation, StepOutcome
from coplay.games.best_outcomes import matrix_yardsticks
from coplay.games.chance import Chance
from coplay.games.grammar import Action, Choice, Malformed
from coplay.games.iterated_matrix_parameters import IteratedMatrixParameters
from coplay.games.iterated_matrix_wording import MatrixRules, full_round, full_rules, terse_round, terse_rules

Told = TypeVar("Told")


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
            Choice(self._told(names), parameters.tag if self._full else None) for names in self._labels
        )
        self._seats = {player: seat for seat, player in enumerate(players)}
        self._spec = self._declare()
        self._rules = tuple(self._write_rules(seat) for seat in range(len(players)))
        self._cooperate = {player: names[0] for player, names in zip(players, self._labels, strict=True)}
        self._yardsticks = matrix_yardsticks(players, table)

    def _told(self, moves: Sequence[Told]) -> tuple[Told, ...]:
        return tuple(moves[::-1] if self.parameters.listed == "reversed" else moves)

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
            for i in self._told(range(len(own)))
            for j in self._told(range(len(theirs)))
        )
        rules = MatrixRules(
            player=self._players[seat],
            others=others,
            cells=cells,
            moves=self._told(own),
            num_rounds=self.parameters.num_rounds,
            continuation_probability=self.parameters.continuation_probability,
            title=self.parameters.title() if self.parameters.show_name else None,
            reply=self._grammars[seat].describe(),
            fallback=own[self._malformed[seat]],
        )
        return full_rules(rules, self.parameters.phrasing) if self._full else terse_rules(rules)

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
