"""Negotiators of the NegMAS library where offers alternate: `negmas:AspirationNegotiator`.

They play `alternating_offers`, `ultimatum` and `bargaining`. Each round is a negotiation of its own under the library's
alternating-offers protocol (`SAOMechanism`, one offer a step), with one step for each offer and, where the last may be
answered, one more. A negotiator's utility is its share of the coins, or the part of the pool's worth that it gets; what
waiting costs (`discounts`) it is not told, only how much of the longest horizon is left. An offer that it is not shown
is one of nothing. Where messages go with offers, it says what carries no meaning. The library is under the AGPL and has
an extra of its own.

Source: Y. Mohammad, S. Nakadai, A. Greenwald, "NegMAS: A platform for automated negotiations", PRIMA 2020.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from typing import Any

from coplay.agents.base import AgentFactory, Reply, Seat, TurnKey
from coplay.agents.named import LIBRARIES
from coplay.agents.scripted import AgentGameError, UnknownAgentError
from coplay.games import Observation, derive_seed, nearest
from coplay.games.adapters.global_luck import fenced
from coplay.games.optional import optional_library
from coplay.games.random_moves import random_move

GAMES = LIBRARIES["negmas"].games
NEGOTIATORS = (
    "AspirationNegotiator",
    "BoulwareTBNegotiator",
    "ConcederTBNegotiator",
    "FastMiCRONegotiator",
    "HybridNegotiator",
    "LinearTBNegotiator",
    "MiCRONegotiator",
    "NaiveTitForTatNegotiator",
    "NiceNegotiator",
    "SimpleTitForTatNegotiator",
    "TopFractionNegotiator",
    "ToughNegotiator",
)
"""Those that need nothing but a utility of their own, and never break off: these games know no leaving."""
PREFIX = "negmas:"
OWN, OTHER = "own", "other"
SEED_SIZE = 2**32
Bundle = tuple[int, ...]
"""Units of each item that the negotiator gets; coins are one item."""


@dataclass(frozen=True, slots=True)
class Table:
    """What a round is about, as the negotiator sees it."""

    counts: Bundle
    values: Bundle
    """What a unit of each item is worth to it."""
    num_steps: int
    """The library's, of the whole negotiation."""
    num_done: int
    """Those before this turn."""
    offer: Bundle | None
    """What the other offers; None at the first step."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a negotiator: the offer it was made, if any, and the seed that its lots are drawn from."""

    offer: Bundle | None
    seed: int


@dataclass(slots=True, kw_only=True)
class NegmasAgent:
    """One player of one episode who is a negotiator of the library.

    The turns of the round are its whole memory: a fork copies them, and a new negotiation is led to the same place
    when it is first asked (the library's negotiators cannot be copied).
    """

    name: str
    seat: Seat
    round: int = 0
    turns: list[Turn] = field(default_factory=list)
    """Of this round."""
    said: str = ""
    """The last reply; asked again in the same turn, it says the same again."""
    asked: tuple[int, int, str] = (0, 0, "")
    """Round, offers made and branch of the last turn."""
    negotiation: Any = None
    """The library's mechanism; None until it is next asked."""

    @property
    def policy(self) -> str:
        """The name; there are no weights."""
        return self.name

    async def reply(self, observation: Observation, key: TurnKey) -> Reply:
        """Tell the negotiator the other's offer, and ask it for an answer or an offer."""
        facts = observation.facts
        if facts.get("phase") == "message":
            said = observation.grammar.write(random_move(observation.grammar, ("negmas", facts["round"])))
            return Reply(text=said, policy=self.name)
        table = _table(facts)
        turn = (facts["round"], table.num_done, key.branch)
        if turn != self.asked:
            if turn[:2] == self.asked[:2]:
                self.turns.pop()
                self.negotiation = None
            if facts["round"] != self.round:
                self.round, self.turns, self.negotiation = facts["round"], [], None
            if self.negotiation is None:
                self.negotiation = _open(self.name, table)
                for earlier in self.turns:
                    self._ask(earlier, table)
            seed = derive_seed(self.seat.seed, "negmas", *turn) % SEED_SIZE
            self.turns.append(Turn(table.offer, seed))
            self.asked = turn
            self.said = _write(observation, self._ask(self.turns[-1], table))
        return Reply(text=self.said, policy=self.name)

    def _ask(self, turn: Turn, table: Table) -> Bundle | None:
        """What the negotiator wants for itself; None if it accepts."""
        library, mechanism = _library(), self.negotiation
        (own,) = (one for one in mechanism.negotiators if one.name == OWN)
        (other,) = (one for one in mechanism.negotiators if one.name != OWN)
        if turn.offer is not None:
            offered = library.SAOResponse(library.ResponseType.REJECT_OFFER, turn.offer)
            with fenced(turn.seed):
                mechanism.step(action={other.id: offered})
        with fenced(turn.seed):
            state = mechanism.step()
        if state.agreement is not None:
            return None
        if state.current_offer is None or state.current_proposer != own.id:
            return table.counts
        return tuple(map(int, state.current_offer))

    def close(self, observation: Observation) -> None:
        """Nothing to read: there are no tokens."""
        return None

    def fork(self) -> "NegmasAgent":
        """An independent copy in the same state of memory, its luck included."""
        return replace(self, turns=list(self.turns), negotiation=None)


