"""What every test shares: calm property tests, and reasons to skip what this machine cannot run."""

import importlib.util
import os
import shutil
import sys
from pathlib import Path

import pytest
from hypothesis import settings

CI = os.environ.get("CI") == "true"

# Loaded machines make deadlines lie; in CI the examples are the same at every run.
settings.register_profile("coplay", deadline=None, derandomize=CI)
settings.load_profile("coplay")

# Fakes of both halves, and what tests of games share; test folders are no packages.
for folder in ("games", "rollout_tree", "training/helpers"):
    sys.path.insert(0, str(Path(__file__).parent / folder))

SUITES = ("axelrod", "pettingzoo", "pyspiel", "textarena")
INSTALL = {
    "playwright": "pip install -c constraints.txt playwright",
    "pyspiel": "pip install -c constraints.txt open-spiel",
    **dict.fromkeys(("pettingzoo", "pygame"), "pip install -c constraints.txt pettingzoo pygame-ce"),
    **dict.fromkeys(
        ("duckdb", "polars", "pandas", "datasets"),
        "pip install -c constraints.txt duckdb polars pandas datasets",
    ),
    **dict.fromkeys(("axelrod", "textarena"), "pip install -c constraints.txt '.[games]'"),
    "bm25s": "pip install -c constraints.txt '.[search]'",
    "tensorboard": "pip install -c constraints.txt tensorboard",
    "negmas": "pip install -c constraints.txt '.[negmas]'",
    **dict.fromkeys(("trl", "torchrl"), "pip install -c constraints.txt '.[bench]'"),
    **dict.fromkeys(("verifiers", "inspect_ai"), "an environment of its own, as .ci/run makes it"),
}
"""Packages that tests may ask for with `needs`, and where they come from."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that lacks something; in CI, which installs what `needs` and `browser` ask for, it fails."""
    for mark in item.iter_markers("needs"):
        for name in mark.args:
            if importlib.util.find_spec(name) is None:
                _missing(f"{name} is not installed: {INSTALL[name]}")
    if item.get_closest_marker("browser") and not _chromium():
        _missing(
            "no Chromium here: apt-get install chromium, or set COPLAY_CHROMIUM to the program of another one"
        )
    if item.get_closest_marker("games"):
        for name in SUITES:
            if importlib.util.find_spec(name) is None:
                pytest.skip(f"the extra 'games' is not installed: no {name}")
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("no CUDA device here")


def _missing(reason: str) -> None:
    if CI:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def _chromium() -> str | None:
    return shutil.which(os.environ.get("COPLAY_CHROMIUM") or "chromium")


@pytest.fixture(scope="session")
def chromium() -> str:
    """The program of the browser, for tests marked `browser`."""
    found = _chromium()
    assert found is not None
    return found
