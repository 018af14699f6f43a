"""A first-price auction with sealed bids (Vickrey 1961), for three bidders, from a package of its own."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field

from coplay.games import (
    Action,
    Chance,
    Game,
    GameSpec,
    Grammar,
    Malformed,
    MalformedRule,
    Move,
    Observation,
    StepOutcome,
    register_grammar,
    strip_reasoning,
)
from coplay.games.parameters import Players, RoundsParameters


@register_grammar("sealed_bid/price")
@dataclass(frozen=True, slots=True)
class Price(Grammar):
    """`$ 7`: a whole price from 0 to `most`; the value is the number."""

    most: int

    def parse(self, text: str) -> Action:
        spoken = strip_reasoning(text).strip()
        found = re.fullmatch(r"\$ ([0-9]{1,6})", spoken)
        if not spoken or found is None:
            return Malformed(reason="no_move" if spoken else "empty", text=spoken)
        price = int(found[1])
        return Move(value=price, text=f"$ {price}") if price <= self.most else self._too_much(spoken)

    def _too_much(self, spoken: str) -> Malformed:
        return Malformed(reason="out_of_range", text=spoken)

    def write(self, value: Any) -> str:
        if not isinstance(value, int) or not 0 <= value <= self.most:
            raise ValueError(f"{value!r} is no price; expected 0 to {self.most}")
        return f"$ {value}"

    def labels(self) -> tuple[str, ...]:
        return tuple(f"$ {price}" for price in range(self.most + 1))

    def describe(self) -> str:
        return f"$ and a price from 0 to {self.most}"

    def to_json(self) -> dict[str, Any]:
        return {"kind": "sealed_bid/price", "most": self.most}


class SealedBidParameters(RoundsParameters):
    """What the auction can be told."""

    kind: Literal["sealed_bid"] = "sealed_bid"
    players: Players = ("Ada", "Bo", "Cy")
    """The bidders."""
    num_rounds: int = Field(2, ge=1, le=1000)
    """Lots sold."""
    most: int = Field(9, ge=1, le=999)
    """Greatest value of a lot, and greatest bid."""


@dataclass(frozen=True, slots=True)
class Lot:
    """What is sold next."""

    number: int
    values: tuple[int, ...]
    last: tuple[int, ...] = ()


class SealedBid(Game[Lot]):
    """The highest bidder gets the lot for his bid; of several, all share what is left of their values."""

    Parameters: ClassVar[type[Any]] = SealedBidParameters
    name: ClassVar[str] = "sealed_bid"

    @property
    def spec(self) -> GameSpec:
        told, most = self.parameters, self.parameters.most
        rule = MalformedRule(retries=told.retries, penalty=told.penalty, consequence="counts as a bid of 0")
        return GameSpec(
            players=told.players,
            max_steps=told.num_rounds,
            has_chance=True,
            has_rounds=False,
            zero_sum=False,
            symmetric=True,
            reward_range=(-float(most), float(most)),
            malformed_rule=rule,
        )

    def _values(self, chance: Chance) -> tuple[int, ...]:
        most = self.parameters.most
        return tuple(
            1 + chance.integer("value", most, index=seat) for seat in range(len(self.parameters.players))
        )

    def initial_state(self, chance: Chance) -> Lot:
        return Lot(0, self._values(chance))

    def to_move(self, state: Lot) -> tuple[str, ...]:
        players: tuple[str, ...] = self.parameters.players
        return players if state.number < self.parameters.num_rounds else ()

    def observe(self, state: Lot, player: str) -> Observation:
        value = state.values[self.parameters.players.index(player)]
        last = " ".join(f"$ {bid}" for bid in state.last)
        full = self.parameters.wording == "full"
        text = (
            f"Last bids: {last}. " if last else ""
        ) + f"Lot {state.number + 1} is worth {value} to you. Your bid?"
        system = f"You are {player}. The highest bid buys the lot. Reply with $ and a price, such as $ 0."
        return Observation(
            text=text if full else f"{value} {last}".strip(),
            system=system if full else "bid $ 0",
            grammar=Price(self.parameters.most),
            facts={"game": self.name, "value": value, "last": list(state.last)},
        )

    def step(self, state: Lot, actions: Mapping[str, Action], chance: Chance) -> tuple[Lot, StepOutcome]:
        chosen = [actions[player] for player in self.parameters.players]
        bids = tuple(0 if isinstance(action, Malformed) else int(action.value) for action in chosen)
        highest, winners = max(bids), bids.count(max(bids))
        gains = [
            (value - bid) / winners if bid == highest else 0.0
            for bid, value in zip(bids, state.values, strict=True)
        ]
        after = Lot(state.number + 1, self._values(chance), bids)
        return after, StepOutcome(
            rewards=dict(zip(self.parameters.players, gains, strict=True)),
            terminated=not self.to_move(after),
            info={"bids": list(bids)},
        )

    def private(self, state: Lot, player: str) -> Mapping[str, Any]:
        return {"value": state.values[self.parameters.players.index(player)]}
