"""Commons: all harvest one stock, and what they leave grows again (common-pool resource; Gordon 1954, Ostrom 1990).

A round: players claim c_1..c_n whole units of the stock S at the same time. Player i harvests S·c_i / max(S, Σ c) and
is paid as many points; R = max(0, S − Σ c) units are left. The stock of the next round is

    S' = min(capacity, ⌊growth · R⌋) if R ≥ collapse_below, else 0

and the game ends after `num_rounds` rounds or as soon as the stock is gone. The defaults (five players, capacity 100,
doubling, collapse below 5, 12 rounds) are those of GovSim's fishery (Piatti et al. 2024).

A unit left is at least one unit later (growth ≥ 1), up to the stock that grows to the capacity. The largest total
harvest therefore leaves min(S, ⌈capacity / growth⌉) units in every round but the last, and nothing in the last (nor of
a stock below `collapse_below`, which cannot be kept).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from coplay.games.base import Game, GameSpec, MalformedRule, Observation, StepOutcome
from coplay.games.chance import Chance
from coplay.games.commons_wording import CommonsRules, full_round, full_rules, terse_round, terse_rules
from coplay.games.grammar import Action, Malformed, Number
from coplay.games.parameters import Players, RoundsParameters, Tag, join_names


class CommonsParameters(RoundsParameters):
    """What the commons can be told."""

    kind: Literal["commons"] = "commons"
    players: Players = ("Ada", "Bo", "Cy", "Di", "Ed")
    """Names of the seats in their fixed order."""
    num_rounds: int = Field(12, ge=1, le=1_000_000)
    """Number of rounds, unless the stock is gone before."""
    capacity: int = Field(100, ge=1, le=1_000_000)
    """Most units that the stock grows to."""
    initial_stock: int | None = Field(None, ge=1, le=1_000_000)
    """Units in the first round; None begins with `capacity`."""
    growth: float = Field(2.0, ge=1.0, le=1_000_000.0)
    """What the units left are multiplied by, rounded down; 1 never grows again."""
    collapse_below: int = Field(5, ge=0, le=1_000_000)
    """Fewer units left than this do not grow again: the stock is gone."""
    tag: Tag = "harvest"
    """In the full wording, the tag that a claim stands in; None for the number alone. Terse ones have no tag."""

    @model_validator(mode="after")
    def _fits_together(self) -> "CommonsParameters":
        if self.initial_stock is not None and self.initial_stock > self.capacity:
            raise ValueError(
                f"initial_stock {self.initial_stock} with capacity {self.capacity}; expected no more than the capacity"
            )
        if self.collapse_below > self.regrowth().sustainable:
            raise ValueError(
                f"collapse_below {self.collapse_below} with capacity {self.capacity} and growth {self.growth}; expected"
                f" at most {self.regrowth().sustainable}, the stock that grows to the capacity"
            )
        return self

    def regrowth(self) -> "Regrowth":
        """How the stock grows, with `growth` as it is written: 10 units grow by 1.7 to 17."""
        return Regrowth(
            capacity=self.capacity, growth=Fraction(str(self.growth)), collapse_below=self.collapse_below
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Regrowth:
    """The rule by which a stock grows again."""

    capacity: int
    growth: Fraction
    """At least 1."""
    collapse_below: int
    """At most `sustainable`."""

    @property
    def sustainable(self) -> int:
        """The least stock that grows to the capacity: ⌈capacity / growth⌉."""
        return ceil(self.capacity / self.growth)

    def grown(self, left: int) -> int:
        """The next stock: min(capacity, ⌊growth · left⌋), or 0 if less than `collapse_below` is left."""
        return min(self.capacity, floor(self.growth * left)) if left >= self.collapse_below else 0

    def best_harvest(self, stock: int, rounds_left: int) -> int:
        """What the plan of the largest total takes of a stock when so many rounds are left, this one included."""
        keeps = rounds_left > 1 and stock >= self.collapse_below
        return stock - min(stock, self.sustainable) if keeps else stock

    def best_total(self, stock: int, rounds: int) -> int:
        """The largest harvest of all players together from a stock in so many rounds.

        The plan's stock never falls before the last round, and once it stays the same the harvest does too.
        """
        total = 0
        while rounds > 0:
            harvest = self.best_harvest(stock, rounds)
            following = self.grown(stock - harvest)
            if following == stock and rounds > 1:
                return total + harvest * (rounds - 1) + stock
            total, stock, rounds = total + harvest, following, rounds - 1
        return total


@dataclass(frozen=True, slots=True)
class CommonsState:
    """Of constant size, however long the game."""

    stock: int
    """Units of the coming round."""
    best_stock: int
    """Units there would be if all had followed the plan of the largest total from the start."""
    round: int = 0
    """Rounds played."""
    last: tuple[int, ...] = ()
    """Each player's last claim; empty before the first round."""
    last_stock: int = 0
    """Units before the last round."""


