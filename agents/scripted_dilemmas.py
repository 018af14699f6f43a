"""The rules of scripted agents for social dilemmas: public goods, commons, coin game, cheap talk."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from coplay.agents.base import TurnKey
from coplay.agents.scripted_exact import Seated, lot
from coplay.agents.scripted_splits import last_named, nearest_number
from coplay.games import Choice, Number, Observation
from coplay.games.coin_game import STEPS, distance, neighbour
from coplay.games.random_moves import LINE
from coplay.games.stag_hunt_talk import MOVES as HUNTS


def _others(told: Mapping[str, Any], player: str) -> list[Any]:
    return [value for name, value in told.items() if name != player]


# Public goods.


def full_contributor(observation: Observation, agent: Seated, key: TurnKey) -> int:
    """Contribute everything."""
    endowment: int = observation.facts["endowment"]
    return endowment


def free_rider(observation: Observation, agent: Seated, key: TurnKey) -> int:
    """Contribute nothing."""
    return 0


def efficient_contributor(observation: Observation, agent: Seated, key: TurnKey) -> int:
    """Contribute what is best for all together: everything if it is multiplied by more than 1, else nothing."""
    return full_contributor(observation, agent, key) if observation.facts["multiplier"] > 1 else 0


def conditional_contributor(observation: Observation, agent: Seated, key: TurnKey) -> int:
    """Contribute what the others did on average in the last round, first everything (Fischbacher et al. 2001)."""
    facts, grammar = observation.facts, observation.grammar
    assert isinstance(grammar, Number)
    if "last" not in facts:
        return full_contributor(observation, agent, key)
    given = _others(facts["last"], agent.seat.player)
    least, most = grammar.ends()
    allowed = range(least, most + 1) if grammar.values is None else grammar.values
    return nearest_number(allowed, sum(given) / len(given))


# Commons.


def greedy_harvester(observation: Observation, agent: Seated, key: TurnKey) -> int:
    """Claim the whole stock."""
    stock: int = observation.facts["stock"]
    return stock


def sustainable_harvester(observation: Observation, agent: Seated, key: TurnKey) -> int:
    """Claim an equal share, rounded down, of what stands above the stock that grows to the capacity."""
    facts = observation.facts
    return int(max(0, facts["stock"] - facts["sustainable"]) // len(agent.seat.players))


def planning_harvester(observation: Observation, agent: Seated, key: TurnKey) -> int:
    """Harvest sustainably, but in the last round an equal share, rounded down, of everything."""
    facts = observation.facts
    if facts["round"] == facts["num_rounds"]:
        return int(facts["stock"] // len(agent.seat.players))
    return sustainable_harvester(observation, agent, key)


# Coin game.


def _view(observation: Observation, player: str) -> tuple[int, int, bool, int]:
    """The player's cell, the coin's, whether the coin is his, and the size of the grid."""
    facts = observation.facts
    size: int = facts["size"]
    own, coin = (row * size + column for row, column in (facts["places"][player], facts["coin"]))
    return own, coin, facts["owner"] == player, size


def greedy_moves(observation: Observation, player: str) -> list[int]:
    """The moves that bring a player nearer to the coin, whoever owns it."""
    own, coin, _, size = _view(observation, player)
    near = distance(own, coin, size)
    return [move for move in range(len(STEPS)) if distance(neighbour(own, move, size), coin, size) < near]


def cooperative_moves(observation: Observation, player: str) -> list[int]:
    """The moves that bring a player nearer to his own coin; all that do not take the other's."""
    own, coin, mine, size = _view(observation, player)
    if mine:
        return greedy_moves(observation, player)
    return [move for move in range(len(STEPS)) if neighbour(own, move, size) != coin]


def _one_of(moves: list[int], observation: Observation, agent: Seated, key: TurnKey) -> str:
    grammar = observation.grammar
    assert isinstance(grammar, Choice)
    return grammar.options[moves[int(lot(agent, key) * len(moves))]]


def coin_cooperator(observation: Observation, agent: Seated, key: TurnKey) -> str:
    """Fetch one's own coins, never take the other's; of equally good moves, each equally likely."""
    return _one_of(cooperative_moves(observation, agent.seat.player), observation, agent, key)


def coin_greedy(observation: Observation, agent: Seated, key: TurnKey) -> str:
    """Fetch every coin; of equally short ways, each equally likely."""
    return _one_of(greedy_moves(observation, agent.seat.player), observation, agent, key)


# Stag hunt with cheap talk.


class Remembering(Seated, Protocol):
    """An agent that can be let down."""

    provoked: bool
    """Whether it was."""


STAG_LINE, HARE_LINE = "I will hunt stag.", "I will hunt hare."


def _says(line: str, observation: Observation) -> str:
    """The first signal that names the same move as a line, or the last signal."""
    grammar = observation.grammar
    assert isinstance(grammar, Choice)
    meant = last_named([line], HUNTS)
    return next(
        (signal for signal in grammar.options if last_named([signal], HUNTS) == meant), grammar.options[-1]
    )


def stag_hunter(observation: Observation, agent: Remembering, key: TurnKey) -> str:
    """Say stag and hunt stag."""
    return _says(STAG_LINE, observation) if observation.facts["phase"] == "message" else "stag"


def hare_hunter(observation: Observation, agent: Remembering, key: TurnKey) -> str:
    """Say hare and hunt hare."""
    return _says(HARE_LINE, observation) if observation.facts["phase"] == "message" else "hare"


def bluffing_hunter(observation: Observation, agent: Remembering, key: TurnKey) -> str:
    """Say stag and hunt hare."""
    return _says(STAG_LINE, observation) if observation.facts["phase"] == "message" else "hare"


def trusting_hunter(observation: Observation, agent: Remembering, key: TurnKey) -> str:
    """Say stag; hunt stag if the other says so too, until he once let one hunt it alone."""
    facts = observation.facts
    if facts["phase"] == "message":
        return _says(STAG_LINE, observation)
    last: Mapping[str, str] = facts.get("last", {})
    alone = last.get(agent.seat.player) == "stag" and "hare" in last.values()
    agent.provoked = agent.provoked or alone
    return "stag" if last_named(facts["heard"], HUNTS) == "stag" and not agent.provoked else "hare"


RULES: dict[str, tuple[str, Callable[[Observation, Remembering, TurnKey], Any]]] = {
    "full_contributor": ("public_goods", full_contributor),
    "free_rider": ("public_goods", free_rider),
    "efficient_contributor": ("public_goods", efficient_contributor),
    "conditional_contributor": ("public_goods", conditional_contributor),
    "greedy_harvester": ("commons", greedy_harvester),
    "sustainable_harvester": ("commons", sustainable_harvester),
    "planning_harvester": ("commons", planning_harvester),
    "coin_cooperator": ("coin_game", coin_cooperator),
    "coin_greedy": ("coin_game", coin_greedy),
    "stag_hunter": ("stag_hunt_talk", stag_hunter),
    "hare_hunter": ("stag_hunt_talk", hare_hunter),
    "bluffing_hunter": ("stag_hunt_talk", bluffing_hunter),
    "trusting_hunter": ("stag_hunt_talk", trusting_hunter),
}
"""By the agent's name, its game and its rule."""

LINES = {
    "stag_hunter": STAG_LINE,
    "hare_hunter": HARE_LINE,
    "bluffing_hunter": STAG_LINE,
    "trusting_hunter": STAG_LINE,
}
"""By the agent's name, what it says where any text may be said; the others say `LINE`."""


def line_of(name: str) -> Callable[[Observation], str]:
    """What an agent says."""
    return lambda observation: LINES.get(name, LINE)
