"""`coplay new-game NAME`: write one file with a small working game to begin from."""

import keyword
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from coplay.games import available_games
from coplay.training.messages import ConfigError

USAGE = """coplay new-game NAME

Writes NAME.py into this folder: a small game for any number of players, in two wordings, that passes
coplay check-game NAME:CLASS as it is. Change it bit by bit, and check it again after each.
"""

TEMPLATE = '''"""Stay or fold: each has a private card, and whoever stays with the highest card wins.

All decide at the same time. Of those who stay, the ones with the highest card get 2 each, the others lose 1;
to fold is worth 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field

from coplay.games import (
    Action,
    Chance,
    Choice,
    Game,
    GameSpec,
    Malformed,
    MalformedRule,
    Observation,
    StepOutcome,
    register_game,
)
from coplay.games.parameters import RoundsParameters, join_names


class CLASSParameters(RoundsParameters):
    """What the game can be told, besides players, wording, retries, penalty and num_rounds."""

    kind: Literal["NAME"] = "NAME"
    num_cards: int = Field(6, ge=2, le=100)
    """Cards are numbered from 1 to this."""


@dataclass(frozen=True, slots=True)
class CLASSState:
    """Numbers, texts, and tuples of these; of constant size."""

    round: int
    """Rounds played."""
    cards: tuple[int, ...]
    """Each player's card of the coming round."""
    last: tuple[str, ...] = ()
    """What each did in the last round."""


@register_game
class CLASS(Game[CLASSState]):
    """Stay or fold, on a private card."""

    Parameters: ClassVar[type[CLASSParameters]] = CLASSParameters
    name: ClassVar[str] = "NAME"

    def __init__(self, parameters: CLASSParameters) -> None:
        super().__init__(parameters)
        self._players, self._full = parameters.players, parameters.wording == "full"
        self._grammar = Choice(("stay", "fold"), "move" if self._full else None)
        rule = MalformedRule(
            retries=parameters.retries, penalty=parameters.penalty, consequence="counts as the move 'fold'"
        )
        self._spec = GameSpec(
            players=self._players,
            max_steps=parameters.num_rounds,
            has_chance=True,
            has_rounds=False,
            zero_sum=False,
            symmetric=True,
            reward_range=(-1.0, 2.0),
            malformed_rule=rule,
        )

    @property
    def spec(self) -> GameSpec:
        """What this game declares about itself."""
        return self._spec

    def _deal(self, chance: Chance) -> tuple[int, ...]:
        most = self.parameters.num_cards
        return tuple(1 + chance.integer("card", most, index=seat) for seat in range(len(self._players)))

    def initial_state(self, chance: Chance) -> CLASSState:
        """The first cards."""
        return CLASSState(0, self._deal(chance))

    def to_move(self, state: CLASSState) -> tuple[str, ...]:
        """Everyone, until all rounds are played."""
        return self._players if state.round < self.parameters.num_rounds else ()

    def observe(self, state: CLASSState, player: str) -> Observation:
        """The own card, and what all did in the last round."""
        card, rounds = state.cards[self._players.index(player)], self.parameters.num_rounds
        facts: dict[str, Any] = {"game": self.name, "round": state.round + 1, "card": card}
        if state.last:
            facts["last"] = dict(zip(self._players, state.last, strict=True))
        if self._full:
            others = join_names(tuple(name for name in self._players if name != player))
            did = ", ".join(f"{name}: {move}" for name, move in zip(self._players, state.last, strict=False))
            last = f" Last round: {did}." if did else ""
            text = f"Round {state.round + 1} of {rounds}.{last} Your card is {card}. Stay or fold?"
            system = (
                f"You are {player}. You play with {others}. Each round everyone gets a card from 1 to"
                f" {self.parameters.num_cards}, which nobody else sees, and all say at the same time whether they"
                " stay. Of those who stay, who has the highest card gets 2 points, the others lose 1; to fold is"
                f" worth 0.\\nReply with {self._grammar.describe()}. Any other reply counts as fold."
            )
        else:
            text = " ".join((str(card), *state.last))
            system = f"stay or fold, card 1 to {self.parameters.num_cards}"
        return Observation(text=text, grammar=self._grammar, system=system, facts=facts)

    def step(
        self, state: CLASSState, actions: Mapping[str, Action], chance: Chance
    ) -> tuple[CLASSState, StepOutcome]:
        """Pay one round and deal the next."""
        chosen = [actions[player] for player in self._players]
        moves = tuple("fold" if isinstance(action, Malformed) else str(action.value) for action in chosen)
        staying = [card for card, move in zip(state.cards, moves, strict=True) if move == "stay"]
        best = max(staying, default=0)
        pay = [
            0.0 if move == "fold" else 2.0 if card == best else -1.0
            for card, move in zip(state.cards, moves, strict=True)
        ]
        after = CLASSState(state.round + 1, self._deal(chance), moves)
        return after, StepOutcome(
            rewards=dict(zip(self._players, pay, strict=True)),
            terminated=not self.to_move(after),
            info={"moves": list(moves), "cards": list(state.cards)},
        )

    def private(self, state: CLASSState, player: str) -> Mapping[str, Any]:
        """The own card."""
        return {"card": state.cards[self._players.index(player)]}
'''


def main(arguments: Sequence[str]) -> int:
    """Write the file, and say what to do next."""
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.stdout.write(USAGE)
        return 0 if arguments else 2
    if len(arguments) > 1:
        raise ConfigError(f"unexpected argument {arguments[1]!r}; expected the name of one game")
    name = arguments[0]
    path = Path(f"{name}.py")
    text = new_game(name)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(f"{path} exists already; expected a new name, or remove it first") from None
    sys.stdout.write(f"wrote {path}; next: coplay check-game {name}:{class_name(name)}\n")
    return 0


def class_name(name: str) -> str:
    """`my_game` to `MyGame`."""
    return "".join(part.capitalize() for part in name.split("_"))


def new_game(name: str) -> str:
    """The text of a module with a working game of that name.

    Raises:
        ConfigError: if it cannot be the name of a new game.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise ConfigError(
            f"{name!r} cannot name a game and its module; expected small letters, digits and _, a letter first"
        )
    if name in available_games():
        raise ConfigError(f"a game {name!r} exists already; expected a new name")
    return TEMPLATE.replace("CLASS", class_name(name)).replace("NAME", name)
