"""`coplay evaluate RUN[@iteration|@best][:player] ... [--against a,b,c] [--matrix | --exact] [--games N]`."""

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn, get_args

from rich.console import Console
from rich.table import Table

from coplay.agents.desk import make_desk
from coplay.agents.runs import parse_entrant
from coplay.games.game_tree import MAX_NODES
from coplay.games.names import nearest
from coplay.scripts.cross_play import evaluate_matrix, print_matrix
from coplay.scripts.entrants import contestant, run_folder
from coplay.scripts.exact import evaluate_exactly, print_exactly
from coplay.scripts.settings import parse_flags
from coplay.training.evaluate import Contestant, Result, evaluate, pairings
from coplay.training.evaluate_settings import Way
from coplay.training.examination import temperature_of, told
from coplay.training.messages import ConfigError
from coplay.training.seats import may_play
from coplay.training.stored_config import read_config


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """How trained agents draw their replies."""

    ways: tuple[Way, ...] = ("temperature",)
    temperature: float | None = None
    samples: int = 1


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, as the other commands do."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message} (coplay evaluate --help tells more)")


def main(arguments: Sequence[str]) -> int:
    """Evaluate trained runs and print one table for each."""
    parser = _parser()
    words, flags = _game_flags(arguments)
    asked = parser.parse_args(words)
    if flags and not asked.exact:
        parser.error(
            f"unrecognized arguments: {' '.join(flags)}; --game.NAME goes with --exact only (games in the run's"
            " [[evaluate.held_out]] are played beside its own)"
        )
    against = asked.against.split(",") if asked.against else None
    drawing = _drawing(asked.sampling, asked.temperature, asked.samples)
    if drawing != Drawing() and (asked.exact or asked.matrix):
        raise ConfigError(
            "--matrix and --exact take policies as they are; expected no --sampling, --temperature, --samples"
        )
    found: object
    if asked.exact:
        report = evaluate_exactly(
            asked.runs,
            against=against or (),
            changes={".".join(path[1:]): value for path, value in parse_flags(flags)},
            disagreement=tuple(asked.disagreement),
            max_nodes=asked.max_nodes,
        )
        print_exactly(report)
        found = report.model_dump(mode="json")
    elif asked.matrix:
        matrix = evaluate_matrix(asked.runs, against=against, games=asked.games, seed=asked.seed)
        print_matrix(matrix)
        found = matrix.model_dump()
    else:
        found = _evaluate_each(
            asked.runs, against=against, games=asked.games, seed=asked.seed, drawing=drawing
        )
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return 0


def _parser() -> _Parser:
    parser = _Parser(prog="coplay evaluate", description=__doc__)
    parser.add_argument(
        "runs", nargs="+", metavar="RUN[@iteration][:player]", help="run folders or names in runs/"
    )
    parser.add_argument(
        "--against", default=None, help="opponents, by comma (default: the run's anchors; with --exact none)"
    )
    parser.add_argument(
        "--games", type=_at_least(1), default=128, help="games per pairing and seat (default 128)"
    )
    parser.add_argument(
        "--seed", type=_at_least(0), default=0, help="seed of the evaluation's luck (default 0)"
    )
    parser.add_argument(
        "--sampling",
        default="temperature",
        help="temperature, greedy, or both by comma (default temperature)",
    )
    parser.add_argument(
        "--temperature", type=float, default=None, help="in place of that of training, above 0"
    )
    parser.add_argument(
        "--samples",
        type=_at_least(1),
        default=1,
        help="plays of each game when drawn by temperature (default 1)",
    )
    parser.add_argument("--json", type=Path, default=None, help="write the results there as well")
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument(
        "--matrix",
        action="store_true",
        help="one table of who earns what against whom, kept in each run's folder for its page; scripted agents"
        " can be rows too, and without --against the rows are the columns",
    )
    forms.add_argument(
        "--exact",
        action="store_true",
        help="values, best responses and exploitability from the whole tree of a small game, in place of playing;"
        " scripted agents can be entrants too, --game.kind NAME and --game.parameter VALUE (after the entrants) say"
        " which game or change that of the runs",
    )
    parser.add_argument(
        "--max-nodes", type=_at_least(1), default=MAX_NODES, help=f"of --exact's tree (default {MAX_NODES})"
    )
    parser.add_argument(
        "--disagreement",
        type=float,
        nargs=2,
        default=(0.0, 0.0),
        metavar="RETURN",
        help="what each gets without a deal, for --exact's Nash bargaining solution (default 0 0)",
    )
    return parser


def _evaluate_each(
    entrants: Sequence[str], *, against: Sequence[str] | None, games: int, seed: int, drawing: Drawing
) -> dict[str, list[dict[str, object]]]:
    found = {}
    for entrant in entrants:
        results = evaluate_entrant(entrant, against=against, games=games, seed=seed, drawing=drawing)
        found[entrant] = [result.model_dump(exclude_defaults=True) for result in results]
        print_results(entrant, results)
    return found


