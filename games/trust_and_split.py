"""Trust and split: two players draw hands of rock-paper-scissors, may talk, and claim coins at the same time.

The winning hand's owner values a coin at `high_value`, the other at `low_value`. Player i receives
coins·x_i / max(coins, x_1 + x_2) of the coins, and is paid that times his value. A round is the messages and
the claims.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from coplay.games.base import Game, GameSpec, MalformedRule, Observation, StepOutcome
from coplay.games.best_outcomes import division_yardsticks
from coplay.games.chance import Chance
from coplay.games.grammar import Action, FreeText, Malformed, Number
from coplay.games.messages import delivered
from coplay.games.trust_and_split_parameters import TrustAndSplitParameters
from coplay.games.trust_and_split_wording import RoundView, TrustRules, full_rules, terse_rules, turn_text

HANDS = ("rock", "paper", "scissors")
"""Each beats the one before it, and rock beats scissors."""


@dataclass(frozen=True, slots=True)
class TrustState:
    """Of constant size, however long the game; the messages are those of the round."""

    round: int
    """Rounds played."""
    upper: int
    """Seat with the winning hand."""
    hand: int
    """The winning hand, an index into `HANDS`."""
    first: int
    """Seat that speaks first in this round."""
    alternates: bool
    """True if the upper hand changes sides each round."""
    said: tuple[str, ...] = ()
    """Messages delivered in this round, in order; silence is empty."""
    last_claims: tuple[int, ...] = ()
    over: bool = False
    last_upper: int = -1

    def hand_of(self, seat: int) -> str:
        """The hand of a seat."""
        return HANDS[self.hand if seat == self.upper else (self.hand - 1) % 3]


class TrustAndSplit(Game[TrustState]):
    """Coins, private hands, cheap talk, simultaneous claims."""

    Parameters: ClassVar[type[TrustAndSplitParameters]] = TrustAndSplitParameters
    name: ClassVar[str] = "trust_and_split"

    def __init__(self, parameters: TrustAndSplitParameters) -> None:
        super().__init__(parameters)
        self._players = parameters.players
        self._seats = {player: seat for seat, player in enumerate(self._players)}
        self._num_messages = 2 * parameters.messages_per_player
        full = parameters.wording == "full"
        values, tag = parameters.claims, parameters.tag if full else None
        self._claim = Number(values=values, tag=tag) if values else Number(0, parameters.coins, tag=tag)
        self._message = FreeText(parameters.max_message_characters, parameters.message_tag if full else None)
        self._rules = tuple(
            (full_rules if full else terse_rules)(
                TrustRules(
                    player=player,
                    other=self._players[1 - seat],
                    parameters=parameters,
                    claim=self._claim.describe(),
                    message=self._message.describe(),
                )
            )
            for seat, player in enumerate(self._players)
        )
        high, low = parameters.high_value, parameters.low_value
        self._yardsticks = tuple(
            division_yardsticks(self._players, values, parameters.coins)
            for values in (((high,), (low,)), ((low,), (high,)))
        )
        most = parameters.coins * max(parameters.high_value, parameters.low_value)
        self._spec = GameSpec(
            players=self._players,
            max_steps=parameters.num_rounds * (self._num_messages + 1),
            has_chance=True,
            has_rounds=self._num_messages > 0,
            zero_sum=False,
            symmetric=True,
            reward_range=(0.0, float(most)),
            malformed_rule=MalformedRule(
                retries=parameters.retries,
                penalty=parameters.penalty,
                consequence="a claim counts as 0; an untagged message is cut to the limit, else silence",
            ),
        )

    @property
    def spec(self) -> GameSpec:
        """What this game declares about itself."""
        return self._spec

    def initial_state(self, chance: Chance) -> TrustState:
        """Who speaks first, who has the upper hand, and with which hand."""
        share = self.parameters.alternating_mix_ratio
        return TrustState(
            round=0,
            upper=chance.integer("upper", 2),
            hand=chance.integer("hand", len(HANDS)),
            first=chance.integer("first speaker", 2),
            alternates=self.parameters.alternating_hands
            or (share is not None and chance.uniform("alternates") < share),
        )

    def _speaker(self, state: TrustState, place: int) -> int:
        return (state.first + place) % 2

    def to_move(self, state: TrustState) -> tuple[str, ...]:
        """The speaker; once all messages are said, both."""
        if state.over:
            return ()
        if len(state.said) < self._num_messages:
            return (self._players[self._speaker(state, len(state.said))],)
        return self._players

    def observe(self, state: TrustState, player: str) -> Observation:
        """The new round, if this is the player's first turn in it, and what the other said since."""
        seat, place = self._seats[player], len(state.said)
        speaks = place < self._num_messages
        spoken = [turn for turn in range(place) if self._speaker(state, turn) == seat]
        since = spoken[-1] + 1 if spoken else 0
        view = RoundView(
            number=state.round + 1,
            starts=not spoken,
            last_claim=state.last_claims[1 - seat] if state.last_claims else None,
            last_upper=state.last_upper == 1 - seat,
            hand=state.hand_of(seat),
            upper=state.upper == seat,
            speaks_first=state.first == seat,
            heard=state.said[since:],
            speaks=speaks,
        )
        return Observation(
            text=turn_text(self.parameters, self._players[1 - seat], view),
            grammar=self._message if speaks else self._claim,
            system=self._rules[seat],
            facts=self._facts(state, seat, view),
        )

    def _facts(self, state: TrustState, seat: int, view: RoundView) -> dict[str, Any]:
        parameters = self.parameters
        facts: dict[str, Any] = {
            "game": self.name,
            "phase": "message" if view.speaks else "claim",
            "round": view.number,
            "num_rounds": parameters.num_rounds,
            "coins": parameters.coins,
            "claims": None if parameters.claims is None else list(parameters.claims),
            "high_value": parameters.high_value,
            "low_value": parameters.low_value,
            "heard": [text for place, text in enumerate(state.said) if self._speaker(state, place) != seat],
        }
        if parameters.public_values:
            facts["value"] = self._value(state, seat)
            facts["other_value"] = self._value(state, 1 - seat)
        else:
            facts["hand"] = view.hand
        if view.last_claim is not None:
            facts["last"] = {"claim": view.last_claim, "upper": view.last_upper}
        return facts

    def _value(self, state: TrustState, seat: int) -> int:
        value: int = self.parameters.high_value if state.upper == seat else self.parameters.low_value
        return value

    def step(
        self, state: TrustState, actions: Mapping[str, Action], chance: Chance
    ) -> tuple[TrustState, StepOutcome]:
        """Deliver a message, or divide the coins and draw the next hands."""
        if len(state.said) < self._num_messages:
            speaker = self._players[self._speaker(state, len(state.said))]
            limit, untagged = self.parameters.max_message_characters, self._message.tag is None
            text = delivered(actions[speaker], limit, whole_reply=untagged)
            heard = replace(state, said=(*state.said, text))
            nothing = dict.fromkeys(self._players, 0.0)
            info = {"phase": "message", "speaker": speaker}
            return heard, StepOutcome(rewards=nothing, round_ended=False, info=info)
        return self._divide(state, actions, chance)

    def _divide(
        self, state: TrustState, actions: Mapping[str, Action], chance: Chance
    ) -> tuple[TrustState, StepOutcome]:
        chosen = [actions[player] for player in self._players]
        claims = tuple([0 if isinstance(action, Malformed) else action.value for action in chosen])
        coins = self.parameters.coins
        total = max(coins, sum(claims))
        values = (self._value(state, 0), self._value(state, 1))
        rewards = {
            player: coins * claim / total * value
            for player, claim, value in zip(self._players, claims, values, strict=True)
        }
        played = state.round + 1
        outcome = StepOutcome(
            rewards=rewards,
            terminated=played >= self.parameters.num_rounds,
            info={
                "phase": "claim",
                "claims": dict(zip(self._players, claims, strict=True)),
                "values": dict(zip(self._players, values, strict=True)),
                "hands": {player: state.hand_of(seat) for player, seat in self._seats.items()},
                "agreed": sum(claims) <= coins and not any(isinstance(one, Malformed) for one in chosen),
                **self._yardsticks[state.upper],
            },
        )
        following = TrustState(
            round=played,
            upper=1 - state.upper if state.alternates else chance.integer("upper", 2),
            hand=chance.integer("hand", len(HANDS)),
            first=1 - state.first,
            alternates=state.alternates,
            last_claims=claims,
            over=outcome.terminated,
            last_upper=state.upper,
        )
        return following, outcome

    def private(self, state: TrustState, player: str) -> Mapping[str, Any]:
        """The own hand and value, unless values are public."""
        if self.parameters.public_values:
            return {}
        seat = self._seats[player]
        return {"hand": state.hand_of(seat), "value": self._value(state, seat)}
