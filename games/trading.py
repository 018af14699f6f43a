"""Trading: several players with goods, public holdings and private values make each other offers.

In a round one player, in turn, names another, says what he gives him and what he wants for it; the other accepts or
rejects. With holdings h_i and values v_i a trade pays both the change of v_i·h_i, so that the points of a game add
up to what the last holdings are worth more than the first (an exchange economy with linear utilities, bilateral
trades in turn).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from coplay.games.base import Game, GameSpec, MalformedRule, Observation, StepOutcome
from coplay.games.chance import Chance
from coplay.games.grammar import Action, Choice, Fields, Grammar, Malformed
from coplay.games.trading_parameters import PASSES, TradingParameters
from coplay.games.trading_wording import (
    LETTERS,
    Bundle,
    MarketView,
    Offer,
    full_rules,
    full_turn,
    terse_rules,
    terse_turn,
)

ACCEPT, REJECT = "accept", "reject"
NOBODY = -1

Entry = tuple[int, int, Bundle, Bundle, bool]
"""An `Offer` as a tuple."""


@dataclass(frozen=True, slots=True)
class TradingState:
    """Of constant size, however long the game: the log holds no more rounds than there are players."""

    round: int
    """Rounds played."""
    first: int
    """Seat that made the first offer of the game."""
    holdings: tuple[Bundle, ...]
    values: tuple[Bundle, ...]
    seen: tuple[int, ...]
    """For each seat, the number of rounds it has been told of; -1 before its first turn."""
    partner: int = NOBODY
    give: Bundle = ()
    get: Bundle = ()
    log: tuple[tuple[int, Entry], ...] = ()
    """Number of the round, and the offer made in it."""
    over: bool = False


class Trading(Game[TradingState]):
    """Goods change hands by offers to a named player."""

    Parameters: ClassVar[type[TradingParameters]] = TradingParameters
    name: ClassVar[str] = "trading"

    def __init__(self, parameters: TradingParameters) -> None:
        super().__init__(parameters)
        self._players = parameters.players
        self._goods = parameters.goods
        self._full = parameters.wording == "full"
        self._tag = parameters.tag if self._full else None
        names = self._players if self._full else tuple(LETTERS[: len(self._players)])
        self._partners = tuple(
            Choice((*names[:seat], *names[seat + 1 :], PASSES), self._tag) for seat in range(len(names))
        )
        self._answer = Choice((ACCEPT, REJECT), self._tag)
        rules = full_rules if self._full else terse_rules
        self._rules = tuple(rules(parameters, seat, "") for seat in range(len(names)))
        endowments = parameters.endowments()
        most = float(parameters.max_value * sum(map(sum, endowments)))
        self._spec = GameSpec(
            players=self._players,
            max_steps=4 * parameters.num_rounds,
            has_chance=True,
            has_rounds=True,
            zero_sum=False,
            symmetric=parameters.endowment == "equal",
            reward_range=(-most, most),
            malformed_rule=MalformedRule(
                retries=parameters.retries,
                penalty=parameters.penalty,
                consequence="passes, gives nothing, asks for nothing, or rejects",
            ),
        )

    @property
    def spec(self) -> GameSpec:
        """What this game declares about itself."""
        return self._spec

    def initial_state(self, chance: Chance) -> TradingState:
        """Values, and who begins."""
        places = range(len(self._players))
        values = tuple(
            tuple(
                1 + chance.integer(f"value/{good}", self.parameters.max_value, index=place)
                for good in range(len(self._goods))
            )
            for place in places
        )
        first = chance.integer("first", len(self._players))
        return TradingState(0, first, self.parameters.endowments(), values, (NOBODY,) * len(self._players))

    def _phase(self, state: TradingState) -> str:
        if state.partner == NOBODY:
            return "partner"
        return "give" if not state.give else "get" if not state.get else "answer"

    def _proposer(self, state: TradingState) -> int:
        return (state.first + state.round) % len(self._players)

    def _mover(self, state: TradingState) -> int:
        return state.partner if self._phase(state) == "answer" else self._proposer(state)

    def to_move(self, state: TradingState) -> tuple[str, ...]:
        """The one who makes the offer, then the one who gets it."""
        return () if state.over else (self._players[self._mover(state)],)

    def observe(self, state: TradingState, player: str) -> Observation:
        """Own values at first; trades since the player's last turn; then what is asked for."""
        seat, phase = self._players.index(player), self._phase(state)
        known = state.seen[seat]
        told = (Offer(*entry) for number, entry in state.log if number >= known and entry[1] != seat)
        view = MarketView(
            seat=seat,
            number=state.round + 1,
            phase=phase,
            news=tuple(offer for offer in told if offer.accepted or offer.proposer == seat),
            values=state.values[seat],
            holdings=state.holdings,
            starts=known == NOBODY,
            partner=self._proposer(state) if phase == "answer" else state.partner,
            give=state.give,
            get=state.get,
        )
        grammar = self._grammar(state, seat, phase)
        turn = full_turn if self._full else terse_turn
        return Observation(
            text=turn(self.parameters, view, grammar.describe()),
            grammar=grammar,
            system=self._rules[seat],
            facts=self._facts(state, view),
        )

    def _grammar(self, state: TradingState, seat: int, phase: str) -> Grammar:
        if phase == "partner":
            return self._partners[seat]
        if phase == "answer":
            return self._answer
        most = state.holdings[seat if phase == "give" else state.partner]
        return Fields(self._goods, 0, most, self._tag, bare=not self._full)

    def _named(self, bundle: Bundle) -> dict[str, int]:
        return dict(zip(self._goods, bundle, strict=True))

    def _facts(self, state: TradingState, view: MarketView) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "game": self.name,
            "phase": view.phase,
            "round": view.number,
            "num_rounds": self.parameters.num_rounds,
            "values": self._named(view.values),
            "holdings": {
                name: self._named(held) for name, held in zip(self._players, state.holdings, strict=True)
            },
        }
        if view.partner != NOBODY:
            facts["partner"] = self._players[view.partner]
        if view.give:
            facts["give"] = self._named(view.give)
        if view.phase == "answer":
            facts["get"] = self._named(view.get)
        return facts

    def step(
        self, state: TradingState, actions: Mapping[str, Action], chance: Chance
    ) -> tuple[TradingState, StepOutcome]:
        """One part of an offer, or the answer to it."""
        seat, phase = self._mover(state), self._phase(state)
        action = actions[self._players[seat]]
        value = None if isinstance(action, Malformed) else action.value
        seen = (*state.seen[:seat], state.round, *state.seen[seat + 1 :])
        state = replace(state, seen=seen)
        info: dict[str, Any] = {"phase": phase, "player": self._players[seat]}
        nothing = dict.fromkeys(self._players, 0.0)
        if phase == "answer":
            return self._settle(state, value == ACCEPT, info)
        if phase == "partner":
            options = self._partners[seat].options
            place = options.index(PASSES if value is None else value)
            if options[place] == PASSES:
                return self._next(state, state.holdings, None, nothing, info | {"passed": True})
            following = replace(state, partner=place + (place >= seat))
        else:
            bundle = tuple((value or dict.fromkeys(self._goods, 0))[good] for good in self._goods)
            following = replace(state, give=bundle) if phase == "give" else replace(state, get=bundle)
        return following, StepOutcome(rewards=nothing, round_ended=False, info=info)

    def _settle(
        self, state: TradingState, accepted: bool, info: dict[str, Any]
    ) -> tuple[TradingState, StepOutcome]:
        """Exchange what is accepted, and pay both the change in what they hold."""
        proposer, partner = self._proposer(state), state.partner
        rewards = dict.fromkeys(self._players, 0.0)
        holdings = list(state.holdings)
        if accepted:
            for seat, sign in ((proposer, 1), (partner, -1)):
                change = [sign * (got - given) for got, given in zip(state.get, state.give, strict=True)]
                holdings[seat] = tuple(h + c for h, c in zip(holdings[seat], change, strict=True))
                points = sum(c * value for c, value in zip(change, state.values[seat], strict=True))
                rewards[self._players[seat]] = float(points)
        info |= {
            "proposer": self._players[proposer],
            "give": self._named(state.give),
            "get": self._named(state.get),
            "agreed": accepted,
        }
        entry = (proposer, partner, state.give, state.get, accepted)
        return self._next(state, tuple(holdings), entry, rewards, info)

    def _next(
        self,
        state: TradingState,
        holdings: tuple[Bundle, ...],
        entry: Entry | None,
        rewards: dict[str, float],
        info: dict[str, Any],
    ) -> tuple[TradingState, StepOutcome]:
        """The round is over."""
        played = state.round + 1
        over = played >= self.parameters.num_rounds
        oldest = played - len(self._players)
        log = tuple(each for each in state.log if each[0] >= oldest)
        log = log if entry is None else (*log, (state.round, entry))
        if over:
            info |= self._summary(state.values, holdings)
        following = TradingState(played, state.first, holdings, state.values, state.seen, log=log, over=over)
        return following, StepOutcome(rewards=rewards, terminated=over, info=info)

    def _summary(self, values: tuple[Bundle, ...], holdings: tuple[Bundle, ...]) -> dict[str, Any]:
        """`total_gain` of all players, and `best_total_gain`: every unit with who values it most."""
        start = self.parameters.endowments()
        total = [sum(column) for column in zip(*start, strict=True)]
        best = sum(units * max(worth) for units, worth in zip(total, zip(*values, strict=True), strict=True))
        first, last = (_worth(each, values) for each in (start, holdings))
        return {
            "holdings": {name: self._named(held) for name, held in zip(self._players, holdings, strict=True)},
            "values": {name: self._named(own) for name, own in zip(self._players, values, strict=True)},
            "total_gain": last - first,
            "best_total_gain": best - first,
        }

    def private(self, state: TradingState, player: str) -> Mapping[str, Any]:
        """The own values."""
        return {"values": self._named(state.values[self._players.index(player)])}


def _worth(holdings: tuple[Bundle, ...], values: tuple[Bundle, ...]) -> int:
    """Σ_players Σ_goods units · value."""
    return sum(
        units * value
        for held, own in zip(holdings, values, strict=True)
        for units, value in zip(held, own, strict=True)
    )
