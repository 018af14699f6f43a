"""Deal or no deal: two players talk about a few items and say what each takes (Lewis et al. 2017, arXiv 1706.05125).

The counts are public, the values private. Each player is paid his own values of the items he takes if the two
claims are exactly what there is, Σ_players claim = counts; otherwise there is no deal, and both get 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from coplay.games.base import Game, GameSpec, MalformedRule, Observation, StepOutcome
from coplay.games.best_outcomes import whole_unit_yardsticks
from coplay.games.chance import Chance
from coplay.games.deal_instances import DealInstance, all_instances, largest_worth, load_instances
from coplay.games.deal_or_no_deal_parameters import DealOrNoDealParameters
from coplay.games.deal_or_no_deal_wording import DealView, full_rules, full_turn, terse_rules, terse_turn
from coplay.games.grammar import Action, Choice, Fields, FreeText, Grammar, Malformed, OneOf
from coplay.games.messages import delivered

ACCEPT, REJECT = "accept", "reject"

Bundle = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DealState:
    """Of constant size, however many the rounds; the messages are those of the round."""

    round: int
    """Rounds played."""
    counts: Bundle
    values: tuple[Bundle, ...]
    first: int
    """Seat that speaks first in this round."""
    said: tuple[str, ...] = ()
    """Messages delivered in this round, in order; silence is empty."""
    claim: Bundle = ()
    """What the one who ended the talk takes."""
    last_agreed: bool = False
    last_points: tuple[int, ...] = ()
    """Of the round before, for each seat; empty in the first round."""
    over: bool = False


class DealOrNoDeal(Game[DealState]):
    """Items with private values, free talk, one final deal."""

    Parameters: ClassVar[type[DealOrNoDealParameters]] = DealOrNoDealParameters
    name: ClassVar[str] = "deal_or_no_deal"

    def __init__(self, parameters: DealOrNoDealParameters) -> None:
        super().__init__(parameters)
        self._players = parameters.players
        self._full = parameters.wording == "full"
        self._sequential = parameters.final_deal == "sequential"
        self._instances = (
            all_instances() if parameters.instances is None else load_instances(parameters.instances)
        )
        self._message = FreeText(
            parameters.max_message_characters, parameters.message_tag if self._full else None
        )
        self._answer = Choice((ACCEPT, REJECT), parameters.answer_tag if self._full else None)
        rules = full_rules if self._full else terse_rules
        self._rules = tuple(rules(parameters, seat, self._message.describe()) for seat in range(2))
        self._spec = GameSpec(
            players=self._players,
            max_steps=parameters.num_rounds * (parameters.max_messages + 2),
            has_chance=True,
            has_rounds=True,
            zero_sum=False,
            symmetric=True,
            reward_range=(0.0, float(largest_worth(self._instances))),
            malformed_rule=MalformedRule(
                retries=parameters.retries,
                penalty=parameters.penalty,
                consequence="while messages are allowed it is one, cut to the limit, or silence; a claim or an"
                " answer that is no move is no deal",
            ),
        )

    @property
    def spec(self) -> GameSpec:
        """What this game declares about itself."""
        return self._spec

    def _draw(self, chance: Chance) -> DealInstance:
        """An instance, and whose values are whose."""
        instance = chance.choice("instance", self._instances)
        return instance.swapped() if chance.integer("swap", 2) else instance

    def initial_state(self, chance: Chance) -> DealState:
        """What there is, what it is worth to whom, and who speaks first."""
        drawn = self._draw(chance)
        return DealState(0, drawn.counts, drawn.values, chance.integer("first speaker", 2))

    def _mover(self, state: DealState) -> int:
        return (state.first + len(state.said) + bool(state.claim)) % 2

    def _phase(self, state: DealState) -> Literal["talk", "deal", "answer"]:
        if state.claim and self._sequential:
            return "answer"
        return "deal" if state.claim or len(state.said) >= self.parameters.max_messages else "talk"

    def to_move(self, state: DealState) -> tuple[str, ...]:
        """One after the other."""
        return () if state.over else (self._players[self._mover(state)],)

    def observe(self, state: DealState, player: str) -> Observation:
        """The items, at the player's first turn of a round, and what the other said since."""
        seat, phase = self._players.index(player), self._phase(state)
        own = range((seat - state.first) % 2, len(state.said), 2)
        starts = not own
        view = DealView(
            seat=seat,
            number=state.round + 1,
            starts=starts,
            counts=state.counts,
            values=state.values[seat],
            heard=state.said[own[-1] + 1 :] if own else state.said,
            closed=bool(state.claim),
            offer=tuple(n - c for n, c in zip(state.counts, state.claim, strict=True))
            if phase == "answer"
            else (),
            phase=phase,
            last=(state.last_agreed, state.last_points[seat]) if state.last_points else None,
        )
        grammar = self._grammar(state, phase)
        text = (full_turn if self._full else terse_turn)(self.parameters, view, grammar.describe())
        return Observation(
            text=text, grammar=grammar, system=self._rules[seat], facts=self._facts(state, view)
        )

    def _grammar(self, state: DealState, phase: str) -> Grammar:
        if phase == "answer":
            return self._answer
        tag = self.parameters.tag if self._full else None
        claim = Fields(self.parameters.items, 0, state.counts, tag, bare=not self._full)
        if phase == "deal":
            return claim
        otherwise = "message" if self._message.tag is None else None
        return OneOf(("message", "deal"), (self._message, claim), otherwise)

    def _named(self, bundle: Bundle) -> dict[str, int]:
        return dict(zip(self.parameters.items, bundle, strict=True))

    def _facts(self, state: DealState, view: DealView) -> dict[str, Any]:
        own = (view.seat - state.first) % 2
        facts: dict[str, Any] = {
            "game": self.name,
            "phase": view.phase,
            "round": view.number,
            "num_rounds": self.parameters.num_rounds,
            "counts": self._named(view.counts),
            "values": self._named(view.values),
            "heard": list(state.said[1 - own :: 2]),
            "said": list(state.said[own::2]),
            "closed": view.closed,
        }
        if view.offer:
            facts["offer"] = self._named(view.offer)
        if view.last is not None:
            facts["last"] = {"agreed": view.last[0], "points": view.last[1]}
        return facts

    def step(
        self, state: DealState, actions: Mapping[str, Action], chance: Chance
    ) -> tuple[DealState, StepOutcome]:
        """Deliver a message, keep the first claim, or settle the round."""
        seat, phase = self._mover(state), self._phase(state)
        action = actions[self._players[seat]]
        info: dict[str, Any] = {"phase": phase, "speaker": self._players[seat]}
        nothing = dict.fromkeys(self._players, 0.0)
        if phase == "talk" and (isinstance(action, Malformed) or "message" in action.value):
            text = self._heard(action)
            following = replace(state, said=(*state.said, text))
            return following, StepOutcome(rewards=nothing, round_ended=False, info=info)
        claim = self._claimed(action, phase, state)
        if not state.claim and claim is not None:
            following = replace(state, claim=claim)
            return following, StepOutcome(rewards=nothing, round_ended=False, info=info)
        claims: list[Bundle | None] = [None, None]
        claims[seat] = claim
        if state.claim:
            claims[1 - seat] = state.claim
        return self._settle(state, claims, info, chance)

    def _claimed(self, action: Action, phase: str, state: DealState) -> Bundle | None:
        """What the mover takes; None if he rejects or says nothing that is a move."""
        if isinstance(action, Malformed):
            return None
        if phase == "answer":
            rest = tuple(n - c for n, c in zip(state.counts, state.claim, strict=True))
            return rest if action.value == ACCEPT else None
        value = action.value["deal"] if phase == "talk" else action.value
        return tuple(value[item] for item in self.parameters.items)

    def _heard(self, action: Action) -> str:
        said = action if isinstance(action, Malformed) else replace(action, value=action.value["message"])
        return delivered(said, self.parameters.max_message_characters, whole_reply=False)

    def _settle(
        self, state: DealState, claims: list[Bundle | None], info: dict[str, Any], chance: Chance
    ) -> tuple[DealState, StepOutcome]:
        """Pay what both take if it is what there is, and draw the next instance."""
        made = [claim for claim in claims if claim is not None]
        agreed = len(made) == 2 and tuple(map(sum, zip(*made, strict=True))) == state.counts
        points = tuple(
            sum(units * worth for units, worth in zip(claim, values, strict=True)) if agreed and claim else 0
            for claim, values in zip(claims, state.values, strict=True)
        )
        played = state.round + 1
        over = played >= self.parameters.num_rounds
        drawn = DealInstance(state.counts, (state.values[0], state.values[1])) if over else self._draw(chance)
        names = self._players
        outcome = StepOutcome(
            rewards={player: float(number) for player, number in zip(names, points, strict=True)},
            terminated=over,
            info={
                **info,
                "claims": {p: self._named(claim) for p, claim in zip(names, claims, strict=True) if claim},
                "counts": self._named(state.counts),
                "values": {p: self._named(own) for p, own in zip(names, state.values, strict=True)},
                "agreed": agreed,
                **whole_unit_yardsticks(names, state.counts, state.values),
            },
        )
        return (
            DealState(played, drawn.counts, drawn.values, 1 - state.first, (), (), agreed, points, over),
            outcome,
        )

    def private(self, state: DealState, player: str) -> Mapping[str, Any]:
        """The own values."""
        return {"values": self._named(state.values[self._players.index(player)])}
