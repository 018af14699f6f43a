"""What a run's numbers depend on beside its configuration, as its folder keeps it."""

import importlib.metadata
import platform
import sys
from pathlib import Path
from typing import Any

import torch

from coplay.agents.runs import read_object
from coplay.training.messages import ConfigError

ENVIRONMENT_FILE = "environment.json"
PACKAGES = (
    "coplay",
    "torch",
    "transformers",
    "tokenizers",
    "peft",
    "accelerate",
    "numpy",
    "pyarrow",
    "safetensors",
)


def environment() -> dict[str, Any]:
    """Versions that a run's numbers depend on."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "threads": torch.get_num_threads(),
        "packages": {name: _version(name) for name in PACKAGES},
    }


def recorded(folder: Path, part: str) -> dict[str, Any]:
    """A part of what a run's folder keeps of its environment; empty where it was made before there was such a part.

    Raises:
        ConfigError: if it is damaged.
        ValueError: if the file is no JSON object.
    """
    path = folder / ENVIRONMENT_FILE
    found = read_object(path).get(part, {}) if path.is_file() else {}
    if not isinstance(found, dict):
        raise ConfigError(f"'{path}' is damaged: {part!r} is {str(found)[:80]!r}; expected a JSON object")
    return found


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
