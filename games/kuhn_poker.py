"""Kuhn poker (Kuhn 1950): three cards, one for each of two players, an ante of 1 and at most one bet of 1.

The first player passes or bets; after a bet the other folds (passes) or calls (bets); after a pass the other may
bet, and the first then folds or calls. The higher card wins the pot unless someone folded. Rewards are chips won.

Value of the first player in equilibrium: -1/18. The equilibria of the first player: bet the jack with probability
α in [0, 1/3], the king with 3α, call with the queen with α + 1/3; the second bets the jack and calls with the
queen with 1/3 each.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from coplay.games.base import Game, GameSpec, MalformedRule, Observation, StepOutcome
from coplay.games.chance import Chance
from coplay.games.grammar import Action, Choice, Malformed
from coplay.games.parameters import SeatsParameters, Tag, TwoPlayers

CARDS = ("jack", "queen", "king")
MOVES = ("pass", "bet")
TERSE_MOVES = ("P", "B")
ENDS = {(0, 0): 1, (1, 0): 1, (1, 1): 2, (0, 1, 0): 1, (0, 1, 1): 2}
"""Indices of the moves of a finished play -> chips each has at stake who did not fold."""


class KuhnPokerParameters(SeatsParameters):
    """What Kuhn poker can be told."""

    kind: Literal["kuhn_poker"] = "kuhn_poker"
    players: TwoPlayers = ("Ada", "Bo")
    """Names of the two seats, the first to move first."""
    tag: Tag = "move"
    """In the full wording, the tag that a move stands in; None for the move alone. Terse moves have no tag."""


@dataclass(frozen=True, slots=True)
class KuhnState:
    """The deal and the moves so far."""

    cards: tuple[int, int]
    """Each player's card, 0 to 2."""
    moves: tuple[int, ...] = ()


class KuhnPoker(Game[KuhnState]):
    """One hand of Kuhn poker."""

    Parameters: ClassVar[type[KuhnPokerParameters]] = KuhnPokerParameters
    name: ClassVar[str] = "kuhn_poker"

    def __init__(self, parameters: KuhnPokerParameters) -> None:
        super().__init__(parameters)
        self._players = parameters.players
        self._full = parameters.wording == "full"
        self._labels = MOVES if self._full else TERSE_MOVES
        self._grammar = Choice(self._labels, parameters.tag if self._full else None)
        self._spec = GameSpec(
            players=self._players,
            max_steps=3,
            has_chance=True,
            has_rounds=False,
            zero_sum=True,
            symmetric=False,
            reward_range=(-2.0, 2.0),
            malformed_rule=MalformedRule(
                retries=parameters.retries, penalty=parameters.penalty, consequence="counts as a pass"
            ),
        )

    @property
    def spec(self) -> GameSpec:
        """What this game declares about itself."""
        return self._spec

    def initial_state(self, chance: Chance) -> KuhnState:
        """Deal one card to each."""
        first = chance.integer("card", 3, index=0)
        second = chance.integer("card", 2, index=1)
        return KuhnState((first, second + (second >= first)))

    def to_move(self, state: KuhnState) -> tuple[str, ...]:
        """One after the other, until somebody folds or the cards are shown."""
        return () if state.moves in ENDS else (self._players[len(state.moves) % 2],)

    def observe(self, state: KuhnState, player: str) -> Observation:
        """The own card at the first turn, and the other's last move."""
        seat = self._players.index(player)
        first_turn = len(state.moves) < 2
        facts: dict[str, Any] = {
            "game": self.name,
            "card": CARDS[state.cards[seat]],
            "moves": list(MOVES),
            "history": [MOVES[move] for move in state.moves],
        }
        other = self._players[1 - seat]
        if self._full:
            heard = f"{other} {('passed', 'bet')[state.moves[-1]]}." if state.moves else ""
            card = f"Your card is the {facts['card']}." if first_turn else ""
            text = " ".join(filter(None, (card, heard, "Your move?")))
        else:
            card = facts["card"][0].upper() if first_turn else ""
            heard = TERSE_MOVES[state.moves[-1]] if state.moves else ""
            text = " ".join(filter(None, (card, heard)))
        return Observation(text=text, grammar=self._grammar, system=self._rules(seat), facts=facts)

    def _rules(self, seat: int) -> str:
        if not self._full:
            return "J < Q < K P B 1 2" + (" start" if seat == 0 else "")
        player, other = self._players[seat], self._players[1 - seat]
        order = f"You move first, {other} second" if seat == 0 else f"{other} moves first, you second"
        return (
            f"You are {player}. You play one hand of Kuhn poker with {other}.\n"
            "There are three cards: jack, queen and king; the king is the highest. Each of you gets one and sees"
            " only his own. Each puts 1 chip into the pot.\n"
            f"{order}. You pass, or bet 1 more chip. If both pass, the higher card wins the pot. After a bet, to"
            " bet is to call: 1 more chip goes in and the higher card wins; to pass is to fold: the one who bet"
            " wins. If the first passes and the second bets, the first moves once more.\n"
            "You want to win as many chips as you can.\n"
            f"Reply with your move: {self._grammar.describe()}. Any other reply counts as a pass."
        )

    def step(
        self, state: KuhnState, actions: Mapping[str, Action], chance: Chance
    ) -> tuple[KuhnState, StepOutcome]:
        """One move; pay when it is the last."""
        (player,) = self.to_move(state)
        action = actions[player]
        move = 0 if isinstance(action, Malformed) else self._labels.index(action.value)
        after = KuhnState(state.cards, (*state.moves, move))
        gain = 0.0
        if after.moves in ENDS:
            stake = ENDS[after.moves]
            folded = after.moves[-2:] == (1, 0)
            first_wins = len(after.moves) == 2 if folded else after.cards[0] > after.cards[1]
            gain = float(stake if first_wins else -stake)
        return after, StepOutcome(
            rewards=dict(zip(self._players, (gain, 0.0 - gain), strict=True)),
            terminated=after.moves in ENDS,
            info={"player": player, "move": MOVES[move]},
        )

    def private(self, state: KuhnState, player: str) -> Mapping[str, Any]:
        """The own card."""
        return {"card": CARDS[state.cards[self._players.index(player)]]}
