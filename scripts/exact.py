"""`coplay evaluate ENTRANT ... --exact`: what policies are worth in a game small enough to enumerate.

Nobody plays: probabilities are read once at every decision of the game's tree, and values, best responses and
agreements computed on it (`games/solve.py`, `games/agreements.py`).
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from rich.console import Console
from rich.table import Table

from coplay.agents.named import is_named
from coplay.agents.runs import Iteration, parse_entrant
from coplay.agents.scripted import SCRIPTED
from coplay.agents.scripted_strategies import scripted_strategy
from coplay.games import Game, make_game
from coplay.games.agreements import nash_bargaining_solution, pareto_front, welfare_maximum
from coplay.games.chance_outcomes import EnumerationError
from coplay.games.game_tree import MAX_NODES, GameTree, TooLargeError, game_tree
from coplay.games.names import nearest
from coplay.games.solve import Strategy, best_response, values
from coplay.scripts.entrants import is_run, run_folder
from coplay.scripts.own_games import use_game
from coplay.training.evaluate_settings import SELF_PLAY
from coplay.training.messages import ConfigError
from coplay.training.seats import check_plays
from coplay.training.stored_config import read_config


class ExactResult(BaseModel):
    """Entrants in all seats: expected returns of a whole game, rewards as the game pays them, undiscounted."""

    entrant: str
    opponent: str
    """Who sits in the other seats; `self-play`: the entrant's own seating."""
    seats: dict[str, str]
    """By player, who holds the seat."""
    own: tuple[str, ...]
    """The entrant's players."""
    values: dict[str, float]
    """By player, what he gets."""
    best_responses: dict[str, float]
    """By player, what he could get at most while the others stay."""
    nash_conv: float
    """Sum over players of what each could gain; 0 in equilibrium."""
    exploitability: float | None
    """Half of it in a zero-sum game of two; None elsewhere, where gains are to be read player by player."""


class ExactReport(BaseModel):
    """Everything that one call says."""

    game: dict[str, Any]
    """Kind and parameters."""
    nodes: int
    """Of the tree."""
    welfare: float
    """The greatest expected sum of rewards, if one who sees everything moved for all."""
    pareto_front: list[tuple[float, float]] | None
    """Corners, of two players whose interests are not opposed; None otherwise."""
    disagreement: tuple[float, float] | None
    nash_bargaining: tuple[float, float] | None
    """The point of the front with the greatest product of gains over the disagreement."""
    results: list[ExactResult]


@dataclass(frozen=True, slots=True)
class Seated:
    """Someone who can hold seats."""

    label: str
    strategy: Callable[[GameTree, str], Strategy]


@dataclass(frozen=True, slots=True)
class Entrant:
    """Whoever a word names, seat by seat."""

    name: str
    home: Mapping[str, Seated]
    own: tuple[str, ...]


def evaluate_exactly(
    entrants: Sequence[str],
    *,
    against: Sequence[str],
    changes: Mapping[str, Any],
    disagreement: tuple[float, float] = (0.0, 0.0),
    max_nodes: int = MAX_NODES,
) -> ExactReport:
    """Every entrant in its own seating, and each of its seats among each opponent.

    Args:
        entrants: runs and scripted agents.
        against: opponents, runs or scripted agents.
        changes: parameters of the game, `kind` among them, over those of the first run named.
        disagreement: what both get without an agreement, for the Nash bargaining solution.
        max_nodes: of the tree.

    Raises:
        ConfigError: if no game is named, it is too large or cannot be enumerated, or somebody cannot play it.
    """
    game = _game([*entrants, *against], changes)
    try:
        tree = game_tree(game, max_nodes=max_nodes)
    except TooLargeError:
        raise ConfigError(
            f"--exact lists every play, and game {game.name!r} has more than {max_nodes} nodes; expected a smaller game"
            " (--game.parameter value, such as --game.num-rounds 2) or a larger --max-nodes"
        ) from None
    except EnumerationError as error:
        raise ConfigError(f"--exact lists every play: {error}") from None
    known = {text: _entrant(text, game) for text in dict.fromkeys([*entrants, *against])}
    told: dict[tuple[int, str], Strategy] = {}

    def strategy(seated: Seated, player: str) -> Strategy:
        place = (id(seated), player)
        if place not in told:
            told[place] = seated.strategy(tree, player)
        return told[place]

    results = []
    for text in dict.fromkeys(entrants):
        entrant = known[text]
        seatings = [(SELF_PLAY, entrant.own, dict(entrant.home))]
        for other in dict.fromkeys(against):
            for player in entrant.own:
                seats = {**known[other].home, player: entrant.home[player]}
                seatings.append((other, (player,), seats))
        for opponent, own, seats in seatings:
            strategies = {player: strategy(seated, player) for player, seated in seats.items()}
            labels = {player: seated.label for player, seated in seats.items()}
            results.append(_result(game, tree, strategies, (text, opponent), labels, own))
    return _report(game, tree, results, disagreement)


def _result(
    game: Game[Any],
    tree: GameTree,
    strategies: Mapping[str, Strategy],
    names: tuple[str, str],
    labels: dict[str, str],
    own: tuple[str, ...],
) -> ExactResult:
    worth = {player: float(value) for player, value in values(tree, strategies).items()}
    best = {player: float(best_response(tree, player, strategies).value) for player in tree.players}
    total = sum(best[player] - worth[player] for player in tree.players)
    opposed = game.spec.zero_sum and len(tree.players) == 2
    return ExactResult(
        entrant=names[0],
        opponent=names[1],
        seats=labels,
        own=own,
        values=worth,
        best_responses=best,
        nash_conv=total,
        exploitability=total / 2 if opposed else None,
    )


