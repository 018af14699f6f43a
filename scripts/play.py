"""`coplay play NAME|module:Class [--seats Ada=human,Bo=grim] [--game.parameter value]`: watch, or sit in."""

import sys
from collections.abc import Sequence

from coplay.games import make_game
from coplay.games.names import nearest
from coplay.rollout_tree import CollectPlan, collect_sync, plan_episodes
from coplay.rollout_tree.render import render_text
from coplay.scripts.entrants import contestant, trained_game
from coplay.scripts.own_games import use_game
from coplay.scripts.settings import parse_flags
from coplay.training.messages import ConfigError

USAGE = """coplay play NAME|module:Class [--seats PLAYER=AGENT ...] [--seed S] [--game.parameter value]

AGENT is a scripted agent's name, axelrod:STRATEGY, human, or RUN[@iteration][:player]; seats not named are human.
A trained agent plays the game as it learnt it (wording, rounds, ...), but for what --game flags change.
Example: coplay play iterated_matrix --seats Ada=human Bo=tit_for_tat --game.num-rounds 5
"""


def main(arguments: Sequence[str]) -> int:
    """Play one game and print its transcript."""
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.stdout.write(USAGE)
        return 0 if arguments else 2
    name, seats, seed, parameters = use_game(arguments[0]), {}, 0, {}
    for path, value in parse_flags(arguments[1:]):
        if path == ["seats"]:
            seats = _parse_seats(value)
        elif path == ["seed"]:
            if not isinstance(value, int):
                raise ConfigError(f"--seed is {value!r}; expected a whole number")
            seed = value
        elif path[0] == "game" and len(path) == 2:
            parameters[path[1]] = value
        else:
            raise ConfigError(
                f"unknown flag '--{'.'.join(path)}'; expected --seats, --seed or --game.parameter"
            )
    game = make_game(name, **{**trained_game(seats.values(), name), **parameters})
    players = game.spec.players
    for player in seats:
        if player not in players:
            raise ConfigError(
                f"--seats names {player!r}, but the players are {', '.join(players)}{nearest(player, players)}"
            )
    seated = {p: contestant(seats.get(p, "human"), game=name, player=p, run_seed=seed) for p in players}
    episodes = plan_episodes(
        game,
        run_seed=seed,
        iteration=0,
        num_groups=1,
        group_size=1,
        seats={player: who.factory for player, who in seated.items()},
        seat_names={player: who.label for player, who in seated.items()},
    )
    trees = collect_sync(CollectPlan(game=game, episodes=episodes))
    sys.stdout.write(render_text(trees[0]))
    return 0


def _parse_seats(value: object) -> dict[str, str]:
    """`Ada=human Bo=grim` or `Ada=human,Bo=grim` to a mapping."""
    words = [str(part) for part in value] if isinstance(value, list) else [str(value)]
    pairs = [word for part in words for word in part.split(",") if word]
    if not all("=" in pair for pair in pairs):
        raise ConfigError(
            f"--seats is {' '.join(words)!r}; expected PLAYER=AGENT, e.g. Ada=human Bo=tit_for_tat"
        )
    return dict(pair.split("=", 1) for pair in pairs)
