"""Leduc poker (Southey et al. 2005): six cards, two each of three ranks; a card each, then one for both.

Ante 1. In each of two rounds of betting the first player begins; one folds (if he faces a raise), calls (or
checks) or raises, by 2 chips in the first round and 4 in the second, with at most two raises a round. After the
first round a public card is laid open. A pair with it wins, else the higher card; equal cards win nothing.
Rewards are chips won.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from coplay.games.base import Game, GameSpec, MalformedRule, Observation, StepOutcome
from coplay.games.chance import Chance
from coplay.games.grammar import Action, Choice, Malformed
from coplay.games.parameters import SeatsParameters, Tag, TwoPlayers

CARDS = ("jack", "queen", "king")
DECK = (0, 0, 1, 1, 2, 2)
MOVES = ("fold", "call", "raise")
FOLD, CALL, RAISE = range(3)
TERSE_MOVES = ("F", "C", "R")
TOLD = ("folded", "called", "raised")
ANTE, RAISES, MAX_RAISES = 1, (2, 4), 2


class LeducPokerParameters(SeatsParameters):
    """What Leduc poker can be told."""

    kind: Literal["leduc_poker"] = "leduc_poker"
    players: TwoPlayers = ("Ada", "Bo")
    """Names of the two seats, the first to begin each round."""
    tag: Tag = "move"
    """In the full wording, the tag that a move stands in; None for the move alone. Terse moves have no tag."""


@dataclass(frozen=True, slots=True)
class LeducState:
    """The cards dealt so far and the moves of both rounds."""

    cards: tuple[int, ...]
    """Ranks: the first player's, the second's, then the public one."""
    rounds: tuple[tuple[int, ...], ...] = ((),)

    def folded(self) -> bool:
        """Whether somebody gave up."""
        return self.rounds[-1][-1:] == (FOLD,)

    def over(self) -> bool:
        """Whether nothing follows."""
        return self.folded() or (len(self.rounds) == 2 and betting_ended(self.rounds[1]))


def betting_ended(moves: tuple[int, ...]) -> bool:
    """A round ends with a fold, and with any call but the first move."""
    return moves[-1:] == (FOLD,) or (len(moves) > 1 and moves[-1] == CALL)


def legal_moves(moves: tuple[int, ...]) -> tuple[int, ...]:
    """What may follow these moves of a round."""
    fold = (FOLD,) if moves[-1:] == (RAISE,) else ()
    more = (RAISE,) if moves.count(RAISE) < MAX_RAISES else ()
    return (*fold, CALL, *more)


def stakes(rounds: tuple[tuple[int, ...], ...]) -> list[int]:
    """Chips each player has put in."""
    paid = [ANTE, ANTE]
    for size, moves in zip(RAISES, rounds, strict=False):
        for place, move in enumerate(moves):
            if move != FOLD:
                paid[place % 2] = max(paid) + (size if move == RAISE else 0)
    return paid


class LeducPoker(Game[LeducState]):
    """One hand of Leduc poker."""

    Parameters: ClassVar[type[LeducPokerParameters]] = LeducPokerParameters
    name: ClassVar[str] = "leduc_poker"

    def __init__(self, parameters: LeducPokerParameters) -> None:
        super().__init__(parameters)
        self._players = parameters.players
        self._full = parameters.wording == "full"
        self._labels = MOVES if self._full else TERSE_MOVES
        self._tag = parameters.tag if self._full else None
        self._most = float(ANTE + MAX_RAISES * sum(RAISES))
        self._spec = GameSpec(
            players=self._players,
            max_steps=2 * (MAX_RAISES + 2),
            has_chance=True,
            has_rounds=False,
            zero_sum=True,
            symmetric=False,
            reward_range=(-self._most, self._most),
            malformed_rule=MalformedRule(
                retries=parameters.retries,
                penalty=parameters.penalty,
                consequence="counts as a fold, or as a call where there is no raise to fold to",
            ),
        )

    @property
    def spec(self) -> GameSpec:
        """What this game declares about itself."""
        return self._spec

    def initial_state(self, chance: Chance) -> LeducState:
        """Deal one card to each."""
        first = chance.integer("card", len(DECK), index=0)
        rest = DECK[:first] + DECK[first + 1 :]
        return LeducState((DECK[first], chance.choice("card", rest, index=1)))

    def to_move(self, state: LeducState) -> tuple[str, ...]:
        """One after the other; the first player begins each round."""
        return () if state.over() else (self._players[len(state.rounds[-1]) % 2],)

    def observe(self, state: LeducState, player: str) -> Observation:
        """The own card at the first turn, the public card when it is new, the other's moves since."""
        seat = self._players.index(player)
        legal = legal_moves(state.rounds[-1])
        facts: dict[str, Any] = {
            "game": self.name,
            "card": CARDS[state.cards[seat]],
            "moves": [MOVES[move] for move in legal],
            "history": [[MOVES[move] for move in moves] for moves in state.rounds],
        }
        if len(state.cards) > 2:
            facts["public"] = CARDS[state.cards[2]]
        grammar = Choice(tuple(self._labels[move] for move in legal), self._tag)
        first_turn = len(state.rounds) == 1 and len(state.rounds[0]) < 2
        new = self._new(state, seat)
        if self._full:
            told = [f"Your card is the {facts['card']}."] if first_turn else []
            other = self._players[1 - seat]
            told += [
                f"The public card is the {facts['public']}." if move is None else f"{other} {TOLD[move]}."
                for move in new
            ]
            text = " ".join([*told, f"Your move: {', '.join(facts['moves'][:-1])} or {facts['moves'][-1]}?"])
        else:
            told = [_letter(facts["card"])] if first_turn else []
            told += [_letter(facts["public"]) if move is None else TERSE_MOVES[move] for move in new]
            text = " ".join(told)
        return Observation(text=text, grammar=grammar, system=self._rules(seat), facts=facts)

    def _new(self, state: LeducState, seat: int) -> list[int | None]:
        """The other's moves since the own last one, and None where the public card was laid open."""
        new: list[int | None] = []
        for number, moves in enumerate(state.rounds):
            if number:
                new.append(None)
            for place, move in enumerate(moves):
                if place % 2 == seat:
                    new.clear()
                else:
                    new.append(move)
        return new

    def _rules(self, seat: int) -> str:
        if not self._full:
            return "J < Q < K 1 R 2 4 x 2" + (" start" if seat == 0 else "")
        player, other = self._players[seat], self._players[1 - seat]
        order = "You move first" if seat == 0 else f"{other} moves first"
        tag = "" if self._tag is None else f" in <{self._tag}>...</{self._tag}>"
        return (
            f"You are {player}. You play one hand of Leduc poker with {other}.\n"
            "There are six cards: two jacks, two queens and two kings; kings are the highest. Each of you gets one"
            f" and sees only his own. Each puts {ANTE} chip into the pot.\n"
            f"There are two rounds of betting. {order} in both. To raise is to put in what the other has put in and"
            f" {RAISES[0]} chips more in the first round, {RAISES[1]} in the second, at most {MAX_RAISES} times a"
            " round; to call is to put in just what the other has; to fold is to give up, and is possible only"
            " after a raise. A round ends with a fold, and with any call but the first move of the round.\n"
            "After the first round a public card is laid open. At the end whoever has the same card as it wins the"
            " pot, else the higher card; equal cards divide it.\n"
            "You want to win as many chips as you can.\n"
            f"Reply with your move, fold, call or raise, whichever are possible{tag}. Any other reply counts as a"
            " fold, or as a call where there is no raise to fold to."
        )

    def step(
        self, state: LeducState, actions: Mapping[str, Action], chance: Chance
    ) -> tuple[LeducState, StepOutcome]:
        """One move; lay the public card open after the first round; pay after the last move."""
        (player,) = self.to_move(state)
        action, moves = actions[player], state.rounds[-1]
        move = legal_moves(moves)[0] if isinstance(action, Malformed) else self._labels.index(action.value)
        after = LeducState(state.cards, (*state.rounds[:-1], (*moves, move)))
        if not after.over() and betting_ended(after.rounds[-1]):
            rest = list(DECK)
            for card in state.cards:
                rest.remove(card)
            after = LeducState((*state.cards, chance.choice("public card", rest)), (*after.rounds, ()))
        gain = self._gain(after) if after.over() else 0.0
        return after, StepOutcome(
            rewards=dict(zip(self._players, (gain, 0.0 - gain), strict=True)),
            terminated=after.over(),
            info={"player": player, "move": MOVES[move]},
        )

    def _gain(self, state: LeducState) -> float:
        """Chips the first player wins."""
        paid = stakes(state.rounds)
        if state.folded():
            folder = (len(state.rounds[-1]) - 1) % 2
            return float(-paid[0] if folder == 0 else paid[1])
        first, second = ((card == state.cards[2], card) for card in state.cards[:2])
        return float(paid[0] * ((first > second) - (first < second)))

    def private(self, state: LeducState, player: str) -> Mapping[str, Any]:
        """The own card."""
        return {"card": CARDS[state.cards[self._players.index(player)]]}


def _letter(card: str) -> str:
    return card[0].upper()
