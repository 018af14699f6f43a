"""Buying and selling one thing with private reservation prices (bilateral trade, Chatterjee and Samuelson 1983).

The seller's cost c and the buyer's value v are drawn by lot and private. In turn they talk, name prices, accept, or
end. At price p the seller is paid p - c and the buyer v - p, without a deal both 0. With one price named by a seller
to v uniform on [0, 1] the best is (1 + c)/2, which wins him 1/12 and the buyer 1/24 on average over uniform c, of
the 1/6 that trade is worth.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from coplay.games.base import Game, GameSpec, MalformedRule, Observation, StepOutcome
from coplay.games.buy_sell_parameters import BuySellParameters
from coplay.games.buy_sell_wording import TradeView, full_rules, full_turn, terse_rules, terse_turn
from coplay.games.chance import Chance
from coplay.games.grammar import Action, Choice, FreeText, Grammar, Malformed, Number, OneOf
from coplay.games.messages import delivered

ACCEPT, END = "accept", "end"
ROLES = ("seller", "buyer")
NO_PRICE = -1


@dataclass(frozen=True, slots=True)
class BuySellState:
    """Of constant size, however long the game."""

    round: int
    """Rounds played."""
    reservations: tuple[int, int]
    """The seller's cost and the buyer's value."""
    first: int
    """Seat that moves first in this round."""
    turn: int = 0
    """Turns taken in this round."""
    prices: tuple[int, int] = (NO_PRICE, NO_PRICE)
    """The last price each seat named in this round."""
    named: bool = False
    """True if the last turn named a price."""
    message: str = ""
    """What was said at the last turn, if it named no price."""
    last_agreed: bool = False
    last_points: tuple[int, ...] = ()
    """Of the round before, for each seat; empty in the first round."""
    over: bool = False


class BuySell(Game[BuySellState]):
    """One thing for sale, private reservation prices, free talk."""

    Parameters: ClassVar[type[BuySellParameters]] = BuySellParameters
    name: ClassVar[str] = "buy_sell"

    def __init__(self, parameters: BuySellParameters) -> None:
        super().__init__(parameters)
        self._players = parameters.players
        self._full = parameters.wording == "full"
        tags = (parameters.tag, parameters.answer_tag, parameters.message_tag)
        tag, answer_tag, self._message_tag = tags if self._full else (None, None, None)
        price = Number(0, parameters.max_price, tag=tag)
        message = FreeText(parameters.max_message_characters, self._message_tag)
        self._grammars: dict[bool, Grammar] = {}
        for accepts in (True, False):
            answer = Choice((ACCEPT, END) if accepts else (END,), answer_tag)
            if parameters.talk:
                otherwise = "message" if self._message_tag is None else None
                self._grammars[accepts] = OneOf(
                    ("message", "price", "answer"), (message, price, answer), otherwise
                )
            else:
                self._grammars[accepts] = OneOf(("price", "answer"), (price, answer))
        rules = full_rules if self._full else terse_rules
        self._rules = tuple(rules(parameters, seat, price.describe()) for seat in range(2))
        most = float(parameters.max_price)
        self._spec = GameSpec(
            players=self._players,
            max_steps=parameters.num_rounds * parameters.max_turns,
            has_chance=True,
            has_rounds=True,
            zero_sum=False,
            symmetric=False,
            reward_range=(-most, most),
            malformed_rule=MalformedRule(
                retries=parameters.retries,
                penalty=parameters.penalty,
                consequence="is silence, a message that is too long is cut to the limit",
            ),
        )

    @property
    def spec(self) -> GameSpec:
        """What this game declares about itself."""
        return self._spec

    def initial_state(self, chance: Chance) -> BuySellState:
        """A cost and a value, and who moves first."""
        return self._deal(chance, 0)

    def _deal(self, chance: Chance, played: int) -> BuySellState:
        size = self.parameters.max_price + 1
        cost, value = chance.integer("cost", size), chance.integer("value", size)
        if self.parameters.always_gains:
            pair = chance.integer("gains", size * (size - 1) // 2)
            cost, value = next(
                (low, low + 1 + pair - before)
                for low in range(size)
                if (before := low * (2 * size - low - 1) // 2) <= pair < before + size - 1 - low
            )
        opens = self.parameters.opens
        first = chance.integer("first", 2) if opens == "drawn" else ROLES.index(opens)
        return BuySellState(played, (cost, value), first)

    def _mover(self, state: BuySellState) -> int:
        return (state.first + state.turn) % 2

    def to_move(self, state: BuySellState) -> tuple[str, ...]:
        """One after the other."""
        return () if state.over else (self._players[self._mover(state)],)

    def observe(self, state: BuySellState, player: str) -> Observation:
        """The own reservation price at a round's first turn; what the other did."""
        seat = self._players.index(player)
        heard = None if state.named or not state.turn else state.message
        view = TradeView(
            seat=seat,
            number=state.round + 1,
            starts=state.turn < 2,
            reservation=state.reservations[seat],
            turn=state.turn,
            heard=heard,
            price=state.prices[1 - seat] if state.named else None,
            last=(state.last_agreed, state.last_points[seat]) if state.last_points else None,
        )
        grammar = self._grammars[state.prices[1 - seat] != NO_PRICE]
        facts: dict[str, Any] = {
            "game": self.name,
            "role": ROLES[seat],
            "round": view.number,
            "num_rounds": self.parameters.num_rounds,
            "reservation": view.reservation,
            "max_price": self.parameters.max_price,
            "turn": state.turn,
            "max_turns": self.parameters.max_turns,
            "prices": {
                name: price
                for name, price in zip(self._players, state.prices, strict=True)
                if price != NO_PRICE
            },
        }
        facts |= {} if heard is None else {"heard": heard}
        if view.last is not None:
            facts["last"] = {"agreed": view.last[0], "points": view.last[1]}
        turn = full_turn if self._full else terse_turn
        return Observation(
            text=turn(self.parameters, view, grammar.describe()),
            grammar=grammar,
            system=self._rules[seat],
            facts=facts,
        )

    def step(
        self, state: BuySellState, actions: Mapping[str, Action], chance: Chance
    ) -> tuple[BuySellState, StepOutcome]:
        """A message, a price, or the end of a round."""
        seat = self._mover(state)
        player = self._players[seat]
        action = actions[player]
        value = {} if isinstance(action, Malformed) else action.value
        info: dict[str, Any] = {"player": player, "move": next(iter(value), "none")}
        last = state.turn + 1 >= self.parameters.max_turns
        if "answer" in value:
            price = state.prices[1 - seat] if value["answer"] == ACCEPT else None
            return self._settle(state, price, info | {"answer": value["answer"]}, chance)
        if "price" in value:
            info |= {"price": value["price"]}
        if last:
            return self._settle(state, None, info, chance)
        prices = list(state.prices)
        prices[seat] = value.get("price", prices[seat])
        said = action if isinstance(action, Malformed) else replace(action, value=value.get("message", ""))
        following = replace(
            state,
            turn=state.turn + 1,
            prices=(prices[0], prices[1]),
            named="price" in value,
            message=delivered(said, self.parameters.max_message_characters, whole_reply=False),
        )
        nothing = dict.fromkeys(self._players, 0.0)
        return following, StepOutcome(rewards=nothing, round_ended=False, info=info)

    def _settle(
        self, state: BuySellState, price: int | None, info: dict[str, Any], chance: Chance
    ) -> tuple[BuySellState, StepOutcome]:
        """Pay what is agreed, and draw anew."""
        cost, value = state.reservations
        points = (0, 0) if price is None else (price - cost, value - price)
        over = state.round + 1 >= self.parameters.num_rounds
        seller, buyer = self._players
        told = {**info, "cost": cost, "value": value, "agreed": price is not None}
        told |= {} if price is None else {"price": price}
        told["best_total"] = max(0, value - cost)
        if value > cost:
            most = self.parameters.max_price
            told["efficient_line"] = {seller: [-cost, most - cost], buyer: [value, value - most]}
        following = state if over else self._deal(chance, state.round + 1)
        following = replace(
            following, round=state.round + 1, last_agreed=price is not None, last_points=points, over=over
        )
        rewards = {player: float(each) for player, each in zip(self._players, points, strict=True)}
        return following, StepOutcome(rewards=rewards, terminated=over, info=told)

    def private(self, state: BuySellState, player: str) -> Mapping[str, Any]:
        """The seller's cost, the buyer's value."""
        seat = self._players.index(player)
        return {("cost", "value")[seat]: state.reservations[seat]}
