"""Plays of scripted agents, for all tests of games (test folders are no packages: loaded by path)."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def load(name: str) -> ModuleType:
    path = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def scripted() -> ModuleType:
    return load("scripted_play")


@pytest.fixture(scope="session")
def regenerate(scripted: ModuleType) -> ModuleType:
    return load("regenerate_transcripts")
