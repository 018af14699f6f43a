"""What every test shares: calm property tests, and reasons to skip what this machine cannot run."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

# Loaded machines make deadlines lie; in CI the examples are the same at every run.
settings.register_profile("coplay", deadline=None, derandomize=os.environ.get("CI") == "true")
settings.load_profile("coplay")

# Fakes of both halves; test folders are no packages.
for folder in ("rollout_tree", "training/helpers"):
    sys.path.insert(0, str(Path(__file__).parent / folder))

SUITES = ("axelrod", "pettingzoo", "pyspiel", "textarena")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked `gpu` or `games` where the device or the extra is missing."""
    if any(item.get_closest_marker("gpu") for item in items):
        import torch

        if not torch.cuda.is_available():
            _skip(items, "gpu", "no CUDA device here")
    missing = [suite for suite in SUITES if importlib.util.find_spec(suite) is None]
    if missing:
        _skip(items, "games", f"the extra 'games' is not installed: no {missing[0]}")


def _skip(items: list[pytest.Item], mark: str, reason: str) -> None:
    for item in items:
        if item.get_closest_marker(mark):
            item.add_marker(pytest.mark.skip(reason=reason))
