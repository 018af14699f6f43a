"""Scripted agents as strategies on a small game's tree (`games/solve.py`): which reply with which probability."""

from collections.abc import Callable, Mapping
from typing import Any

from coplay.agents.base import Agent, Seat, TurnKey
from coplay.agents.named import is_named
from coplay.agents.scripted import SCRIPTED, AgentGameError, scripted_agent
from coplay.agents.scripted_dilemmas import cooperative_moves, greedy_moves
from coplay.agents.scripted_exact import KUHN_ALPHA, best_cells, kuhn_bet_probability
from coplay.games import Choice, Game, Observation
from coplay.games.game_tree import Decision, GameTree, Information, Real
from coplay.games.grammar import Grammar, OneOf
from coplay.games.solve import Strategy, table_strategy

Chances = Callable[[Observation, str], dict[str, float]]
"""From what a player sees, and his name, to the probability of each reply."""


def scripted_strategy(name: str, game: Game[Any], tree: GameTree, player: str) -> Strategy:
    """What the scripted agent `name` does in a seat, at each of its decisions in a game's tree.

    One that draws lots has its probabilities written down here; the others are seated and asked, after they were
    shown all that the player saw before.

    Raises:
        AgentGameError: if it has no rule for the game, or is of another library, whose agents do not say what they
            draw.
    """
    if name not in SCRIPTED:
        kind = "an agent of another library" if is_named(name) else "no scripted agent"
        raise AgentGameError(
            f"{name!r} is {kind}, whose probabilities are not known; expected one of coplay's own scripted agents"
        )
    sit = scripted_agent(name)
    chances = LOTS.get(name)
    table: dict[Information, Mapping[str, Real]] = {}
    known = decisions_of(tree, player)
    for information, decision in known.items():
        agent = sit(
            Seat(
                game=game.name,
                player=player,
                players=game.spec.players,
                episode="exact",
                seed=0,
                parameters=game.parameters,
            )
        )
        if chances is not None:
            table[information] = chances(decision.observation, player)
            continue
        for place in range(1, len(information), 2):
            _ask(agent, known[information[:place]])
        table[information] = {_ask(agent, decision): 1}
    return table_strategy(table)


def decisions_of(tree: GameTree, player: str) -> dict[Information, Decision]:
    """One decision for each information of a player; those with one information look alike to him."""
    found = {}
    for information, (index, *_) in tree.decisions(player).items():
        node = tree.nodes[index]
        assert isinstance(node, Decision)
        found[information] = node
    return found


def _ask(agent: Agent, decision: Decision) -> str:
    """The canonical reply of an agent that waits for nothing."""
    key = TurnKey(episode="exact", branch="", player=decision.player, step=decision.level[0])
    waiting = agent.reply(decision.observation, key)
    try:
        waiting.send(None)
    except StopIteration as answer:
        grammar = decision.observation.grammar
        said = grammar.parse(str(answer.value.text))
        return next(move for move in decision.moves if grammar.parse(move) == said)
    raise AssertionError("a scripted agent waited")


def _alike(moves: list[str]) -> dict[str, float]:
    return dict.fromkeys(moves, 1 / len(moves))


def _random(observation: Observation, player: str) -> dict[str, float]:
    return _any_move(observation.grammar)


def _any_move(grammar: Grammar) -> dict[str, float]:
    """Of several kinds of moves first the kind, then any move of it."""
    if isinstance(grammar, OneOf):
        share = 1 / len(grammar.names)
        kinds = [_any_move(grammar.option(name)) for name in grammar.names]
        return {reply: share * chance for kind in kinds for reply, chance in kind.items()}
    labels = grammar.labels()
    assert labels is not None, "a tree lists its moves"
    return _alike(list(labels))


def _kuhn(observation: Observation, player: str) -> dict[str, float]:
    rest, bet = _options(observation)
    chance = kuhn_bet_probability(observation.facts["card"], observation.facts["history"], KUHN_ALPHA)
    return {rest: 1 - chance, bet: chance}


def _minimax(observation: Observation, player: str) -> dict[str, float]:
    cells = best_cells("".join(observation.facts["board"]))
    return _alike([observation.grammar.write(str(cell + 1)) for cell in cells])


def _coins(moves: Callable[[Observation, str], list[int]]) -> Chances:
    def chances(observation: Observation, player: str) -> dict[str, float]:
        options = _options(observation)
        return _alike([options[move] for move in moves(observation, player)])

    return chances


def _options(observation: Observation) -> tuple[str, ...]:
    """The replies of a choice, canonical."""
    grammar = observation.grammar
    assert isinstance(grammar, Choice)
    return tuple(grammar.write(option) for option in grammar.options)


LOTS: dict[str, Chances] = {
    "random": _random,
    "kuhn_equilibrium": _kuhn,
    "minimax": _minimax,
    "coin_cooperator": _coins(cooperative_moves),
    "coin_greedy": _coins(greedy_moves),
}
"""The agents that draw lots."""
