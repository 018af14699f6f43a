"""Agents that follow a fixed rule: anchors of evaluation, opponents to train against, players of tests.

They read `Observation.facts` and answer through the grammar. With more than two players, "the others
cooperated" means every one of them did. To cooperate is to play the first move, to defect the last.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from coplay.agents import scripted_exact as exact
from coplay.agents import scripted_splits as splits
from coplay.agents.base import Agent, AgentFactory, Reply, Seat, TurnKey
from coplay.agents.scripted_dilemmas import RULES as DILEMMAS
from coplay.agents.scripted_dilemmas import line_of
from coplay.agents.scripted_negotiation import NEGOTIATORS
from coplay.agents.scripted_search import HABITS, searching_agent
from coplay.games import FreeText, Observation, nearest
from coplay.games.random_moves import LINE, UndrawableError, random_move

Rule = Callable[[Observation, "ScriptedAgent", TurnKey], Any]
"""From an observation to a move value of its grammar."""


class UnknownAgentError(ValueError):
    """No scripted agent has this name."""


class AgentGameError(ValueError):
    """A scripted agent was seated in a game it has no rule for."""


@dataclass(slots=True, kw_only=True)
class ScriptedAgent:
    """One player of one episode that follows a rule."""

    name: str
    seat: Seat
    script: "Script"
    provoked: bool = False
    """Whether any other player ever defected, as far as this agent has seen."""

    @property
    def policy(self) -> str:
        """The name; there are no weights."""
        return self.name

    async def reply(self, observation: Observation, key: TurnKey) -> Reply:
        """Answer by the rule."""
        grammar = observation.grammar
        if isinstance(grammar, FreeText):
            text = grammar.write(self.script.line(observation)[: grammar.max_characters].strip())
        else:
            text = grammar.write(self.script.rule(observation, self, key))
        return Reply(text=text, policy=self.name)

    def close(self, observation: Observation) -> None:
        """Nothing to read: there are no tokens."""
        return None

    def fork(self) -> "ScriptedAgent":
        """An independent copy in the same state of memory."""
        return replace(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What makes a scripted agent."""

    rule: Rule
    games: frozenset[str] | None
    """The games it plays; None means any."""
    line: Callable[[Observation], str] = lambda observation: LINE
    """What it says where it must say something."""
    seated: Callable[[str, Seat], Agent] | None = None
    """Makes an agent of another kind, which has its own ways; None: one that follows the rule."""


def _random(observation: Observation, agent: ScriptedAgent, key: TurnKey) -> Any:
    """Any move of the grammar, each equally likely; of several kinds of moves, first the kind."""
    branch = (key.branch,) if key.branch else ()
    try:
        return random_move(observation.grammar, (agent.seat.seed, key.step, key.attempt, *branch))
    except UndrawableError as error:
        raise AgentGameError(f"agent 'random': {error}") from error


# Iterated matrix games.


def _first(observation: Observation) -> str:
    return str(observation.facts["moves"][0])


def _last(observation: Observation) -> str:
    return str(observation.facts["moves"][-1])


def _others_cooperated(observation: Observation, player: str) -> bool:
    """True too in the first round."""
    last: Mapping[str, str] = observation.facts.get("last", {})
    cooperate = observation.facts["cooperate"]
    return all(move == cooperate[name] for name, move in last.items() if name != player)


def _always_cooperate(observation: Observation, agent: ScriptedAgent, key: TurnKey) -> str:
    return _first(observation)


def _always_defect(observation: Observation, agent: ScriptedAgent, key: TurnKey) -> str:
    return _last(observation)


def _tit_for_tat(observation: Observation, agent: ScriptedAgent, key: TurnKey) -> str:
    kind = _others_cooperated(observation, agent.seat.player)
    return _first(observation) if kind else _last(observation)


def _grim(observation: Observation, agent: ScriptedAgent, key: TurnKey) -> str:
    agent.provoked = agent.provoked or not _others_cooperated(observation, agent.seat.player)
    return _last(observation) if agent.provoked else _first(observation)


def _win_stay_lose_shift(observation: Observation, agent: ScriptedAgent, key: TurnKey) -> str:
    """Keep the move if all others cooperated, else change between the first and the last move."""
    last: Mapping[str, str] = observation.facts.get("last", {})
    own = last.get(agent.seat.player, _first(observation))
    if _others_cooperated(observation, agent.seat.player):
        return own
    return _last(observation) if own == _first(observation) else _first(observation)