def _table(facts: Mapping[str, Any]) -> Table:
    """What the facts of a turn to move say of the negotiation."""
    offer = facts.get("offer")
    if facts["game"] == "bargaining":
        counts, done = tuple(facts["counts"].values()), facts["turn"]
        shown = (0,) * len(counts) if offer is None else tuple(offer.values())
        return Table(
            counts, tuple(facts["values"].values()), facts["max_turns"], done, shown if done else None
        )
    return Table(
        (facts["coins"],),
        (1,),
        facts["max_offers"] + 1,
        facts["num_offers"],
        None if offer is None else (offer,),
    )


def _write(observation: Observation, wanted: Bundle | None) -> str:
    """The reply that accepts (None) or makes an offer, or rejects where nothing can be offered any more."""
    grammar, facts = observation.grammar, observation.facts
    if facts["game"] == "bargaining":
        if wanted is None and facts["accepts"]:
            return grammar.write({"answer": "accept"})
        # What accepts an offer of nothing, as one that was malformed is, takes nothing.
        units = dict(zip(facts["counts"], wanted or (0,) * len(facts["counts"]), strict=True))
        return grammar.write({"proposal": units} if facts["accepts"] else units)
    if facts["num_offers"] >= facts["max_offers"]:
        return grammar.write("accept" if wanted is None else "reject")
    offer = 0 if wanted is None else facts["coins"] - wanted[0]
    if not facts["num_offers"]:
        return grammar.write(offer)
    return grammar.write({"answer": "accept"} if wanted is None else {"offer": offer})


@cache
def _library(part: str = "sao") -> Any:
    use = "an agent 'negmas:NAME'"
    with fenced(0):
        optional_library("negmas", extra="negmas", use=use)
        return optional_library(f"negmas.{part}", extra="negmas", use=use)


def _open(name: str, table: Table) -> Any:
    """A negotiation over what the negotiator gets; who offers first is seated first."""
    library = _library()
    outcomes, preferences = _library("outcomes"), _library("preferences")
    total = sum(count * value for count, value in zip(table.counts, table.values, strict=True))
    shares = {
        bundle: sum(units * value for units, value in zip(bundle, table.values, strict=True)) / total
        for bundle in product(*(range(count + 1) for count in table.counts))
    }
    with fenced(0):
        mechanism = library.SAOMechanism(
            issues=[outcomes.make_issue(count + 1, str(place)) for place, count in enumerate(table.counts)],
            n_steps=table.num_steps,
            one_offer_per_step=True,
        )
        own = getattr(library, name.removeprefix(PREFIX))(name=OWN)
        parties = [
            (own, shares),
            (library.ToughNegotiator(name=OTHER), {o: 1 - s for o, s in shares.items()}),
        ]
        for negotiator, worth in parties if table.num_done % 2 == 0 else parties[::-1]:
            utility = preferences.MappingUtilityFunction(worth, issues=mechanism.issues, reserved_value=0.0)
            if not mechanism.add(negotiator, ufun=utility):
                raise AgentGameError(f"agent {name!r} does not enter a negotiation over {table.counts}")
    return mechanism


def negmas_agent(name: str) -> AgentFactory:
    """The factory of the negotiator called `negmas:NAME`; it refuses seats in games that it cannot play.

    Raises:
        UnknownAgentError: if it is none of `NEGOTIATORS`.
        MissingLibraryError: if the library is not installed.
    """
    known = [f"{PREFIX}{negotiator}" for negotiator in NEGOTIATORS]
    if name not in known:
        raise UnknownAgentError(
            f"agent {name!r} is unknown; expected one of {', '.join(known)}{nearest(name, known)}"
        )
    _library()

    def sit_down(seat: Seat) -> NegmasAgent:
        if seat.game not in GAMES:
            raise AgentGameError(
                f"agent {name!r} has no rule for game {seat.game!r}; expected one of {tuple(sorted(GAMES))!r}"
            )
        return NegmasAgent(name=name, seat=seat)

    return sit_down
