"""Where finished weights lie in a run folder; the notation `RUN[@iteration][:player]`. No torch here.

`RUN@best` is the checkpoint that evaluations (of an imitation: validation) found best.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from coplay.games import nearest

Iteration = int | Literal["best"] | None
"""Which checkpoint: after so many updates, the best one, or the newest."""
BEST: Literal["best"] = "best"
COMPLETE = "COMPLETE"
_NUMBER = re.compile(r"[0-9]{6}|[1-9][0-9]{6,}")
"""How `checkpoints/NNNNNN` is written; a copy of another name is none of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One complete checkpoint of a run."""

    run: Path
    iteration: int
    folder: Path

    def version(self, name: str) -> int:
        """How often a policy had been updated.

        Raises:
            ValueError: if the checkpoint's state is damaged.
        """
        path = self.folder / "state.json"
        versions = read_object(path).get("policy_versions")
        version = versions.get(name, self.iteration) if isinstance(versions, dict) else None
        if not isinstance(version, int):
            raise ValueError(
                f"'{path}' is damaged: it has no version of policy {name!r}; use another checkpoint"
            )
        return version

    def policy(self, name: str) -> Path:
        """The folder of a policy's weights.

        Raises:
            ValueError: if the checkpoint has none of this name.
        """
        folder = self.folder / "policies" / name
        if not folder.is_dir():
            held = sorted(path.name for path in self.folder.glob("policies/*") if path.is_dir())
            raise ValueError(
                f"{str(self.folder)!r} holds no policy {name!r}; expected one of {held!r}{nearest(name, held)}"
            )
        return folder


def find_run(run: str | Path) -> Path:
    """The folder of a run, given as a path or by its name inside `runs/`.

    Raises:
        ValueError: if there is none.
    """
    for folder in (Path(run), Path("runs") / run):
        if (folder / "config.json").is_file():
            return folder
    known = sorted(path.parent.name for path in Path("runs").glob("*/config.json"))
    raise ValueError(
        f"{str(run)!r} is no run folder; expected a folder with a config.json, or one of {known!r} in 'runs'"
        f"{nearest(str(run), known)}"
    )


def checkpoint_folders(run: Path) -> dict[int, Path]:
    """The folders of all complete checkpoints by their number of updates, in no order."""
    marks = (run / "checkpoints").glob(f"*/{COMPLETE}")
    return {int(mark.parent.name): mark.parent for mark in marks if _NUMBER.fullmatch(mark.parent.name)}


def find_checkpoint(run: str | Path, iteration: Iteration = None) -> Checkpoint:
    """The complete checkpoint of an iteration, the best one that the newest knows of, or the newest.

    Raises:
        ValueError: if the run has no such checkpoint.
    """
    folder = find_run(run)
    found = checkpoint_folders(folder)
    wanted = max(found, default=None) if iteration in (None, BEST) else iteration
    if iteration == BEST and wanted is not None:
        wanted = read_object(found[int(wanted)] / "state.json").get("best_update")
        if wanted is None:
            raise ValueError(
                f"run {str(folder)!r} has no best checkpoint, since nothing was evaluated; expected one of"
                f" {sorted(found)!r}"
            )
    if wanted is None or wanted not in found:
        raise ValueError(
            f"run {str(folder)!r} has no complete checkpoint"
            + ("" if wanted is None else f" of iteration {wanted}")
            + f"; expected one of {sorted(found)!r}"
        )
    return Checkpoint(run=folder, iteration=wanted, folder=found[wanted])


def read_config(run: str | Path) -> dict[str, Any]:
    """The resolved configuration that a run saved."""
    return read_object(find_run(run) / "config.json")


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        ValueError: if there is none in it.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"'{path}' is no JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"'{path}' holds {str(content)[:80]!r}; expected a JSON object")
    return content


def policy_of(config: dict[str, Any], player: str) -> str:
    """The policy in a player's seat; a policy's own name is taken as well.

    Raises:
        ValueError: if no policy sits there.
    """
    agents = config["agents"]
    policies = sorted(agents["policies"])
    seated = agents.get("seats", {}).get(player, player)
    if seated not in policies:
        known = sorted({*agents.get("seats", {}), *policies})
        raise ValueError(
            f"no policy plays {player!r} in this run (found {seated!r}); expected a player or policy of"
            f" {known!r}{nearest(player, known)}"
        )
    return str(seated)


def parse_entrant(text: str) -> tuple[str, Iteration, str | None]:
    """Split `RUN[@iteration][:player]`.

    Raises:
        ValueError: if the iteration is no whole number and not `best`.
    """
    rest, colon, player = text.rpartition(":")
    rest, player = (rest, player) if colon else (text, "")
    run, at, iteration = rest.rpartition("@")
    if not at:
        run, iteration = rest, ""
    if at and iteration != BEST and not iteration.isdecimal():
        raise ValueError(
            f"{text!r} names iteration {iteration!r}; expected RUN[@iteration][:player], 'pd@50:bo' or 'pd@best'"
        )
    if iteration == BEST:
        return run, BEST, player or None
    return run, int(iteration) if iteration else None, player or None


def find_policy_folder(entrant: str) -> Path:
    """The weights that an entrant `RUN[@iteration][:player]` names.

    Raises:
        ValueError: if the run, checkpoint or player is missing, or the player is needed and not given.
    """
    checkpoint, name = _find_policy(entrant)
    return checkpoint.policy(name)


def pin_entrant(entrant: str) -> str:
    """The same weights as `RUN@iteration:policy`: named so, they stay the same when the run goes on.

    Raises:
        ValueError: as `find_policy_folder`.
    """
    checkpoint, name = _find_policy(entrant)
    return f"{checkpoint.run}@{checkpoint.iteration}:{name}"


def _find_policy(entrant: str) -> tuple[Checkpoint, str]:
    run, iteration, player = parse_entrant(entrant)
    config = read_config(run)
    policies = sorted(config["agents"]["policies"])
    if player is None and len(policies) != 1:
        raise ValueError(f"{entrant!r} has policies {policies!r}; expected RUN:player to say which")
    name = policies[0] if player is None else policy_of(config, player)
    return find_checkpoint(run, iteration), name
