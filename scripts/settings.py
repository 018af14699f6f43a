"""From a TOML file and flags to a run's configuration: the same fields, checked by the same models."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, time
from importlib import resources
from pathlib import Path
from typing import Any, Generic, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError

from coplay.games import available_games
from coplay.games.names import nearest
from coplay.games.registry import game_class
from coplay.scripts.own_games import use_game
from coplay.training.config import RunConfig
from coplay.training.imitation_config import ImitationConfig
from coplay.training.messages import ConfigError, explain, field_hint, field_paths, model_variants

Config = TypeVar("Config", bound=BaseModel)
TABLES = (["agents", "seats"], ["agents", "policies"], ["agents", "tools"], ["sources"])
"""Tables whose keys people choose: players, policies, tools, sources of dialogues."""
KIND = ["game", "kind"]
OTHER_CONFIG = "any_game"
"""What a run without a configuration starts from when its game is another than that of the default one."""
Changes = list[tuple[list[str], Any]]
"""Fields by path, and their new values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form(Generic[Config]):
    """A kind of configuration: of a training run, or of an imitation."""

    model: type[Config]
    folder: str
    """Where those that come with the package lie, inside `coplay.scripts`."""
    default: str

    def shipped(self) -> dict[str, Path]:
        """Configurations that come with the package, by name."""
        folder = resources.files("coplay.scripts") / self.folder
        found = [Path(str(entry)) for entry in folder.iterdir() if entry.name.endswith(".toml")]
        return {path.stem: path for path in sorted(found)}

    def read(self, config: str | None, flags: Sequence[str]) -> Config:
        """A checked configuration from a file (or a shipped one's name) and `--section.field value` flags over it.

        Raises:
            ConfigError: one sentence about the first thing that is wrong.
        """
        return self.changed(config, parse_flags(flags))

    def changed(self, config: str | None, changes: Changes) -> Config:
        """The same with parsed flags.

        Raises:
            ConfigError: one sentence about the first thing that is wrong.
        """
        data = _read_toml(self.default if config is None else config, self.shipped())
        if isinstance(data.get("game"), dict) and "kind" in data["game"]:
            data["game"]["kind"] = _known(data["game"]["kind"])
        known = [(path, _known(value) if path == KIND else value) for path, value in changes]
        return self.check(_with_changes(self.model, data, known))

    def check(self, data: dict[str, Any]) -> Config:
        """Validate nested settings.

        Raises:
            ConfigError: one sentence about the first thing that is wrong.
        """
        try:
            return self.model.model_validate(data)
        except ValidationError as error:
            raise ConfigError(explain(error, self.model)) from None


TRAINING = Form(model=RunConfig, folder="configs", default="dilemma_aligned")
IMITATION = Form(model=ImitationConfig, folder="imitations", default="trust_imitate")
DEFAULT_CONFIG = TRAINING.default


def shipped_configs() -> dict[str, Path]:
    """Configurations of training runs that come with the package, by name."""
    return TRAINING.shipped()


def read_settings(config: str | None, flags: Sequence[str]) -> RunConfig:
    """The configuration of a training run, from a file (or a shipped one's name) and flags over it.

    Raises:
        ConfigError: one sentence about the first thing that is wrong.
    """
    changes = parse_flags(flags)
    kinds = [_known(value) for path, value in changes if path == KIND]
    if (
        config is None
        and kinds
        and kinds[-1] != _read_toml(DEFAULT_CONFIG, shipped_configs())["game"]["kind"]
    ):
        config, changes = OTHER_CONFIG, [*_suited(kinds[-1], changes), *changes]
    return TRAINING.changed(config, changes)


def _known(kind: Any) -> Any:
    return use_game(kind) if isinstance(kind, str) else kind


def _suited(kind: Any, changes: Changes) -> Changes:
    """What a run of any game has of this one: its name, and for the embedded model its terse wording."""
    told: Changes = [(["name"], kind)]
    embedded = all(value == "embedded" for path, value in changes if path == ["agents", "model", "kind"])
    if embedded and "wording" in game_class(kind).Parameters.model_fields:
        told.append((["game", "wording"], "terse"))
    return told


def change_settings(config: RunConfig, changes: Changes) -> RunConfig:
    """A run's configuration with parsed flags over it.

    Raises:
        ConfigError: one sentence about the first thing that is wrong.
    """
    return check_settings(_with_changes(RunConfig, config.model_dump(mode="json"), changes))


def _with_changes(model: type[BaseModel], data: dict[str, Any], changes: Changes) -> dict[str, Any]:
    for path, value in sorted(changes, key=_kinds_first):
        _put(model, data, path, value)
    return data


def check_settings(data: dict[str, Any]) -> RunConfig:
    """Validate the nested settings of a training run.

    Raises:
        ConfigError: one sentence about the first thing that is wrong.
    """
    return TRAINING.check(data)


