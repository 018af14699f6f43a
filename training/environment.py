"""What a run's numbers depend on beside its configuration, as its folder keeps it."""

import importlib.metadata
import platform
import sys
from pathlib import Path
from typing import Any

import torch

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


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
