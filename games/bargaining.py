"""Bargaining over a pool of items by proposals and messages (Cao et al. 2018, arXiv 1804.03980).

Counts of each item are drawn and public, a unit's values drawn for each player and private. In turn each sends a
message and proposes what he takes, or accepts what the other's last proposal leaves. The number of turns comes from
a truncated Poisson distribution and is not told; without an acceptance nobody gets anything. A player is paid
v·g, or the part v·g / v·c of what the whole pool c is worth to him.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, ClassVar

from coplay.games.bargaining_parameters import BargainingParameters
from coplay.games.bargaining_wording import BargainingView, full_rules, full_turn, terse_rules, terse_turn
from coplay.games.base import Game, GameSpec, MalformedRule, Observation, StepOutcome
from coplay.games.best_outcomes import whole_unit_yardsticks
from coplay.games.chance import Chance
from coplay.games.grammar import Action, Choice, Fields, FreeText, Grammar, Malformed, OneOf
from coplay.games.messages import delivered

ACCEPT = "accept"
MAX_TRIES = 10_000
"""Each try at counts or values is good in at least every other case."""

Bundle = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BargainingState:
    """Of constant size, however long the game."""

    round: int
    """Rounds played."""
    counts: Bundle
    values: tuple[Bundle, ...]
    num_turns: int
    """Turns that this round has at most."""
    first: int
    """Seat that moves first in this round."""
    turn: int = 0
    """Turns taken in this round."""
    spoken: bool = False
    """True if the one whose turn it is has said his message."""
    message: str = ""
    """The last one said; silence is empty."""
    proposal: Bundle = ()
    """What the other takes by his last proposal; empty if there is none."""
    last_agreed: bool = False
    last_pay: tuple[float, ...] = ()
    """Of the round before, for each seat; empty in the first round."""
    over: bool = False


def worth(bundle: Bundle, values: Bundle) -> int:
    """Σ_items units · value."""
    return sum(units * value for units, value in zip(bundle, values, strict=True))


class Bargaining(Game[BargainingState]):
    """Items with private values; proposals and messages until one accepts."""

    Parameters: ClassVar[type[BargainingParameters]] = BargainingParameters
    name: ClassVar[str] = "bargaining"

    def __init__(self, parameters: BargainingParameters) -> None:
        super().__init__(parameters)
        self._players = parameters.players
        self._items = parameters.items
        self._full = parameters.wording == "full"
        self._talks = parameters.messages != "none"
        message_tag = parameters.message_tag if self._full else None
        self._message: Grammar = FreeText(parameters.max_message_characters, message_tag)
        if parameters.messages == "symbols":
            names = tuple(f"s{place}" for place in range(1, parameters.num_symbols + 1))
            self._message = Fields(names, 0, parameters.alphabet_size - 1, message_tag, bare=True)
        self._answer = Choice((ACCEPT,), parameters.answer_tag if self._full else None)
        self._turn_sums = tuple(accumulate(parameters.turn_chances()))
        rules = full_rules if self._full else terse_rules
        self._rules = tuple(rules(parameters, seat, self._message.describe()) for seat in range(2))
        most = len(self._items) * parameters.max_count * parameters.max_value
        self._spec = GameSpec(
            players=self._players,
            max_steps=parameters.num_rounds * parameters.max_turns * (2 if self._talks else 1),
            has_chance=True,
            has_rounds=True,
            zero_sum=False,
            symmetric=True,
            reward_range=(0.0, 1.0 if parameters.reward == "fraction" else float(most)),
            malformed_rule=MalformedRule(
                retries=parameters.retries,
                penalty=parameters.penalty,
                consequence="an untagged message is cut to the limit, else silence; a move takes back the own last"
                " proposal and makes none",
            ),
        )

    @property
    def spec(self) -> GameSpec:
        """What this game declares about itself."""
        return self._spec

    def initial_state(self, chance: Chance) -> BargainingState:
        """A pool, values, the number of turns, and who begins."""
        return self._deal(chance, BargainingState(0, (), (), 0, chance.integer("first", 2)))

    def _deal(self, chance: Chance, state: BargainingState) -> BargainingState:
        counts = self._draw(chance, "count", self.parameters.max_count, (1,) * len(self._items))
        values = tuple(
            self._draw(chance, f"values/{seat}", self.parameters.max_value, counts) for seat in range(2)
        )
        lot = chance.uniform("turns")
        extra = sum(lot >= share for share in self._turn_sums[:-1])
        num_turns = self.parameters.min_turns + extra
        return replace(state, counts=counts, values=values, num_turns=num_turns)

    def _draw(self, chance: Chance, purpose: str, most: int, weights: Bundle) -> Bundle:
        """A number from 0 to `most` for each item, again until their sum with these weights is above 0."""
        for index in range(MAX_TRIES):
            drawn = tuple(
                chance.integer(f"{purpose}/{place}", most + 1, index=index) for place in range(len(weights))
            )
            if worth(drawn, weights):
                return drawn
        raise RuntimeError(f"no draw of {purpose} is above 0 after {MAX_TRIES} tries")

    def _mover(self, state: BargainingState) -> int:
        return (state.first + state.turn) % 2

    def to_move(self, state: BargainingState) -> tuple[str, ...]:
        """One after the other, each with a message before his move."""
        return () if state.over else (self._players[self._mover(state)],)

    def observe(self, state: BargainingState, player: str) -> Observation:
        """The pool at a round's first turn; the other's message and proposal; then what is asked for."""
        seat = self._players.index(player)
        speaks = self._talks and not state.spoken
        news = not state.spoken
        heard = state.message if news and self._talks and state.turn else None
        shown = self.parameters.show_proposals and bool(state.proposal)
        rest = tuple(n - p for n, p in zip(state.counts, state.proposal, strict=True)) if shown else ()
        view = BargainingView(
            seat=seat,
            number=state.round + 1,
            starts=news and state.turn < 2,
            counts=state.counts,
            values=state.values[seat],
            heard=heard,
            offer=rest if news else (),
            speaks=speaks,
            accepts=bool(state.proposal),
            last=(state.last_agreed, state.last_pay[seat]) if state.last_pay else None,
        )
        grammar = self._message if speaks else self._move_grammar(state)
        turn = full_turn if self._full else terse_turn
        facts: dict[str, Any] = {
            "game": self.name,
            "phase": "message" if speaks else "proposal",
            "round": view.number,
            "num_rounds": self.parameters.num_rounds,
            "turn": state.turn,
            "max_turns": self.parameters.max_turns,
            "counts": self._named(state.counts),
            "values": self._named(view.values),
            "heard": heard,
            "accepts": view.accepts,
        }
        facts |= {"offer": self._named(rest)} if rest else {}
        if view.last is not None:
            facts["last"] = {"agreed": view.last[0], "pay": view.last[1]}
        return Observation(
            text=turn(self.parameters, view, grammar.describe()),
            grammar=grammar,
            system=self._rules[seat],
            facts=facts,
        )

    def _move_grammar(self, state: BargainingState) -> Grammar:
        tag = self.parameters.tag if self._full else None
        proposal = Fields(self._items, 0, state.counts, tag, bare=not self._full)
        return OneOf(("answer", "proposal"), (self._answer, proposal)) if state.proposal else proposal

    def _named(self, bundle: Bundle) -> dict[str, int]:
        return dict(zip(self._items, bundle, strict=True))

    def step(
        self, state: BargainingState, actions: Mapping[str, Action], chance: Chance
    ) -> tuple[BargainingState, StepOutcome]:
        """A message, a proposal, or the end of a round by acceptance or for lack of turns."""
        seat = self._mover(state)
        player = self._players[seat]
        action = actions[player]
        nothing = dict.fromkeys(self._players, 0.0)
        if self._talks and not state.spoken:
            said = replace(state, spoken=True, message=self._heard(action))
            info: dict[str, Any] = {"phase": "message", "player": player}
            return said, StepOutcome(rewards=nothing, round_ended=False, info=info)
        value = {} if isinstance(action, Malformed) else action.value
        accepted = "answer" in value
        if accepted or state.turn + 1 >= state.num_turns:
            return self._settle(state, seat, accepted, chance)
        proposed = value.get("proposal", value)
        proposal = tuple(proposed[item] for item in self._items) if proposed else ()
        following = replace(state, turn=state.turn + 1, spoken=False, proposal=proposal)
        info = {
            "phase": "proposal",
            "player": player,
            "proposal": self._named(proposal) if proposal else None,
        }
        return following, StepOutcome(rewards=nothing, round_ended=False, info=info)

    def _heard(self, action: Action) -> str:
        if isinstance(self._message, FreeText):
            untagged = self._message.tag is None
            return delivered(action, self.parameters.max_message_characters, whole_reply=untagged)
        return "" if isinstance(action, Malformed) else " ".join(map(str, action.value.values()))

    def _settle(
        self, state: BargainingState, seat: int, accepted: bool, chance: Chance
    ) -> tuple[BargainingState, StepOutcome]:
        """Pay what is accepted, and deal anew."""
        scales = (1, 1)
        if self.parameters.reward == "fraction":
            scales = (worth(state.counts, state.values[0]), worth(state.counts, state.values[1]))
        pay = [0.0, 0.0]
        if accepted:
            rest = tuple(n - p for n, p in zip(state.counts, state.proposal, strict=True))
            pay[seat] = worth(rest, state.values[seat]) / scales[seat]
            pay[1 - seat] = worth(state.proposal, state.values[1 - seat]) / scales[1 - seat]
        over = state.round + 1 >= self.parameters.num_rounds
        names = self._players
        outcome = StepOutcome(
            rewards=dict(zip(names, pay, strict=True)),
            terminated=over,
            info={
                "phase": "proposal",
                "player": names[seat],
                "num_turns": state.turn + 1,
                "counts": self._named(state.counts),
                "values": {name: self._named(own) for name, own in zip(names, state.values, strict=True)},
                "agreed": accepted,
                **whole_unit_yardsticks(names, state.counts, state.values, scales),
            },
        )
        following = BargainingState(
            state.round + 1,
            state.counts,
            state.values,
            state.num_turns,
            1 - state.first,
            last_agreed=accepted,
            last_pay=tuple(pay),
            over=over,
        )
        return following if over else self._deal(chance, following), outcome

    def private(self, state: BargainingState, player: str) -> Mapping[str, Any]:
        """The own values."""
        return {"values": self._named(state.values[self._players.index(player)])}
