"""Which weights policies started from: a run that goes on must find its references the same (law 8)."""

import hashlib
from pathlib import Path

from coplay.agents.runs import find_policy_folder
from coplay.training.config import RunConfig
from coplay.training.environment import recorded
from coplay.training.messages import ConfigError

STARTS = "starts"
"""Where a run's `environment.json` keeps them."""


def start_digests(config: RunConfig) -> dict[str, str]:
    """Digest of the weights that each policy starts from, by policy; none for fresh ones."""
    found = {}
    for name, policy in config.agents.policies.items():
        if policy.start is None:
            continue
        digest = hashlib.blake2b(digest_size=8)
        for path in sorted(find_policy_folder(policy.start).glob("*.safetensors")):
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "blake2b").digest())
        found[name] = digest.hexdigest()
    return found


def check_starts(folder: Path, config: RunConfig, *, afresh: bool) -> None:
    """Refuse starts that are others than when the run began, where they matter; older runs recorded none.

    Args:
        folder: of the run.
        config: as it goes on.
        afresh: whether policies begin from their starts again; else they only are their references.

    Raises:
        ConfigError: if so.
    """
    before = recorded(folder, STARTS)
    if not before or not (afresh or config.objective.needs_reference):
        return
    for name, digest in start_digests(config).items():
        if before.get(name) != digest:
            raise ConfigError(
                f"policy {name!r} of run '{folder}' started from {config.agents.policies[name].start!r}, where other"
                f" weights lie now (digest {digest}, before {before.get(name)}); expected the same: put them back, or"
                " start a new run"
            )