def _game_flags(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """All other words, and the flags `--game.parameter` with their values."""
    words: list[str] = []
    flags: list[str] = []
    inside = False
    for word in arguments:
        inside = word.startswith("--game.") or (inside and not word.startswith("--"))
        (flags if inside else words).append(word)
    return words, flags


def _at_least(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"is {value}; expected {least} or more")
        return value

    number.__name__ = "int"  # as argparse calls it
    return number


def _drawing(sampling: str, temperature: float | None, samples: int) -> Drawing:
    words, known = sampling.split(","), {str(way): way for way in get_args(Way)}
    if not set(words) <= set(known) or len(set(words)) != len(words):
        raise ConfigError(f"--sampling is {sampling!r}; expected {' or '.join(known)}, or both by comma")
    ways = tuple([known[word] for word in words])
    if temperature is not None and not 0 < temperature < math.inf:
        raise ConfigError(f"--temperature is {temperature}; expected a number above 0, or --sampling greedy")
    return Drawing(ways=ways, temperature=temperature, samples=samples)


def evaluate_entrant(
    entrant: str,
    *,
    against: Sequence[str] | None,
    games: int,
    seed: int,
    drawing: Drawing = Drawing(),
) -> list[Result]:
    """Self-play and play against each named opponent, in the entrant's own game.

    In a mixture, in each of its parts and in what is held out, where the opponent has rules for them.
    """
    results = []
    for way in drawing.ways:
        temperature = temperature_of(way, drawing.temperature)
        samples = 1 if way == "greedy" else drawing.samples
        found = _evaluate_entrant(
            entrant, against=against, games=games, seed=seed, temperature=temperature, samples=samples
        )
        results += [result.model_copy(update={"sampling": told(way)}) for result in found]
    return results


def _evaluate_entrant(
    entrant: str,
    *,
    against: Sequence[str] | None,
    games: int,
    seed: int,
    temperature: float | None,
    samples: int,
) -> list[Result]:
    run, iteration, named = parse_entrant(entrant)
    folder = run_folder(run)
    config = read_config(folder)
    game, seats = config.make_game(), config.seats()
    at = "" if iteration is None else f"@{iteration}"
    loaded: dict[str, Contestant] = {}
    desk = make_desk(config.agents.tools)

    def seated(agent: str, player: str) -> Contestant:
        if agent not in config.agents.policies:
            return contestant(agent, game=game.name, player=player, run_seed=seed, tools=desk)
        if agent not in loaded:
            loaded[agent] = contestant(
                f"{folder}{at}:{agent}", game=game.name, player=player, run_seed=seed, temperature=temperature
            )
        return loaded[agent]

    home = {player: seated(agent, player) for player, agent in seats.items()}
    own = {
        player: home[player]
        for player, agent in seats.items()
        if agent in config.agents.policies and config.agents.policies[agent].trained
    }
    if named is not None:
        chosen = {player: who for player, who in own.items() if named in (player, seats[player])}
        if not chosen:
            known = sorted({*own, *(seats[player] for player in own)})
            raise ConfigError(
                f"{entrant!r} names {named!r}; expected a trained player or policy of the run, one of {known!r}"
                f"{nearest(named, known)}"
            )
        own = chosen
    names = config.evaluate.anchors if against is None else against
    first = game.spec.players[0]
    asked = config.exams()
    anchors = []
    for name in dict.fromkeys(names):
        kind = next((exam.kind for exam in asked if may_play(name, exam.kind)), game.name)
        anchor = contestant(name, game=kind, player=first, run_seed=seed, temperature=temperature, tools=desk)
        anchors.append(replace(anchor, name=name))
    results = []
    for exam in asked:
        able = [anchor for anchor in anchors if may_play(anchor.name, exam.kind)]
        met = pairings(game.spec.players, own, home, able)
        found = evaluate(exam.games, met, games=games, seed=seed, samples=samples)
        results += [result.model_copy(update={"game": exam.name}) for result in found]
    return results


def print_results(title: str, results: Sequence[Result]) -> None:
    """One table: returns a tick with 95 % intervals over games, cooperation, malformed share."""
    table = Table(title=f"{title}: mean [95 % bootstrap interval over games], return per round")
    extra = [name for name in ("game", "sampling", "source") if any(getattr(one, name) for one in results)]
    samples = max(result.samples for result in results)
    for heading in (
        *extra,
        "opponent",
        "own return",
        *[f"best of {samples}"] * (samples > 1),
        "opponent's return",
        "cooperation",
        "malformed",
        "games",
        "failed",
    ):
        table.add_column(heading, justify="left" if heading in (*extra, "opponent") else "right")
    for result in results:
        table.add_row(
            *[getattr(result, name) for name in extra],
            result.opponent,
            str(result.own),
            *[str(result.best_of or "")] * (samples > 1),
            str(result.other) if result.other else "",
            str(result.cooperation) if result.cooperation else "",
            f"{result.malformed:.3f}",
            str(result.games),
            str(result.failed),
        )
    Console(file=sys.stdout, width=110, markup=False, emoji=False).print(table)
