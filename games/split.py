"""Split without communication: several items, public values drawn afresh each round, simultaneous claims.

Of an item with stock Q and claims c_1..c_n, player i receives Q·c_i / max(Q, Σ_j c_j) units, and is paid
that times his value, divided by `reward_divisor`.

Published variants: the no-press split (the defaults), and the exchange game of Advantage Alignment (Duque et al. 2024):
three items of one unit each, worth 5 to one player and 1 to the other by lot, claims p from 0 to 5, shares
p_i / max(5, p_1 + p_2), rewards divided by 15. That is a stock of 5 fifths of each item: `value_generator =
"five_one_exclusive"`, `equal_totals = False`, `stock = 5`, `reward_divisor = 75`; a play is 50 such rounds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from coplay.games.base import Game, GameSpec, MalformedRule, Observation, StepOutcome
from coplay.games.best_outcomes import division_yardsticks
from coplay.games.chance import Chance
from coplay.games.grammar import Action, Fields, Malformed
from coplay.games.parameters import RoundsParameters, Tag, join_names
from coplay.games.split_values import MAX_EXPECTED_TRIES, ValueGenerator, ValueRule, acceptance, draw_values
from coplay.games.split_wording import SplitRules, full_round, full_rules, terse_round, terse_rules

Table = tuple[tuple[int, ...], ...]
"""For each player, a number for each item."""


class SplitParameters(RoundsParameters):
    """What the split game can be told."""

    kind: Literal["split"] = "split"
    items: tuple[str, ...] = Field(("hats", "books", "balls"), min_length=1, max_length=8)
    """Names of the items, one word each."""
    stock: int = Field(10, ge=1, le=1000)
    """Units of each item."""
    value_generator: ValueGenerator = "ten_one_ties"
    """Values per unit: 10 (or 5) for exactly one player and 1 for the others; 10 or 1 for each by lot; 1 to 20 by
    lot."""
    equal_totals: bool = True
    """Draw again until all players' values have the same sum."""
    at_least_one_conflict: bool = True
    """Draw again until the players do not all have the same values."""
    reward_divisor: float = Field(1.0, gt=0.0)
    """What units times values are divided by."""
    tag: Tag = "proposal"
    """In the full wording, the tag that a proposal stands in; None for the proposal alone. Terse ones have no
    tag."""

    @model_validator(mode="after")
    def _can_be_drawn(self) -> "SplitParameters":
        Fields(self.items, 0, self.stock)
        share = acceptance(self.value_rule())
        if share * MAX_EXPECTED_TRIES < 1:
            raise ValueError(
                f"value_generator {self.value_generator!r} with {len(self.players)} players and"
                f" {len(self.items)} items"
                f" meets equal_totals={self.equal_totals} and"
                f" at_least_one_conflict={self.at_least_one_conflict} in a"
                f" share of {share:.2g} of the draws; expected at least 1 in {MAX_EXPECTED_TRIES}:"
                " set one of the two to false, or change the items or players"
            )
        return self

    def value_rule(self) -> ValueRule:
        """How values are drawn."""
        return ValueRule(
            generator=self.value_generator,
            num_players=len(self.players),
            num_items=len(self.items),
            equal_totals=self.equal_totals,
            at_least_one_conflict=self.at_least_one_conflict,
        )


@dataclass(frozen=True, slots=True)
class SplitState:
    """Of constant size, however long the game."""

    round: int
    """Rounds played."""
    values: Table
    """Of the coming round."""
    last_claims: Table = ()
    last_values: Table = ()
    over: bool = False


def shares(claims: Table, stock: int) -> tuple[tuple[float, ...], ...]:
    """Units each player receives of each item: stock·c_i / max(stock, Σ c)."""
    totals = [max(stock, sum(column)) for column in zip(*claims, strict=True)]
    return tuple(
        tuple(stock * claim / total for claim, total in zip(own, totals, strict=True)) for own in claims
    )


def pay(claims: Table, values: Table, stock: int) -> tuple[float, ...]:
    """Units received times own value, summed over the items, for each player."""
    return tuple(
        sum(units * value for units, value in zip(*pair, strict=True))
        for pair in zip(shares(claims, stock), values, strict=True)
    )


