"""`coplay games [NAME|module:Class]`: what can be played, and with which parameters."""

import inspect
import sys
from collections.abc import Sequence

from coplay.agents.named import named_players
from coplay.games import available_games, make_game
from coplay.games.registry import game_class
from coplay.scripts.own_games import use_game


def main(arguments: Sequence[str]) -> int:
    """List all games, or describe one."""
    if arguments and arguments[0] not in ("-h", "--help"):
        sys.stdout.write(describe(use_game(arguments[0])))
        return 0
    lines = [f"{name:<18} {_first_line(name)}" for name in available_games()]
    sys.stdout.write("\n".join(lines) + "\n\ncoplay games NAME|module:Class describes one.\n")
    return 0


def describe(name: str) -> str:
    """A game's players, length and parameters."""
    spec = make_game(name).spec
    lines = [
        f"{name}: {_first_line(name)}",
        f"players {', '.join(spec.players)}; at most {spec.max_steps} steps; rewards a step in {spec.reward_range};"
        f" chance {spec.has_chance}, rounds {spec.has_rounds}, zero-sum {spec.zero_sum}, symmetric {spec.symmetric}",
        f"a reply that is no move {spec.malformed_rule.consequence}; retries {spec.malformed_rule.retries}",
        f"agents without weights that play it: {', '.join(named_players(name))}",
        "parameters (flags of coplay train and play as --game.NAME VALUE; None is null there):",
    ]
    for field, info in game_class(name).Parameters.model_fields.items():
        if field != "kind":
            lines.append(
                f"  {field} = {info.get_default(call_default_factory=True)!r}  {info.description or ''}"
            )
    return "\n".join(lines) + "\n"


def _first_line(name: str) -> str:
    return (inspect.getdoc(game_class(name)) or "").partition("\n")[0]
