"""The payoff matrix of `coplay evaluate A B C --matrix`: whoever is named, in the game of the runs among them."""

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from coplay.agents.runs import parse_entrant
from coplay.scripts.entrants import HUMAN, contestant, is_run, run_folder
from coplay.training.evaluate import Contestant
from coplay.training.messages import ConfigError
from coplay.training.payoffs import Entrant, PayoffMatrix, payoff_matrix, record_payoffs
from coplay.training.stored_config import read_config


def evaluate_matrix(
    entrants: Sequence[str], *, against: Sequence[str] | None, games: int, seed: int
) -> PayoffMatrix:
    """Play every entrant against every other, or against those named, and keep the table with each run.

    Raises:
        ConfigError: if no entrant is a run, or the runs do not play the same game in the same wording.
    """
    rows, columns = list(dict.fromkeys(entrants)), list(dict.fromkeys(against or entrants))
    everyone = list(dict.fromkeys([*rows, *columns]))
    runs = {text: run_folder(parse_entrant(text)[0]) for text in everyone if is_run(parse_entrant(text)[0])}
    if not runs:
        raise ConfigError(f"{everyone!r} names no run; expected at least one, whose game is played")
    if HUMAN in everyone:
        raise ConfigError(
            f"{everyone!r} names {HUMAN!r}; expected agents that play {games} games by themselves"
        )
    configs = {text: read_config(folder) for text, folder in runs.items()}
    first, *others = configs
    played = configs[first].game.model_dump()
    for text in others:
        rules = configs[text].game.model_dump()
        differing = [name for name in ("kind", "wording") if rules.get(name) != played.get(name)]
        if differing:
            raise ConfigError(
                f"{text!r} was trained with game.{differing[0]} {rules.get(differing[0])!r}; expected"
                f" {played.get(differing[0])!r}, as {first!r} was"
            )
    game = configs[first].make_game()
    names = _names(everyone)
    seated = {names[text]: _entrant(text, game.name, game.spec.players, seed) for text in everyone}
    matrix = payoff_matrix(
        game,
        {names[text]: seated[names[text]] for text in rows},
        {names[text]: seated[names[text]] for text in columns},
        games=games,
        seed=seed,
    )
    for folder in dict.fromkeys(runs[text].resolve() for text in rows if text in runs):
        record_payoffs(folder, matrix)
    return matrix


def _names(entrants: Sequence[str]) -> dict[str, str]:
    """Runs by the name of their folder where that tells them apart, else as they were asked for."""
    short = {}
    for text in entrants:
        run = parse_entrant(text)[0]
        short[text] = run_folder(run).resolve().name + text[len(run) :] if is_run(run) else text
    shown = list(short.values())
    return {text: name if shown.count(name) == 1 else text for text, name in short.items()}


def _entrant(text: str, game: str, players: Sequence[str], seed: int) -> Entrant:
    """In each seat the named policy; of a run that has several and none named, the one of that seat."""
    run, iteration, named = parse_entrant(text)
    if not is_run(run):
        return {player: contestant(text, game=game, player=player, run_seed=seed) for player in players}
    config = read_config(run_folder(run))
    seats, policies = config.seats(), config.agents.policies
    at = "" if iteration is None else f"@{iteration}"
    chosen = {
        player: named or (home if (home := seats.get(player)) in policies else next(iter(policies)))
        for player in players
    }
    loaded: dict[str, Contestant] = {}
    for player, policy in chosen.items():
        if policy not in loaded:
            loaded[policy] = contestant(f"{run}{at}:{policy}", game=game, player=player, run_seed=seed)
    return {player: loaded[policy] for player, policy in chosen.items()}


def print_matrix(matrix: PayoffMatrix) -> None:
    """The row's mean return a round with its 95 % interval, self-play marked, and the least of each row."""
    table = Table(
        title=f"{matrix.game}: what the row earns against the column a round, mean [95 % bootstrap interval]",
        caption="* self-play",
        show_lines=True,
    )
    table.add_column("")
    for heading in [*matrix.columns, "row minimum"]:
        table.add_column(heading, justify="right")
    for name, cells, least in zip(matrix.rows, matrix.cells, matrix.least(), strict=True):
        shown = [
            f"{cell.pay.mean:.2f}{'*' if cell.self_play else ''}\n[{cell.pay.low:.2f}, {cell.pay.high:.2f}]"
            for cell in cells
        ]
        table.add_row(name, *shown, f"{cells[least].pay.mean:.2f}\nagainst {matrix.columns[least]}")
    width = max(110, 22 * (len(matrix.columns) + 2))
    Console(file=sys.stdout, width=width, markup=False, emoji=False).print(table)
