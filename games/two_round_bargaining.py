"""Bargaining in two rounds of alternating offers with private values (Ståhl 1972), small enough to enumerate.

A pie of a few coins; what a coin is worth to a player is drawn from a short list and known to him alone. In round 1
the first player offers the second some of the coins, who accepts or rejects; in round 2 they change roles. Who
accepts ends the game: his reward is the coins offered times his value, the other's the coins left times his own,
both times `discount` in round 2. Two rejections leave nothing.

With one value and C coins, backward induction gives the second player the δ·C coins that he could keep by
rejecting, if that is a whole number, and the first the rest.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from coplay.games.base import Game, GameSpec, MalformedRule, Observation, StepOutcome
from coplay.games.best_outcomes import division_yardsticks
from coplay.games.chance import Chance
from coplay.games.grammar import Action, Choice, Grammar, Malformed, Number
from coplay.games.parameters import SeatsParameters, Tag, TwoPlayers
from coplay.games.replies import number_text

ANSWERS = ("accept", "reject")
NUM_ROUNDS = 2


class TwoRoundBargainingParameters(SeatsParameters):
    """What bargaining in two rounds can be told."""

    kind: Literal["two_round_bargaining"] = "two_round_bargaining"
    players: TwoPlayers = ("Ada", "Bo")
    """Names of the two seats, the first to offer first."""
    coins: int = Field(4, ge=1, le=20)
    """Coins to divide."""
    values: tuple[int, ...] = Field((1, 2), min_length=1, max_length=6)
    """What a coin may be worth to a player, each equally likely, drawn for each player."""
    discount: float = Field(0.5, ge=0.0, le=1.0)
    """What rewards of the second round are multiplied with."""
    tag: Tag = "move"
    """In the full wording, the tag that a move stands in; None for the move alone. Terse moves have no tag."""

    @model_validator(mode="after")
    def _values_differ(self) -> "TwoRoundBargainingParameters":
        if len(set(self.values)) != len(self.values) or min(self.values) < 1 or max(self.values) > 1000:
            raise ValueError(f"values {self.values!r}; expected different whole numbers from 1 to 1000")
        return self


@dataclass(frozen=True, slots=True)
class BargainingState:
    """The values and where the play stands."""

    values: tuple[int, int]
    round: int = 0
    """Rounds ended."""
    offer: int | None = None
    """The coins offered in this round; None before."""
    over: bool = False


class TwoRoundBargaining(Game[BargainingState]):
    """One offer and one answer in each of two rounds."""

    Parameters: ClassVar[type[TwoRoundBargainingParameters]] = TwoRoundBargainingParameters
    name: ClassVar[str] = "two_round_bargaining"

    def __init__(self, parameters: TwoRoundBargainingParameters) -> None:
        super().__init__(parameters)
        self._players = parameters.players
        self._full = parameters.wording == "full"
        tag = parameters.tag if self._full else None
        self._offers: Grammar = Number(0, parameters.coins, tag=tag)
        self._answers: Grammar = Choice(ANSWERS, tag)
        self._spec = GameSpec(
            players=self._players,
            max_steps=2 * NUM_ROUNDS,
            has_chance=len(parameters.values) > 1,
            has_rounds=True,
            zero_sum=False,
            symmetric=False,
            reward_range=(0.0, float(parameters.coins * max(parameters.values))),
            malformed_rule=MalformedRule(
                retries=parameters.retries,
                penalty=parameters.penalty,
                consequence="counts as an offer of nothing, or as a rejection",
            ),
        )

    @property
    def spec(self) -> GameSpec:
        """What this game declares about itself."""
        return self._spec

    def initial_state(self, chance: Chance) -> BargainingState:
        """Draw both values."""
        first, second = (chance.choice("value", self.parameters.values, index=seat) for seat in (0, 1))
        return BargainingState((first, second))

    def to_move(self, state: BargainingState) -> tuple[str, ...]:
        """The one who offers, then the other; roles change after a rejection."""
        if state.over:
            return ()
        return (self._players[state.round if state.offer is None else 1 - state.round],)

    def observe(self, state: BargainingState, player: str) -> Observation:
        """The own value at the first turn, and what the other just did."""
        seat = self._players.index(player)
        worth = self.parameters.discount if state.round else 1.0
        facts: dict[str, Any] = {
            "game": self.name,
            "round": state.round + 1,
            "coins": self.parameters.coins,
            "value": state.values[seat],
            "worth": worth,
        }
        answers = state.offer is not None
        facts |= {"offer": state.offer, "moves": list(ANSWERS)} if answers else {}
        first_turn = state.round == 0
        other = self._players[1 - seat]
        if self._full:
            told = [f"A coin is worth {state.values[seat]} to you."] if first_turn else []
            told += [f"{other} rejected your offer."] if state.round and answers else []
            told += (
                [f"{other} offers you {state.offer} of the {self.parameters.coins} coins."] if answers else []
            )
            text = " ".join([*told, "Your answer?" if answers else "Your offer?"])
        else:
            own = [str(state.values[seat])] if first_turn else []
            text = " ".join([*own, f"offer {state.offer}" if answers else "go"])
        grammar = self._answers if answers else self._offers
        return Observation(text=text, grammar=grammar, system=self._rules(seat), facts=facts)

    def _rules(self, seat: int) -> str:
        told = self.parameters
        late = number_text(told.discount)
        if not self._full:
            values = " ".join(map(str, told.values))
            return f"coins {told.coins} v {values} n {late}" + (" start" if seat == 0 else "")
        player, other = self._players[seat], self._players[1 - seat]
        offers = ("You offer", f"{other} answers") if seat == 0 else (f"{other} offers", "you answer")
        worth = ", ".join(map(str, told.values))
        drawn = f"one of {worth}, each equally likely" if len(told.values) > 1 else worth
        return (
            f"You are {player}. You divide {told.coins} coins with {other}.\n"
            f"A coin is worth some points to each of you: {drawn}, drawn for each alone. You know your own value"
            " only.\n"
            f"There are at most two rounds. {offers[0]} first: how many coins the other gets; the rest is for who"
            f" offers. Then {offers[1]}: accept or reject. After a rejection you change roles for the second round,"
            f" in which all points are multiplied by {late}. A second rejection leaves both with nothing.\n"
            "You get your coins times your value as points. You want as many points as you can get.\n"
            f"Reply with an offer, {self._offers.describe()}, or with an answer, {self._answers.describe()}. Any"
            " other reply counts as an offer of nothing, or as a rejection."
        )

    def step(
        self, state: BargainingState, actions: Mapping[str, Action], chance: Chance
    ) -> tuple[BargainingState, StepOutcome]:
        """An offer, or the answer to it; pay what is accepted."""
        (player,) = self.to_move(state)
        action = actions[player]
        nothing = dict.fromkeys(self._players, 0.0)
        if state.offer is None:
            offer = 0 if isinstance(action, Malformed) else action.value
            after = BargainingState(state.values, state.round, offer)
            return after, StepOutcome(
                rewards=nothing, round_ended=False, info={"player": player, "offer": offer}
            )
        accepted = not isinstance(action, Malformed) and action.value == "accept"
        over = accepted or state.round + 1 == NUM_ROUNDS
        info: dict[str, Any] = {"player": player, "answer": ANSWERS[not accepted]}
        if over:
            worths = [[value] for value in state.values]
            info |= {"agreed": accepted, **division_yardsticks(self._players, worths, self.parameters.coins)}
        rewards = self._pay(state, state.offer) if accepted else nothing
        after = BargainingState(state.values, state.round + 1, None, over)
        return after, StepOutcome(rewards=rewards, terminated=over, info=info)

    def _pay(self, state: BargainingState, offer: int) -> dict[str, float]:
        worth = self.parameters.discount if state.round else 1.0
        coins = [offer, offer]
        coins[state.round] = self.parameters.coins - offer
        return {player: coins[seat] * state.values[seat] * worth for seat, player in enumerate(self._players)}

    def private(self, state: BargainingState, player: str) -> Mapping[str, Any]:
        """The own value, if values differ at all."""
        if len(self.parameters.values) == 1:
            return {}
        return {"value": state.values[self._players.index(player)]}