def _report(
    game: Game[Any], tree: GameTree, results: list[ExactResult], disagreement: tuple[float, float]
) -> ExactReport:
    front, bargain = None, None
    if len(tree.players) == 2 and not game.spec.zero_sum:
        front = [(float(x), float(y)) for x, y in pareto_front(tree)]
        try:
            point = nash_bargaining_solution(tuple(front), disagreement)
        except EnumerationError as error:
            raise ConfigError(f"--disagreement {disagreement[0]} {disagreement[1]}: {error}") from None
        bargain = (float(point[0]), float(point[1]))
    return ExactReport(
        game=game.parameters.model_dump(mode="json"),
        nodes=len(tree.nodes),
        welfare=float(welfare_maximum(tree)),
        pareto_front=front,
        disagreement=None if front is None else disagreement,
        nash_bargaining=bargain,
        results=results,
    )


def _game(entrants: Sequence[str], changes: Mapping[str, Any]) -> Game[Any]:
    """That of the runs among the entrants, with changes; without a run, what the changes say."""
    runs = [text for text in entrants if not is_named(text) and is_run(parse_entrant(text)[0])]
    rules: dict[str, Any] = {}
    for text in runs:
        played = read_config(run_folder(parse_entrant(text)[0])).game.model_dump()
        differing = [name for name in ("kind", "wording") if rules and rules.get(name) != played.get(name)]
        if differing:
            raise ConfigError(
                f"{text!r} was trained with game.{differing[0]} {played.get(differing[0])!r}; expected"
                f" {rules.get(differing[0])!r}, as {runs[0]!r} was"
            )
        rules = rules or played
    if "kind" in changes:
        changes = {**changes, "kind": use_game(str(changes["kind"]))}
        rules = rules if changes["kind"] == rules.get("kind") else {}
    rules = {**rules, **changes}
    if "kind" not in rules:
        raise ConfigError(
            f"{list(entrants)!r} names no run, so no game; expected a run among them, or --game.kind NAME"
        )
    kind = rules.pop("kind")
    return make_game(kind, **rules)


def _entrant(text: str, game: Game[Any]) -> Entrant:
    players = game.spec.players
    if is_named(text):
        check_plays(text, game.name, "--exact")
        seated = Seated(text, lambda tree, player: scripted_strategy(text, game, tree, player))
        return Entrant(text, dict.fromkeys(players, seated), players)
    run, iteration, named = parse_entrant(text)
    if not is_run(run):
        raise ConfigError(
            f"{text!r} is no scripted agent and no run; expected RUN[@iteration][:player] or one of"
            f" {', '.join(SCRIPTED)}{nearest(text, SCRIPTED)}"
        )
    config = read_config(run_folder(run))
    agents = dict.fromkeys(players, named) if named in config.agents.policies else config.seats()
    seats = {agent: _holder(run, iteration, str(agent), game) for agent in dict.fromkeys(agents.values())}
    own = tuple(player for player, agent in agents.items() if agent in config.agents.policies)
    if named is not None and named not in config.agents.policies:
        own = tuple(player for player in own if player == named)
    if not own:
        raise ConfigError(
            f"{text!r} names no policy's seat; expected one of {[*config.agents.policies, *players]!r}"
        )
    return Entrant(text, {player: seats[agent] for player, agent in agents.items()}, own)


def _holder(run: str, iteration: Iteration, agent: str, game: Game[Any]) -> Seated:
    """A policy of a run, or the scripted agent that held a seat in it."""
    if is_named(agent):
        return Seated(agent, lambda tree, player: scripted_strategy(agent, game, tree, player))
    from coplay.agents.loading import load_agent
    from coplay.agents.policy_strategies import policy_strategy

    loaded = load_agent(run, agent, iteration=iteration)
    return Seated(
        loaded.policy.label,
        lambda tree, player: policy_strategy(loaded.policy, loaded.sampling, tree, player),
    )


def print_exactly(report: ExactReport) -> None:
    """One line for each player of each seating, and below what could be agreed on."""
    table = Table(title=f"{report.game['kind']}, {report.nodes} nodes: expected return of a game, exactly")
    for heading in ("entrant", "opponent", "player", "seat held by", "value", "best response", "gain"):
        table.add_column(
            heading, justify="right" if heading in ("value", "best response", "gain") else "left"
        )
    lines = []
    for result in report.results:
        for place, player in enumerate(result.values):
            worth, best = result.values[player], result.best_responses[player]
            names = (result.entrant, result.opponent) if place == 0 else ("", "")
            cells = (f"{worth:.6g}", f"{best:.6g}", f"{best - worth:.6g}")
            table.add_row(*names, player, result.seats[player], *cells)
        measure = (
            f"NashConv {result.nash_conv:.6g}"
            if result.exploitability is None
            else f"exploitability {result.exploitability:.6g}"
        )
        where = "" if result.opponent == SELF_PLAY else f" as {' and '.join(result.own)}"
        lines.append(f"{result.entrant}{where}, {result.opponent}: {measure}")
    if report.pareto_front is not None and report.nash_bargaining is not None:
        corners = ", ".join(f"({x:.6g}, {y:.6g})" for x, y in report.pareto_front)
        first, second = report.nash_bargaining
        lines.append(f"Pareto front: {corners}")
        lines.append(f"Nash bargaining solution from {report.disagreement}: ({first:.6g}, {second:.6g})")
    lines.append(f"greatest sum of returns: {report.welfare:.6g}")
    console = Console(file=sys.stdout, width=120, markup=False, emoji=False, highlight=False)
    console.print(table)
    console.print("\n".join(lines), soft_wrap=True)
