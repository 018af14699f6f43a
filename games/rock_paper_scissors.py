"""Rock, paper, scissors, and its larger balanced kin: a zero-sum game in which every move beats half of the others.

With an odd number n of moves in a circle, move a beats move b if (a − b) mod n is odd. For three moves that is the
game all know; five are rock, paper, scissors, spock, lizard. The winner of a round gets 1 from the loser. The only
equilibrium plays every move equally often; its value is 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from coplay.games.base import Game, GameSpec, MalformedRule, Observation, StepOutcome
from coplay.games.chance import Chance
from coplay.games.grammar import Action, Choice, Malformed
from coplay.games.parameters import RoundsParameters, Tag, TwoPlayers, join_names

RESULTS = {1: "You won.", -1: "You lost.", 0: "Nobody won."}


class RockPaperScissorsParameters(RoundsParameters):
    """What rock, paper, scissors can be told."""

    kind: Literal["rock_paper_scissors"] = "rock_paper_scissors"
    players: TwoPlayers = ("Ada", "Bo")
    """Names of the two seats."""
    num_rounds: int = Field(1, ge=1, le=1_000_000)
    """Number of rounds."""
    moves: tuple[str, ...] = Field(("rock", "paper", "scissors"), min_length=3, max_length=25)
    """An odd number of moves in a circle; each beats the one before it, the third before it and so on."""
    tag: Tag = "move"
    """In the full wording, the tag that a move stands in; None for the move alone. Terse moves have no tag."""

    @model_validator(mode="after")
    def _is_balanced(self) -> "RockPaperScissorsParameters":
        if len(self.moves) % 2 == 0:
            raise ValueError(
                f"moves {self.moves!r}; expected an odd number, so that each beats half of the others"
            )
        Choice(self.moves, self.tag if self.wording == "full" else None)
        return self


@dataclass(frozen=True, slots=True)
class RockPaperScissorsState:
    """Of constant size, however long the game."""

    round: int = 0
    """Rounds played."""
    last: tuple[int, ...] = ()
    """Index of each player's last move."""


def wins(one: int, other: int, num_moves: int) -> int:
    """1 if the first move beats the second, -1 if it loses to it, 0 if they are the same."""
    return 0 if one == other else 1 if (one - other) % num_moves % 2 else -1


class RockPaperScissors(Game[RockPaperScissorsState]):
    """Both choose at the same time."""

    Parameters: ClassVar[type[RockPaperScissorsParameters]] = RockPaperScissorsParameters
    name: ClassVar[str] = "rock_paper_scissors"

    def __init__(self, parameters: RockPaperScissorsParameters) -> None:
        super().__init__(parameters)
        self._players, self._moves = parameters.players, parameters.moves
        self._full = parameters.wording == "full"
        self._grammar = Choice(self._moves, parameters.tag if self._full else None)
        self._spec = GameSpec(
            players=self._players,
            max_steps=parameters.num_rounds,
            has_chance=False,
            has_rounds=False,
            zero_sum=True,
            symmetric=True,
            reward_range=(-1.0, 1.0),
            malformed_rule=MalformedRule(
                retries=parameters.retries,
                penalty=parameters.penalty,
                consequence=f"counts as the move {self._moves[0]!r}",
            ),
        )

    @property
    def spec(self) -> GameSpec:
        """What this game declares about itself."""
        return self._spec

    def initial_state(self, chance: Chance) -> RockPaperScissorsState:
        """No luck at all."""
        return RockPaperScissorsState()

    def to_move(self, state: RockPaperScissorsState) -> tuple[str, ...]:
        """Both, until all rounds are played."""
        return () if state.round >= self.parameters.num_rounds else self._players

    def observe(self, state: RockPaperScissorsState, player: str) -> Observation:
        """The moves of the last round."""
        seat = self._players.index(player)
        facts: dict[str, Any] = {
            "game": self.name,
            "round": state.round + 1,
            "num_rounds": self.parameters.num_rounds,
            "moves": list(self._moves),
        }
        names = [self._moves[move] for move in state.last]
        if names:
            facts["last"] = dict(zip(self._players, names, strict=True))
        if not self._full:
            text = names[1 - seat] if names else "go"
        else:
            text = f"Round {state.round + 1} of {self.parameters.num_rounds}."
            if names:
                result = RESULTS[wins(state.last[seat], state.last[1 - seat], len(self._moves))]
                other = self._players[1 - seat]
                text += f" Last round you played {names[seat]}, {other} played {names[1 - seat]}. {result}"
            text += " Your move?"
        return Observation(text=text, grammar=self._grammar, system=self._rules(seat), facts=facts)

    def _rules(self, seat: int) -> str:
        size = len(self._moves)
        beaten = [
            tuple(other for theirs, other in enumerate(self._moves) if wins(own, theirs, size) > 0)
            for own in range(size)
        ]
        if not self._full:
            circle = [f"{move} {' '.join(losers)}" for move, losers in zip(self._moves, beaten, strict=True)]
            return f"win {' '.join(circle)} x {self.parameters.num_rounds}"
        table = "; ".join(
            f"{move} beats {join_names(losers)}" for move, losers in zip(self._moves, beaten, strict=True)
        )
        rounds = "one round" if self.parameters.num_rounds == 1 else f"{self.parameters.num_rounds} rounds"
        return (
            f"You are {self._players[seat]}. You play {rounds} of {', '.join(self._moves)} with"
            f" {self._players[1 - seat]}.\n"
            f"Both choose a move at the same time: {table}. The winner gets 1 point from the loser; the same moves"
            " bring nothing.\n"
            "You want as many points as you can get over the whole game.\n"
            f"Reply with your move: {self._grammar.describe()}. Any other reply counts as {self._moves[0]}."
        )

    def step(
        self, state: RockPaperScissorsState, actions: Mapping[str, Action], chance: Chance
    ) -> tuple[RockPaperScissorsState, StepOutcome]:
        """Pay one round."""
        moves = tuple(self._move(actions[player]) for player in self._players)
        gain = float(wins(moves[0], moves[1], len(self._moves)))
        after = RockPaperScissorsState(state.round + 1, moves)
        return after, StepOutcome(
            rewards=dict(zip(self._players, (gain, 0.0 - gain), strict=True)),
            terminated=after.round >= self.parameters.num_rounds,
            info={"moves": {p: self._moves[move] for p, move in zip(self._players, moves, strict=True)}},
        )

    def _move(self, action: Action) -> int:
        return 0 if isinstance(action, Malformed) else self._moves.index(action.value)