def harvests(claims: tuple[int, ...], stock: int) -> tuple[float, ...]:
    """S·c_i / max(S, Σ c) units for each player."""
    total = max(stock, sum(claims))
    return tuple([stock * claim / total for claim in claims])


class Commons(Game[CommonsState]):
    """All harvest at the same time; claims are seen by all afterwards."""

    Parameters: ClassVar[type[CommonsParameters]] = CommonsParameters
    name: ClassVar[str] = "commons"

    def __init__(self, parameters: CommonsParameters) -> None:
        super().__init__(parameters)
        self._players = players = parameters.players
        self._seats = {player: seat for seat, player in enumerate(players)}
        self._full = parameters.wording == "full"
        self._regrowth = parameters.regrowth()
        self._grammar = Number(0, parameters.capacity, tag=parameters.tag if self._full else None)
        rules = CommonsRules(
            num_players=len(players),
            num_rounds=parameters.num_rounds,
            capacity=parameters.capacity,
            stock=self._first_stock(),
            growth=parameters.growth,
            collapse_below=parameters.collapse_below,
            reply=self._grammar.describe(),
        )
        self._rules = tuple(
            full_rules(rules, player, join_names(tuple(name for name in players if name != player)))
            if self._full
            else terse_rules(rules)
            for player in players
        )
        self._spec = GameSpec(
            players=players,
            max_steps=parameters.num_rounds,
            has_chance=False,
            has_rounds=False,
            zero_sum=False,
            symmetric=True,
            reward_range=(0.0, float(parameters.capacity)),
            malformed_rule=MalformedRule(
                retries=parameters.retries,
                penalty=parameters.penalty,
                consequence="counts as a claim of 0",
            ),
        )

    def _first_stock(self) -> int:
        first: int | None = self.parameters.initial_stock
        return int(self.parameters.capacity) if first is None else first

    @property
    def spec(self) -> GameSpec:
        """What this game declares about itself."""
        return self._spec

    def initial_state(self, chance: Chance) -> CommonsState:
        """No luck at all."""
        return CommonsState(stock=self._first_stock(), best_stock=self._first_stock())

    def to_move(self, state: CommonsState) -> tuple[str, ...]:
        """Everyone, until all rounds are played or the stock is gone."""
        over = state.round >= self.parameters.num_rounds or state.stock == 0
        return () if over else self._players

    def observe(self, state: CommonsState, player: str) -> Observation:
        """The stock, and all claims of the last round."""
        told, seat = self.parameters, self._seats[player]
        facts: dict[str, Any] = {
            "game": self.name,
            "round": state.round + 1,
            "num_rounds": told.num_rounds,
            "stock": state.stock,
            "capacity": told.capacity,
            "sustainable": self._regrowth.sustainable,
            "collapse_below": told.collapse_below,
        }
        if state.last:
            facts["last"] = dict(zip(self._players, state.last, strict=True))
        if self._full:
            heading = f"Round {state.round + 1} of {told.num_rounds}."
            got = harvests(state.last, state.last_stock) if state.last else ()
            text = full_round(heading, self._players, seat, (state.stock, state.last, got))
        else:
            text = terse_round(seat, state.stock, state.last)
        return Observation(text=text, grammar=self._grammar, system=self._rules[seat], facts=facts)

    def step(
        self, state: CommonsState, actions: Mapping[str, Action], chance: Chance
    ) -> tuple[CommonsState, StepOutcome]:
        """Harvest, and let what is left grow."""
        chosen = [actions[player] for player in self._players]
        claims = tuple([0 if isinstance(action, Malformed) else action.value for action in chosen])
        left = max(0, state.stock - sum(claims))
        after, rounds = self._regrowth.grown(left), self.parameters.num_rounds - state.round
        over = rounds == 1 or after == 0
        planned = self._regrowth.best_harvest(state.best_stock, rounds)
        outcome = StepOutcome(
            rewards=dict(zip(self._players, harvests(claims, state.stock), strict=True)),
            terminated=over,
            info={
                "claims": dict(zip(self._players, claims, strict=True)),
                "stock": state.stock,
                "left": left,
                "agreed": sum(claims) <= state.stock
                and not any(isinstance(action, Malformed) for action in chosen),
                "best_total": self._regrowth.best_total(state.best_stock, rounds) if over else planned,
            },
        )
        best_stock = self._regrowth.grown(state.best_stock - planned)
        return CommonsState(after, best_stock, state.round + 1, claims, state.stock), outcome