class Split(Game[SplitState]):
    """Players claim units of several items; values are public."""

    Parameters: ClassVar[type[SplitParameters]] = SplitParameters
    name: ClassVar[str] = "split"

    def __init__(self, parameters: SplitParameters) -> None:
        super().__init__(parameters)
        self._players = parameters.players
        self._items = parameters.items
        self._seats = {player: seat for seat, player in enumerate(self._players)}
        self._full = parameters.wording == "full"
        self._values = parameters.value_rule()
        self._nothing = (0,) * len(self._items)
        self._grammar = Fields(
            self._items, 0, parameters.stock, parameters.tag if self._full else None, bare=not self._full
        )
        rules = SplitRules(
            items=self._items,
            stock=parameters.stock,
            values=self._values,
            num_rounds=parameters.num_rounds,
            reward_divisor=parameters.reward_divisor,
            reply=self._grammar.describe(),
        )
        self._rules = tuple(
            full_rules(rules, player, join_names(tuple(name for name in self._players if name != player)))
            if self._full
            else terse_rules(rules)
            for player in self._players
        )
        self._spec = GameSpec(
            players=self._players,
            max_steps=parameters.num_rounds,
            has_chance=True,
            has_rounds=False,
            zero_sum=False,
            symmetric=True,
            reward_range=(
                0.0,
                parameters.stock * len(self._items) * self._values.largest / parameters.reward_divisor,
            ),
            malformed_rule=MalformedRule(
                retries=parameters.retries,
                penalty=parameters.penalty,
                consequence="counts as a claim of nothing",
            ),
        )

    @property
    def spec(self) -> GameSpec:
        """What this game declares about itself."""
        return self._spec

    def initial_state(self, chance: Chance) -> SplitState:
        """The values of the first round."""
        return SplitState(0, draw_values(self._values, chance))

    def to_move(self, state: SplitState) -> tuple[str, ...]:
        """Everyone, until the game is over."""
        return () if state.over else self._players

    def observe(self, state: SplitState, player: str) -> Observation:
        """All values of this round, and all claims of the last."""
        seat = self._seats[player]
        facts: dict[str, Any] = {
            "game": self.name,
            "round": state.round + 1,
            "num_rounds": self.parameters.num_rounds,
            "items": list(self._items),
            "stock": self.parameters.stock,
            "values": self._named(state.values),
        }
        if state.last_claims:
            facts["last"] = self._named(state.last_claims)
        if self._full:
            heading = f"Round {state.round + 1} of {self.parameters.num_rounds}."
            gains = self._pay(state.last_claims, state.last_values) if state.last_claims else ()
            text = full_round(
                heading, self._players, seat, self._items, (state.values, state.last_claims, gains)
            )
        else:
            text = terse_round(seat, state.values, state.last_claims)
        return Observation(text=text, grammar=self._grammar, system=self._rules[seat], facts=facts)

    def _named(self, table: Table) -> dict[str, dict[str, int]]:
        return {
            player: dict(zip(self._items, numbers, strict=True))
            for player, numbers in zip(self._players, table, strict=True)
        }

    def step(
        self, state: SplitState, actions: Mapping[str, Action], chance: Chance
    ) -> tuple[SplitState, StepOutcome]:
        """Divide the items of one round, and draw the values of the next."""
        claims = tuple(self._claim(actions[player]) for player in self._players)
        gains = self._pay(claims, state.values)
        played = state.round + 1
        over = played >= self.parameters.num_rounds
        values = state.values if over else draw_values(self._values, chance)
        outcome = StepOutcome(
            rewards=dict(zip(self._players, gains, strict=True)),
            terminated=over,
            info={"claims": self._named(claims), "values": self._named(state.values)}
            | self._yardsticks(state.values, claims, actions),
        )
        return SplitState(played, values, claims, state.values, over), outcome

    def _pay(self, claims: Table, values: Table) -> tuple[float, ...]:
        divisor = self.parameters.reward_divisor
        return tuple([points / divisor for points in pay(claims, values, self.parameters.stock)])

    def _yardsticks(self, values: Table, claims: Table, actions: Mapping[str, Action]) -> dict[str, Any]:
        stock = self.parameters.stock
        fits = all(sum(column) <= stock for column in zip(*claims, strict=True))
        agreed = fits and not any(isinstance(action, Malformed) for action in actions.values())
        scaled = stock / self.parameters.reward_divisor
        return {"agreed": agreed, **division_yardsticks(self._players, values, scaled)}

    def _claim(self, action: Action) -> tuple[int, ...]:
        if isinstance(action, Malformed):
            return self._nothing
        return tuple(action.value[item] for item in self._items)
