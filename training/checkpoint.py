"""Checkpoints: weights, optimisers and the loop's state, written aside, renamed, and only then marked COMPLETE.

Holds no policy logic: what is saved comes as folders written by policies and as named tensors.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors.torch import save_file
from torch import Tensor

from coplay.agents.runs import COMPLETE, checkpoint_folders
from coplay.agents.weights import read_tensors

STATE_VERSION = 1


class CheckpointError(ValueError):
    """A checkpoint that cannot be used; the message says why and what to do."""


class LoopState(BaseModel):
    """What the loop must know to go on as if it had never stopped; everything else is a function of config and seed."""

    model_config = ConfigDict(extra="forbid")

    version: int = STATE_VERSION
    update: int
    """Number of updates done; the next iteration has this number."""
    policy_versions: dict[str, int]
    running_means: dict[str, tuple[list[float], list[float]]]
    kl_coefficients: dict[str, float] = {}
    """By policy, where a controller moves them."""
    best_update: int | None = None
    best_score: float | None = None
    history: list[dict[str, Any]] = []
    """Evaluations so far, as rows of the closing table."""


class Saved(Protocol):
    """What a checkpoint asks of a policy or critic."""

    def save(self, folder: Path) -> None:
        """Write all weights."""
        ...

    def load(self, folder: Path) -> None:
        """Read them back, strictly."""
        ...


def save_checkpoint(
    run_dir: Path,
    state: LoopState,
    *,
    policies: Mapping[str, Saved],
    critic: Saved | None,
    optimizers: Mapping[str, Mapping[str, Tensor]],
) -> Path:
    """Write `checkpoints/NNNNNN` so that it is either whole (holds COMPLETE) or ignored."""
    final = checkpoint_path(run_dir, state.update)
    aside = final.with_name(f".{final.name}.partial")
    for leftover in (aside, final):
        _delete(leftover)
    (aside / "optimizers").mkdir(parents=True)
    for name, policy in policies.items():
        policy.save(aside / "policies" / name)
    if critic is not None:
        critic.save(aside / "critic")
    for name, tensors in optimizers.items():
        save_file(dict(tensors), aside / "optimizers" / f"{name}.safetensors")
    (aside / "state.json").write_text(state.model_dump_json(indent=2), encoding="utf-8")
    (aside / COMPLETE).write_text("", encoding="utf-8")
    os.replace(aside, final)
    return final


def load_checkpoint(
    folder: Path, *, policies: Mapping[str, Saved], critic: Saved | None
) -> tuple[LoopState, dict[str, dict[str, Tensor]]]:
    """Restore weights in place; return the loop's state and the optimisers' tensors.

    Raises:
        CheckpointError: if the folder is not whole, of another version, or of another update or other policies.
        ValueError: if a file of tensors is damaged or does not fit.
    """
    state = read_state(folder)
    if folder != checkpoint_path(folder.parents[1], state.update):
        raise CheckpointError(
            f"{folder}/state.json is of update {state.update}; expected that of the folder's name"
        )
    if set(state.policy_versions) != set(policies):
        raise CheckpointError(
            f"{folder}/state.json has the policies {sorted(state.policy_versions)}; expected {sorted(policies)}:"
            " resume with the configuration that the run was started with"
        )
    for name, policy in policies.items():
        policy.load(folder / "policies" / name)
    if critic is not None:
        critic.load(folder / "critic")
    optimizers = {
        path.stem: read_tensors(path) for path in sorted((folder / "optimizers").glob("*.safetensors"))
    }
    return state, optimizers


def read_state(folder: Path) -> LoopState:
    """The loop's state of a whole checkpoint.

    Raises:
        CheckpointError: if the folder is not whole or of another version.
    """
    if not (folder / COMPLETE).is_file():
        raise CheckpointError(f"{folder} is no complete checkpoint (it holds no {COMPLETE}); use another one")
    try:
        state = LoopState.model_validate_json((folder / "state.json").read_bytes())
    except ValidationError as error:
        finding = error.errors(include_url=False)[0]
        where = ".".join(map(str, finding["loc"])) or "state.json"
        raise CheckpointError(f"{folder}/state.json cannot be read: {where}: {finding['msg']}") from None
    if state.version != STATE_VERSION:
        raise CheckpointError(f"{folder} has state version {state.version}; expected {STATE_VERSION}")
    return state


def checkpoint_path(run_dir: Path, update: int) -> Path:
    """Where the checkpoint after so many updates stands."""
    return run_dir / "checkpoints" / f"{update:06d}"


def complete_checkpoints(run_dir: Path) -> list[int]:
    """Update numbers of all whole checkpoints, ascending."""
    return sorted(checkpoint_folders(run_dir))


def prune_checkpoints(run_dir: Path, *, keep: int | None, protect: int | None) -> None:
    """Delete all but the newest `keep` whole checkpoints and the protected one."""
    if keep is None:
        return
    for update in complete_checkpoints(run_dir)[:-keep]:
        if update != protect:
            _delete(checkpoint_path(run_dir, update))


def _delete(folder: Path) -> None:
    """Take the mark away first, so that a crash in between never leaves half a checkpoint that counts as whole."""
    (folder / COMPLETE).unlink(missing_ok=True)
    if folder.exists():
        shutil.rmtree(folder)


def optimizer_tensors(optimizer: torch.optim.Optimizer, names: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """An optimiser's state as flat tensors `parameter name/slot`, so that moments find their parameter by name."""
    flat: dict[str, Tensor] = {}
    for name, parameter in names.items():
        for slot, value in optimizer.state.get(parameter, {}).items():
            flat[f"{name}/{slot}"] = torch.as_tensor(value).detach().contiguous().clone()
    return flat


def restore_optimizer(
    optimizer: torch.optim.Optimizer, names: Mapping[str, Tensor], flat: Mapping[str, Tensor]
) -> None:
    """Put saved moments back onto the parameters they belong to.

    Raises:
        CheckpointError: if a saved moment belongs to no parameter.
    """
    for key, value in flat.items():
        name, _, slot = key.rpartition("/")
        if name not in names:
            raise CheckpointError(
                f"the checkpoint holds optimiser state for {name!r}, which the policy has not;"
                " resume with the configuration that the run was started with"
            )
        parameter = names[name]
        on_device = value if slot == "step" else value.to(parameter.device)
        optimizer.state[parameter][slot] = on_device.clone()
