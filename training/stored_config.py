"""The resolved configuration in a run's folder, and that of an imitation: read under the name the folder has now."""

from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from coplay.agents.runs import read_object
from coplay.training.config import RunConfig
from coplay.training.imitation_config import ImitationConfig
from coplay.training.messages import ConfigError, explain

CONFIG_FILE = "config.json"
IMITATION_FILE = "imitation.json"
"""Stands in the folders of imitations, beside the configuration that every run has."""
Config = TypeVar("Config", RunConfig, ImitationConfig)


def read_config(folder: Path) -> RunConfig:
    """The resolved configuration of a run folder.

    Raises:
        ConfigError: if the folder is no run folder, or its configuration is none that this version knows.
    """
    path = folder / CONFIG_FILE
    if not path.is_file():
        raise ConfigError(f"'{folder}' is no run folder: it holds no {CONFIG_FILE}; expected runs/NAME")
    return _read(path, RunConfig)


def read_imitation_config(folder: Path) -> ImitationConfig:
    """What the run folder of an imitation says of the imitation.

    Raises:
        ConfigError: if the folder is none of an imitation, or its configuration is none that this version knows.
    """
    path = folder / IMITATION_FILE
    if not path.is_file():
        raise ConfigError(f"'{folder}' holds no {IMITATION_FILE}; expected the run folder of an imitation")
    return _read(path, ImitationConfig)


def _read(path: Path, kind: type[Config]) -> Config:
    try:
        settings = kind.model_validate(read_object(path))
    except ValidationError as error:
        raise ConfigError(f"{path}: {explain(error, kind)}") from None
    folder = path.parent
    storage = settings.storage.model_copy(update={"folder": str(folder.parent)})
    return settings.model_copy(update={"name": folder.name, "storage": storage})
