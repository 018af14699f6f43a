"""`coplay play NAME|module:Class [--seats Ada=human,Bo=grim] [--out DIR] [--game.parameter value]`: watch or join."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from coplay.agents.desk import make_desk
from coplay.agents.tool_settings import ToolSettings
from coplay.games import make_game
from coplay.games.names import nearest
from coplay.rollout_tree import CollectPlan, RolloutTree, collect_sync, plan_episodes, write_rollouts
from coplay.rollout_tree.plan import episode_name
from coplay.rollout_tree.render import render_text
from coplay.rollout_tree.storage import parts
from coplay.scripts.entrants import contestant, trained_game
from coplay.scripts.own_games import use_game
from coplay.scripts.settings import parse_flags
from coplay.training.config import AgentsSettings
from coplay.training.messages import ConfigError, explain

USAGE = """coplay play NAME|module:Class [--seats PLAYER=AGENT ...] [--seed S] [--out DIR] [--game.parameter value]
            [--agents.tools.NAME.kind bm25 --agents.tools.NAME.corpus FILE ...]

AGENT is a scripted agent's name, axelrod:STRATEGY, human, or RUN[@iteration][:player]; seats not named are human.
A trained agent plays the game as it learnt it (wording, rounds, ...), but for what --game flags change.
--out keeps the game in DIR/rollouts, as one more iteration; coplay imitate learns from it.
Example: coplay play iterated_matrix --seats Ada=human Bo=tit_for_tat --game.num-rounds 5
"""


@dataclass(slots=True, kw_only=True)
class _Asked:
    """What the flags say."""

    seats: dict[str, str] = field(default_factory=dict)
    seed: int = 0
    out: Path | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    tools: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Who runs the tools that the game offers, as in a run's configuration."""


def main(arguments: Sequence[str]) -> int:
    """Play one game and print its transcript."""
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.stdout.write(USAGE)
        return 0 if arguments else 2
    name, asked = use_game(arguments[0]), _parse(arguments[1:])
    seats, seed = asked.seats, asked.seed
    game = make_game(name, **{**trained_game(seats.values(), name), **asked.parameters})
    players = game.spec.players
    for player in seats:
        if player not in players:
            raise ConfigError(
                f"--seats names {player!r}, but the players are {', '.join(players)}{nearest(player, players)}"
            )
    desk = make_desk(_checked(asked.tools))
    seated = {
        p: contestant(seats.get(p, "human"), game=name, player=p, run_seed=seed, tools=desk) for p in players
    }
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
    if asked.out is not None:
        _keep(trees[0], asked.out)
    return 0


def _parse(flags: Sequence[str]) -> _Asked:
    asked = _Asked()
    for path, value in parse_flags(flags):
        if path == ["seats"]:
            asked.seats = _parse_seats(value)
        elif path == ["seed"]:
            if not isinstance(value, int):
                raise ConfigError(f"--seed is {value!r}; expected a whole number")
            asked.seed = value
        elif path == ["out"]:
            asked.out = Path(str(value))
        elif path[0] == "game" and len(path) == 2:
            asked.parameters[path[1]] = value
        elif path[:2] == ["agents", "tools"] and len(path) == 4:
            asked.tools.setdefault(path[2], {})[path[3]] = value
        else:
            raise ConfigError(
                f"unknown flag '--{'.'.join(path)}'; expected --seats, --seed, --out, --game.parameter or"
                " --agents.tools.NAME.field"
            )
    return asked


def _checked(tools: dict[str, dict[str, Any]]) -> dict[str, ToolSettings]:
    try:
        return AgentsSettings.model_validate({"tools": tools}).tools
    except ValidationError as error:
        raise ConfigError(explain(error, AgentsSettings, prefix="agents")) from None


def _keep(tree: RolloutTree, folder: Path) -> None:
    """Store a game after those that are there."""
    stored = [number for number, _ in parts(folder, "episodes")] if (folder / "rollouts").is_dir() else []
    iteration = max(stored, default=-1) + 1
    write_rollouts(
        folder, iteration, [replace(tree, iteration=iteration, episode=episode_name(iteration, 0))]
    )


def _parse_seats(value: object) -> dict[str, str]:
    """`Ada=human Bo=grim` or `Ada=human,Bo=grim` to a mapping."""
    words = [str(part) for part in value] if isinstance(value, list) else [str(value)]
    pairs = [word for part in words for word in part.split(",") if word]
    if not all("=" in pair for pair in pairs):
        raise ConfigError(
            f"--seats is {' '.join(words)!r}; expected PLAYER=AGENT, e.g. Ada=human Bo=tit_for_tat"
        )
    return dict(pair.split("=", 1) for pair in pairs)
