"""Alternating offers with discounting (Rubinstein 1982; finite horizon Ståhl 1972), and the ultimatum game.

One player offers the other some of C coins, who accepts or offers in turn. Who accepts the k-th offer x ends the
round: he is paid δ^(k-1)·x and the other δ'^(k-1)·(C - x), each by his own discount factor; if the last of
`max_offers` is rejected nobody gets anything. The ultimatum game (Güth et al. 1982) has one offer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Any, ClassVar

from coplay.games.alternating_offers_parameters import (
    AlternatingOffersParameters,
    OffersParameters,
    UltimatumParameters,
)
from coplay.games.alternating_offers_wording import OffersView, full_rules, full_turn, terse_rules, terse_turn
from coplay.games.base import Game, GameSpec, MalformedRule, Observation, StepOutcome
from coplay.games.best_outcomes import division_yardsticks
from coplay.games.chance import Chance
from coplay.games.grammar import Action, Choice, Grammar, Malformed, Number, OneOf

ACCEPT, REJECT = "accept", "reject"


@dataclass(frozen=True, slots=True)
class OffersState:
    """Of constant size."""

    round: int
    """Rounds played."""
    first: int
    """Seat that offers first in this round."""
    num_offers: int = 0
    """Offers made in this round."""
    offer: int = 0
    """The last of them, if any."""
    last_agreed: bool = False
    last_points: tuple[float, ...] = ()
    """Of the round before, for each seat; empty in the first round."""
    over: bool = False


def subgame_perfect_share(discounts: tuple[float, float], num_offers: int | None = None) -> float:
    """The share that who offers first keeps in subgame-perfect play of a pie that can be cut at will.

    s_1 = 1, s_n = 1 - δ_other·s_{n-1}, the roles changing sides; for n → ∞ (1 - δ_other)/(1 - δ_own·δ_other), which
    is 1/(1 + δ) for equal discounts (Rubinstein 1982).

    Args:
        discounts: of who offers first and of the other, below 1 if the horizon is infinite.
        num_offers: offers left, None for no end.
    """
    own, other = discounts
    if num_offers is None:
        return (1 - other) / (1 - own * other)
    share = 1.0
    for left in range(2, num_offers + 1):
        answering = other if (num_offers - left) % 2 == 0 else own
        share = 1 - answering * share
    return share


def subgame_perfect_offer(coins: int, discounts: tuple[float, float], num_offers: int) -> int:
    """The whole coins that who offers first gives in subgame-perfect play where who is indifferent accepts.

    x_1 = 0, x_n = ⌈δ_other·(C - x_{n-1})⌉: what the other would keep one offer later, discounted, by backward
    induction.

    Args:
        coins: the pie C.
        discounts: of who offers first and of the other.
        num_offers: offers left, this one included.
    """
    own, other = (Fraction(str(discount)) for discount in discounts)
    offer = 0
    for left in range(2, num_offers + 1):
        answering = other if (num_offers - left) % 2 == 0 else own
        offer = ceil(answering * (coins - offer))
    return offer


class AlternatingOffers(Game[OffersState]):
    """Offers of coins in turn, worth less the longer it takes."""

    Parameters: ClassVar[type[OffersParameters]] = AlternatingOffersParameters
    name: ClassVar[str] = "alternating_offers"

    def __init__(self, parameters: OffersParameters) -> None:
        super().__init__(parameters)
        self._max_offers, self._discounts = 1, (1.0, 1.0)
        if isinstance(parameters, AlternatingOffersParameters):
            self._max_offers, self._discounts = parameters.max_offers, parameters.discounts
        self._players = parameters.players
        self._full = parameters.wording == "full"
        tag, answer_tag = (parameters.tag, parameters.answer_tag) if self._full else (None, None)
        offer = Number(0, parameters.coins, tag=tag)
        self._opening: Grammar = offer
        self._reply: Grammar = OneOf(("answer", "offer"), (Choice((ACCEPT,), answer_tag), offer))
        self._last_answer: Grammar = Choice((ACCEPT, REJECT), answer_tag)
        rules = full_rules if self._full else terse_rules
        self._rules = tuple(
            rules(
                self._players,
                seat,
                parameters.coins,
                self._max_offers,
                self._discounts,
                parameters.num_rounds,
            )
            for seat in range(2)
        )
        drawn = parameters.first_offer == "drawn"
        self._spec = GameSpec(
            players=self._players,
            max_steps=parameters.num_rounds * (self._max_offers + 1),
            has_chance=drawn,
            has_rounds=True,
            zero_sum=False,
            symmetric=drawn and len(set(self._discounts)) == 1,
            reward_range=(0.0, float(parameters.coins)),
            malformed_rule=MalformedRule(
                retries=parameters.retries,
                penalty=parameters.penalty,
                consequence="counts as an offer of nothing, and after the last offer as a rejection",
            ),
        )

    @property
    def spec(self) -> GameSpec:
        """What this game declares about itself."""
        return self._spec

    def initial_state(self, chance: Chance) -> OffersState:
        """Who offers first."""
        drawn = self.parameters.first_offer == "drawn"
        return OffersState(0, chance.integer("first offer", 2) if drawn else 0)

    def _mover(self, state: OffersState) -> int:
        return (state.first + state.num_offers) % 2

    def to_move(self, state: OffersState) -> tuple[str, ...]:
        """One after the other."""
        return () if state.over else (self._players[self._mover(state)],)

    def observe(self, state: OffersState, player: str) -> Observation:
        """The new round, at the player's first turn in it, and the other's offer."""
        seat, made = self._players.index(player), state.num_offers
        view = OffersView(
            number=state.round + 1,
            starts=made < 2,
            offer=state.offer if made else None,
            num_offers=made,
            last=(state.last_agreed, state.last_points[seat]) if state.last_points else None,
        )
        grammar = self._opening if not made else self._reply if made < self._max_offers else self._last_answer
        turn = full_turn if self._full else terse_turn
        facts: dict[str, Any] = {
            "game": self.name,
            "round": view.number,
            "num_rounds": self.parameters.num_rounds,
            "coins": self.parameters.coins,
            "num_offers": made,
            "max_offers": self._max_offers,
            "discounts": {name: self._discounts[place] for place, name in enumerate(self._players)},
        }
        facts |= {"offer": state.offer} if made else {}
        if view.last is not None:
            facts["last"] = {"agreed": view.last[0], "points": view.last[1]}
        other = self._players[1 - seat]
        return Observation(
            text=turn(view, other, self.parameters.num_rounds, self._max_offers, grammar.describe()),
            grammar=grammar,
            system=self._rules[seat],
            facts=facts,
        )

    def step(
        self, state: OffersState, actions: Mapping[str, Action], chance: Chance
    ) -> tuple[OffersState, StepOutcome]:
        """An offer, or the answer that ends the round."""
        seat = self._mover(state)
        player = self._players[seat]
        action = actions[player]
        value = None if isinstance(action, Malformed) else action.value
        answer = value.get("answer") if isinstance(value, dict) else value
        accepted = bool(state.num_offers) and answer == ACCEPT
        if not accepted and state.num_offers < self._max_offers:
            offer = value["offer"] if isinstance(value, dict) else (value or 0)
            following = OffersState(
                state.round,
                state.first,
                state.num_offers + 1,
                offer,
                state.last_agreed,
                state.last_points,
            )
            nothing = dict.fromkeys(self._players, 0.0)
            return following, StepOutcome(
                rewards=nothing, round_ended=False, info={"player": player, "offer": offer}
            )
        return self._settle(state, seat, accepted)

    def _settle(self, state: OffersState, seat: int, accepted: bool) -> tuple[OffersState, StepOutcome]:
        """Pay what is accepted, discounted by the offers rejected before."""
        coins = [0.0, 0.0]
        if accepted:
            coins[seat], coins[1 - seat] = float(state.offer), float(self.parameters.coins - state.offer)
        late = state.num_offers - 1
        points = tuple(
            amount * discount**late for amount, discount in zip(coins, self._discounts, strict=True)
        )
        over = state.round + 1 >= self.parameters.num_rounds
        info = {
            "player": self._players[seat],
            "answer": ACCEPT if accepted else REJECT,
            "num_offers": state.num_offers,
            "agreed": accepted,
            **division_yardsticks(self._players, ((1,), (1,)), self.parameters.coins),
        }
        following = OffersState(state.round + 1, 1 - state.first, 0, 0, accepted, points, over)
        return following, StepOutcome(
            rewards=dict(zip(self._players, points, strict=True)), terminated=over, info=info
        )


class Ultimatum(AlternatingOffers):
    """One offer of coins, to be accepted or rejected."""

    Parameters: ClassVar[type[OffersParameters]] = UltimatumParameters
    name: ClassVar[str] = "ultimatum"
