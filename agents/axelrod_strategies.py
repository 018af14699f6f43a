"""Strategies of the Axelrod library in the iterated 2×2 matrix game, by their names there: `axelrod:Tit For Tat`.

Every strategy that plays by Axelrod's rules is there (243 in version 4.14); those that read or change their opponent's
code are not. The first move of the game is C, the last D. A strategy is told what a `Match` of the library tells it:
the horizon where the game has a fixed one (else that it is unknown), no noise, and the four payoffs: its own, where
the table is not symmetric.

Source: V. Knight, O. Campbell, M. Harper et al., "An open framework for the reproducible study of the iterated
prisoner's dilemma", Journal of Open Research Software 4(1), 2016.
"""

from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from coplay.agents.base import AgentFactory, Reply, Seat, TurnKey
from coplay.agents.scripted import AgentGameError, UnknownAgentError
from coplay.games import Observation, derive_seed, nearest
from coplay.games.iterated_matrix_parameters import IteratedMatrixParameters
from coplay.games.optional import optional_library

PREFIX = "axelrod:"
GAMES = frozenset({"iterated_matrix"})
SEED_SIZE = 2**32
"""The library seeds numpy's old generator, which takes 32 bits."""


@dataclass(slots=True, kw_only=True)
class AxelrodAgent:
    """One player of one episode who plays a strategy of the library.

    What it has heard and the seeds it drew from are its whole memory: a fork copies these, and tells a new player of
    the library all of it when it is first asked. (Some of the library's players cannot be copied within a round.)
    """

    name: str
    seat: Seat
    seeds: dict[int, int]
    """Round -> the seed that its lots are drawn from, beginning with that round."""
    heard: list[tuple[bool, bool]] = field(default_factory=list)
    """For each round it was told of: whether it cooperated, and whether the other did."""
    branch: str = ""
    """The branch whose luck it draws from."""
    asked: int = 0
    """The last round it was asked in; asked in it again, it says the same again."""
    move: str = ""
    """What it said then."""
    players: tuple[Any, Any] | None = None
    """The library's player, and one that only holds the other's history; None until it is next asked."""

    @property
    def policy(self) -> str:
        """The name; there are no weights."""
        return self.name

    async def reply(self, observation: Observation, key: TurnKey) -> Reply:
        """Tell the strategy what was played, and ask it for its move."""
        facts = observation.facts
        current = int(facts["round"])
        if key.branch != self.branch:
            self.branch = key.branch
            self.seeds[current] = _seed(self.seat, key.branch)
            if self.asked == current:
                self.asked, self.players = current - 1, None
        if self.asked != current:
            if len(self.heard) < current - 1:
                last, cooperate = facts["last"], facts["cooperate"]
                own = self.seat.player
                (other,) = (player for player in self.seat.players if player != own)
                self.heard.append((last[own] == cooperate[own], last[other] == cooperate[other]))
            if self.players is None:
                self.players = _seat_players(self.name, self.seat)
                for earlier in range(1, current):
                    self._ask(earlier)
            self.asked = current
            moves = facts["moves"]
            self.move = observation.grammar.write(moves[0] if self._ask(current) else moves[-1])
        return Reply(text=self.move, policy=self.name)

    def _ask(self, current: int) -> bool:
        """Whether the strategy cooperates in a round, all before it told."""
        assert self.players is not None
        strategy, other = self.players
        action = _library().Action
        if current > 1:
            own_move, other_move = (action.C if kind else action.D for kind in self.heard[current - 2])
            strategy.update_history(own_move, other_move)
            other.update_history(other_move, own_move)
        if current in self.seeds:
            strategy.set_seed(self.seeds[current])
        return strategy.strategy(other) is action.C

    def close(self, observation: Observation) -> None:
        """Nothing to read: there are no tokens."""
        return None

    def fork(self) -> "AxelrodAgent":
        """An independent copy in the same state of memory, its luck included."""
        return replace(self, seeds=dict(self.seeds), heard=list(self.heard), players=None)


def _seed(seat: Seat, branch: str) -> int:
    return derive_seed(seat.seed, "axelrod", branch) % SEED_SIZE


@cache
def _library() -> Any:
    """The library; importing it takes some ten seconds."""
    return optional_library("axelrod", extra="games", use="an agent 'axelrod:NAME'")


@cache
def _strategies() -> dict[str, Any]:
    return {f"{PREFIX}{strategy.name}": strategy for strategy in _library().strategies}


def axelrod_names() -> tuple[str, ...]:
    """Names of all strategies that can be seated, as agents are named: `axelrod:Tit For Tat`.

    Raises:
        MissingLibraryError: if the library is not installed.
    """
    return tuple(_strategies())


def axelrod_agent(name: str) -> AgentFactory:
    """The factory of the strategy called `axelrod:NAME`; it refuses seats in games that it cannot play.

    Its luck is a function of the seat's seed, and of the branch it is asked in.

    Raises:
        UnknownAgentError: if the library has no strategy of this name.
        MissingLibraryError: if the library is not installed.
    """
    if name not in _strategies():
        raise UnknownAgentError(
            f"agent {name!r} is unknown; expected axelrod: and the name of one of the library's"
            f" {len(_strategies())} strategies{nearest(name, _strategies())}"
        )

    def sit_down(seat: Seat) -> AxelrodAgent:
        return AxelrodAgent(
            name=name, seat=seat, seeds={1: _seed(seat, "")}, players=_seat_players(name, seat)
        )

    return sit_down


def _seat_players(name: str, seat: Seat) -> tuple[Any, Any]:
    """A new player of the library who knows the game, and one that stands for the other."""
    strategy = _strategies()[name]()
    strategy.set_match_attributes(**_match_attributes(name, seat))
    return strategy, _library().MockPlayer()


def _match_attributes(name: str, seat: Seat) -> dict[str, Any]:
    """What the library's `Match` tells its players.

    Raises:
        AgentGameError: if the game is no iterated game of two players with two moves each.
    """
    rules = seat.parameters
    if not isinstance(rules, IteratedMatrixParameters):
        raise AgentGameError(
            f"agent {name!r} has no rule for game {seat.game!r} with parameters {rules!r}; expected"
            " 'iterated_matrix' and a seat that tells its parameters"
        )
    table = rules.table()
    if len(seat.players) != 2 or (len(table), len(table[0])) != (2, 2):
        raise AgentGameError(
            f"agent {name!r} plays games of two players with two moves each; got {len(seat.players)} players and a"
            f" table of {len(table)} by {len(table[0])}"
        )
    place = seat.players.index(seat.player)
    pay = [[(table[i][j] if place == 0 else table[j][i])[place] for j in range(2)] for i in range(2)]
    return {
        "length": float("inf") if rules.continuation_probability is not None else rules.num_rounds,
        "game": _library().Game(r=pay[0][0], s=pay[0][1], t=pay[1][0], p=pay[1][1]),
        "noise": 0,
    }
