"""Negotiators of the NegMAS library in alternating offers and the ultimatum game: `negmas:AspirationNegotiator`.

Each round is a negotiation of its own under the library's alternating-offers protocol (`SAOMechanism`, one offer a
step), with one step for each offer and one for the answer to the last. A negotiator's utility is its share of the
coins; what waiting costs (`discounts`) it is not told, only how much of the horizon is left. The library is under the
AGPL and has an extra of its own.

Source: Y. Mohammad, S. Nakadai, A. Greenwald, "NegMAS: A platform for automated negotiations", PRIMA 2020.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from coplay.agents.base import AgentFactory, Reply, Seat, TurnKey
from coplay.agents.scripted import AgentGameError, UnknownAgentError
from coplay.games import Observation, derive_seed, nearest
from coplay.games.adapters.global_luck import fenced
from coplay.games.optional import optional_library

GAMES = frozenset({"alternating_offers", "ultimatum"})
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


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a negotiator: the offer it was made, if any, and the seed that its lots are drawn from."""

    offer: int | None
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
        turn = (facts["round"], facts["num_offers"], key.branch)
        if turn != self.asked:
            if turn[:2] == self.asked[:2]:
                self.turns.pop()
                self.negotiation = None
            if facts["round"] != self.round:
                self.round, self.turns, self.negotiation = facts["round"], [], None
            if self.negotiation is None:
                self.negotiation = _open(self.name, facts)
                for earlier in self.turns:
                    self._ask(earlier, facts["coins"])
            seed = derive_seed(self.seat.seed, "negmas", *turn) % SEED_SIZE
            self.turns.append(Turn(facts.get("offer"), seed))
            self.asked = turn
            self.said = _write(observation, self._ask(self.turns[-1], facts["coins"]))
        return Reply(text=self.said, policy=self.name)

    def _ask(self, turn: Turn, coins: int) -> int | None:
        """The coins that the negotiator offers to the other; None if it accepts."""
        library, mechanism = _library(), self.negotiation
        (own,) = (one for one in mechanism.negotiators if one.name == OWN)
        (other,) = (one for one in mechanism.negotiators if one.name != OWN)
        if turn.offer is not None:
            offered = library.SAOResponse(library.ResponseType.REJECT_OFFER, (turn.offer,))
            with fenced(turn.seed):
                mechanism.step(action={other.id: offered})
        with fenced(turn.seed):
            state = mechanism.step()
        if state.agreement is not None:
            return None
        if state.current_offer is None or state.current_proposer != own.id:
            return 0
        return coins - int(state.current_offer[0])

    def close(self, observation: Observation) -> None:
        """Nothing to read: there are no tokens."""
        return None

    def fork(self) -> "NegmasAgent":
        """An independent copy in the same state of memory, its luck included."""
        return replace(self, turns=list(self.turns), negotiation=None)


def _write(observation: Observation, offer: int | None) -> str:
    """The reply that accepts (None) or offers coins, or rejects where nothing can be offered any more."""
    grammar, facts = observation.grammar, observation.facts
    last = facts["num_offers"] >= facts["max_offers"]
    if last:
        return grammar.write("accept" if offer is None else "reject")
    if not facts["num_offers"]:
        return grammar.write(offer)
    return grammar.write({"answer": "accept"} if offer is None else {"offer": offer})


@cache
def _library(part: str = "sao") -> Any:
    use = "an agent 'negmas:NAME'"
    with fenced(0):
        optional_library("negmas", extra="negmas", use=use)
        return optional_library(f"negmas.{part}", extra="negmas", use=use)


def _open(name: str, facts: Mapping[str, Any]) -> Any:
    """A negotiation over the coins that the negotiator gets; who offers first is seated first."""
    library, coins = _library(), int(facts["coins"])
    outcomes, preferences = _library("outcomes"), _library("preferences")
    with fenced(0):
        mechanism = library.SAOMechanism(
            issues=[outcomes.make_issue(coins + 1, "coins")],
            n_steps=facts["max_offers"] + 1,
            one_offer_per_step=True,
        )
        own = getattr(library, name.removeprefix(PREFIX))(name=OWN)
        shares = {(amount,): amount / coins for amount in range(coins + 1)}
        parties = [
            (own, shares),
            (library.ToughNegotiator(name=OTHER), {o: 1 - s for o, s in shares.items()}),
        ]
        for negotiator, table in parties if facts["num_offers"] % 2 == 0 else parties[::-1]:
            utility = preferences.MappingUtilityFunction(table, issues=mechanism.issues, reserved_value=0.0)
            if not mechanism.add(negotiator, ufun=utility):
                raise AgentGameError(f"agent {name!r} does not enter a negotiation over {coins} coins")
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