def parse_flags(flags: Sequence[str]) -> Changes:
    """`--a.b-c 1 2` to (["a", "b_c"], [1, 2]); a flag without values is True, `--no-x` False.

    Raises:
        ConfigError: if a word is no flag, or no field of that name exists.
    """
    found: Changes = []
    place = 0
    while place < len(flags):
        flag = flags[place]
        if not flag.startswith("--"):
            raise ConfigError(f"unexpected argument {flag!r}; expected --section.field value")
        name, equals, glued = flag[2:].partition("=")
        place += 1
        words = [glued] if equals else []
        while place < len(flags) and not flags[place].startswith("--"):
            words.append(flags[place])
            place += 1
        parts = name.split(".")
        path = [part if _is_chosen(parts, at) else part.replace("-", "_") for at, part in enumerate(parts)]
        value: Any = [_literal(word) for word in words]
        if len(words) == 1:
            value = value[0]
        elif not words:
            value = True
            if path[-1].startswith("no_"):
                path[-1], value = path[-1].removeprefix("no_"), False
        found.append((path, value))
    return found


def known_fields(model: type[BaseModel] = RunConfig) -> list[str]:
    """Every dotted field a configuration can have, those of all installed games included."""
    games = [
        f"game.{name}" for game in available_games() for name in field_paths(game_class(game).Parameters)
    ]
    return sorted({*field_paths(model), *games})


def _read_toml(config: str, shipped: dict[str, Path]) -> dict[str, Any]:
    path = shipped.get(config, Path(config))
    if not path.is_file():
        raise ConfigError(
            f"no configuration {config!r}; expected a TOML file or one of {', '.join(shipped)}"
            f"{nearest(config, shipped)}"
        )
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"'{path}' is no TOML: {error}") from None


def _literal(word: str) -> Any:
    """A TOML literal (number, true, list, table), None for `null`, else the word itself; no field is a date."""
    if word == "null":
        return None
    try:
        value = tomllib.loads(f"value = {word}")["value"]
    except tomllib.TOMLDecodeError:
        return word
    return word if isinstance(value, date | time) else value


def _put(model: type[BaseModel], data: dict[str, Any], path: list[str], value: Any) -> None:
    """Set one field; a new `kind` keeps what both kinds are made of, and the section's other fields start anew."""
    dotted = ".".join(path)
    fields = known_fields(model)
    if dotted not in fields and not _inside_table(path):
        raise ConfigError(f"unknown flag '--{dotted}'{field_hint(dotted, fields)}")
    node = data
    for part in path[:-1]:
        below = node.get(part)
        if not isinstance(below, dict):
            below = node[part] = {}
        node = below
    if path[-1] == "kind" and node.get("kind") != value:
        shared = _shared_fields(_section(model, path[:-1]), node.get("kind"), value)
        for name in [name for name in node if name not in shared]:
            del node[name]
    wants_list = isinstance(value, str) and _takes_several(model, path)
    node[path[-1]] = [value] if wants_list else value


def _shared_fields(variants: Sequence[type[BaseModel]], old: Any, new: Any) -> set[str]:
    """Fields of the class that two kinds of a section are made from; a section that names none is of the first kind."""
    found = [
        next((one for one in variants if kind in get_args(one.model_fields["kind"].annotation)), None)
        for kind in (variants[0].model_fields["kind"].default if old is None and variants else old, new)
    ]
    if found[0] is None or found[1] is None:
        return set()
    common = next(one for one in found[0].__mro__ if issubclass(found[1], one))
    return set(common.model_fields) if issubclass(common, BaseModel) else set()


def _section(model: type[BaseModel], path: list[str]) -> list[type[BaseModel]]:
    """The settings classes that have a kind and that a section may be."""
    models = [model]
    for place, part in enumerate(path):
        if not _is_chosen(path, place):
            annotations = [one.model_fields[part].annotation for one in models if part in one.model_fields]
            models = [found for annotation in annotations for found in model_variants(annotation)]
    return [one for one in models if "kind" in one.model_fields]


def _takes_several(model: type[BaseModel], path: list[str]) -> bool:
    """True if a field of this path is a list, in any kind of its section."""
    models: list[type[BaseModel]] = [model]
    annotations: list[Any] = []
    for place, part in enumerate(path):
        if _is_chosen(path, place):
            continue
        annotations = [m.model_fields[part].annotation for m in models if part in m.model_fields]
        models = [found for annotation in annotations for found in model_variants(annotation)] or models
        if path[0] == part == "game":
            models = [game_class(name).Parameters for name in available_games()]
    return any(get_origin(annotation) is tuple for annotation in annotations)


def _kinds_first(flag: tuple[list[str], Any]) -> tuple[bool, int]:
    """Outer kinds before inner ones and before all else: a kind resets its section, whatever the order of flags."""
    path, _ = flag
    return (False, len(path)) if path[-1] == "kind" else (True, 0)


def _is_chosen(path: list[str], place: int) -> bool:
    """True at names that people choose."""
    return any(path[:place] == table for table in TABLES)


def _inside_table(path: list[str]) -> bool:
    """True for fields below names that people choose."""
    return any(_is_chosen(path, place) for place in range(1, len(path)))