def _negotiator(strategy: str, others: frozenset[str] = frozenset(), otherwise: Rule | None = None) -> Script:
    """A strategy in every negotiation that has it, and in other games by another rule."""

    def rule(observation: Observation, agent: ScriptedAgent, key: TurnKey) -> Any:
        game = observation.facts["game"]
        if otherwise is not None and game in others:
            return otherwise(observation, agent, key)
        return NEGOTIATORS[game][strategy](observation, agent.seat.player)

    return Script(rule=rule, games=others | {game for game, able in NEGOTIATORS.items() if strategy in able})


MATRIX = frozenset({"iterated_matrix"})
SPLITS = frozenset({"split", "trust_and_split"})
POKER = frozenset({"kuhn_poker", "leduc_poker"})
SIGNS = frozenset({"rock_paper_scissors"})
BARGAINING = frozenset({"two_round_bargaining"})
SEARCHES = frozenset({"search_qa"})

SCRIPTED: dict[str, Script] = {
    "always_cooperate": Script(rule=_always_cooperate, games=MATRIX),
    "always_defect": Script(rule=_always_defect, games=MATRIX),
    "tit_for_tat": Script(rule=_tit_for_tat, games=MATRIX),
    "grim": Script(rule=_grim, games=MATRIX),
    "win_stay_lose_shift": Script(rule=_win_stay_lose_shift, games=MATRIX),
    "random": Script(rule=_random, games=None),
    "greedy": _negotiator("greedy", SPLITS, splits.greedy),
    "welfare_maximising": Script(rule=splits.welfare_maximising, games=SPLITS, line=splits.own_hand),
    **{
        name: Script(rule=rule, games=frozenset({game}), line=line_of(name))
        for name, (game, rule) in DILEMMAS.items()
    },
    "fair": _negotiator("fair", SPLITS, splits.fair),
    "lenient": _negotiator("lenient"),
    "hardliner": _negotiator("hardliner"),
    "bayesian": _negotiator("bayesian"),
    "subgame_perfect": _negotiator("subgame_perfect"),
    "truthful": _negotiator("truthful"),
    "conceding": _negotiator("conceding"),
    "always_fold": Script(rule=exact.first_option, games=POKER),
    "always_bet": Script(rule=exact.last_option, games=POKER),
    "kuhn_equilibrium": Script(rule=exact.kuhn_equilibrium, games=frozenset({"kuhn_poker"})),
    "minimax": Script(rule=exact.minimax, games=frozenset({"tic_tac_toe"})),
    "always_first": Script(rule=exact.first_option, games=SIGNS),
    "cycle": Script(rule=exact.cycle, games=SIGNS),
    "beat_last": Script(rule=exact.beat_last, games=SIGNS),
    "even_bargainer": Script(rule=exact.even_bargainer, games=BARGAINING),
    "hard_bargainer": Script(rule=exact.hard_bargainer, games=BARGAINING),
    **{name: Script(rule=_random, games=SEARCHES, seated=searching_agent) for name in HABITS},
}


def scripted_players(game: str) -> list[str]:
    """Names of the scripted agents that have a rule for a game."""
    return [name for name, script in SCRIPTED.items() if script.games is None or game in script.games]


def scripted_agent(name: str) -> AgentFactory:
    """The factory of the scripted agent called `name`; it refuses seats in games the agent has no rule for.

    Raises:
        UnknownAgentError: if there is none.
    """
    if name not in SCRIPTED:
        options = tuple(SCRIPTED)
        raise UnknownAgentError(
            f"agent {name!r} is unknown; expected one of {options!r}{nearest(name, options)}"
        )
    script = SCRIPTED[name]

    def sit_down(seat: Seat) -> Agent:
        if script.games is not None and seat.game not in script.games:
            able = tuple(scripted_players(seat.game))
            raise AgentGameError(
                f"agent {name!r} has no rule for game {seat.game!r}; expected one of"
                f" {tuple(sorted(script.games))!r}, or an agent for this game: {able!r}"
            )
        if script.seated is not None:
            return script.seated(name, seat)
        return ScriptedAgent(name=name, seat=seat, script=script)

    return sit_down
