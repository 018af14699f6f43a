"""Games by name: built-in ones, registered ones, and plug-ins of the entry-point group `coplay.games`."""

import importlib
import inspect
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from typing import Any, TypeVar

from pydantic import ValidationError

from coplay.games.base import Game, GameParameters
from coplay.games.names import nearest
from coplay.games.plugins import GAME_ERRORS, GAMES, announced, plugin_fault, warn_once

GameType = TypeVar("GameType", bound="type[Game[Any]]")

_GAMES: dict[str, type[Game[Any]]] = {}


class UnknownGameError(ValueError):
    """No game has this name."""


class GameParameterError(ValueError):
    """A game was given a parameter that it does not have, or a value that it does not allow."""


class GameRegistrationError(ValueError):
    """A class cannot be registered as a game."""


class GamePluginError(ImportError):
    """The plug-in that announces a game cannot be loaded."""


def register_game(game: GameType) -> GameType:
    """Make a game class known under its `name`; to be used as a class decorator.

    Raises:
        GameRegistrationError: if the class lacks `name` or `Parameters`, or the name is taken.
    """
    name, parameters = getattr(game, "name", None), getattr(game, "Parameters", None)
    if not isinstance(name, str) or not (
        isinstance(parameters, type) and issubclass(parameters, GameParameters)
    ):
        raise GameRegistrationError(
            f"{game!r} cannot be registered: expected class variables `name` (a string) and"
            f" `Parameters` (a subclass of GameParameters), got {name!r} and {parameters!r}"
        )
    if inspect.isabstract(game):
        missing = ", ".join(sorted(game.__abstractmethods__))
        raise GameRegistrationError(
            f"{game!r} cannot be registered: it does not define {missing}; expected every method of Game"
        )
    kind = parameters.model_fields.get("kind")
    if kind is None or kind.default != name:
        raise GameRegistrationError(
            f"game {name!r} cannot be registered: its Parameters need a first field"
            f' `kind: Literal["{name}"] = "{name}"`, got {kind!r}'
        )
    if _GAMES.get(name, game) is not game:
        raise GameRegistrationError(
            f"game {name!r} is already registered by {_GAMES[name].__module__}.{_GAMES[name].__qualname__};"
            f" expected a new name for {game.__module__}.{game.__qualname__}"
        )
    _GAMES[name] = game
    return game


def game_class(name: str) -> type[Game[Any]]:
    """The class registered under `name`; plug-ins are looked at only if no registered game has it.

    Raises:
        UnknownGameError: if there is none.
        GamePluginError: if a plug-in announces it and cannot be loaded.
    """
    if not isinstance(name, str):
        raise UnknownGameError(f"game {name!r} is unknown; expected a name")
    if name not in _GAMES:
        others = announced(GAMES)
        if name not in others:
            options = sorted({*_GAMES, *others})
            raise UnknownGameError(
                f"game {name!r} is unknown; expected one of {options!r}{nearest(name, options)} (a game of your own"
                " module is named module:Class, or made known to a command by --import module:Class)"
            )
        _load(others[name])
    return _GAMES[name]


def find_game(target: str) -> type[Game[Any]]:
    """The class of a game's name, or of `module:Class`, which need not be registered.

    Raises:
        UnknownGameError: if no game has this name.
        GameRegistrationError: if `module:Class` names no game.
    """
    module, _, name = target.partition(":")
    if not module or not name:
        return game_class(target)
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise GameRegistrationError(
            f"there is no module {module!r}; expected module:Class, the module in this folder or installed"
        ) from None
    for part in name.split("."):
        if not hasattr(found, part):
            raise GameRegistrationError(f"module {module!r} has no {name!r}; expected the class of a game")
        found = getattr(found, part)
    if not (isinstance(found, type) and issubclass(found, Game)):
        raise GameRegistrationError(f"{target!r} is {found!r}; expected a subclass of coplay.games.Game")
    return found


def available_games() -> tuple[str, ...]:
    """All names that `make_game` takes; plug-ins that cannot be loaded are left out with a warning."""
    for name, plugin in announced(GAMES).items():
        if name not in _GAMES:
            try:
                _load(plugin)
            except GamePluginError as error:
                warn_once(str(error))
    return tuple(sorted(_GAMES))


def make_game(name: str, **parameters: Any) -> Game[Any]:
    """Make the game called `name` with the given parameters; those left out take their defaults.

    Raises:
        UnknownGameError: if no game has this name.
        GameParameterError: if a parameter is unknown or its value is not allowed.
    """
    return game_of_class(game_class(name), parameters)


def game_of_class(game: type[Game[Any]], parameters: Mapping[str, Any]) -> Game[Any]:
    """Make a game of a class, registered or not.

    Raises:
        GameParameterError: if a parameter is unknown or its value is not allowed.
    """
    try:
        checked = game.Parameters.model_validate(dict(parameters))
    except ValidationError as error:
        raise GameParameterError(_explain(game.name, game.Parameters, error)) from None
    return game(checked)


def _explain(name: str, model: type[GameParameters], error: ValidationError) -> str:
    """One sentence for the first fault, and how many more there are."""
    faults = error.errors(include_url=False)
    first = faults[0]
    place = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        options = list(model.model_fields)
        text = (
            f"game {name!r} has no parameter {place!r}; expected one of {options!r}{nearest(place, options)}"
        )
    else:
        cause = first.get("ctx", {}).get("error")
        told = str(cause) if isinstance(cause, ValueError) else first["msg"]
        subject = f"parameter {place!r}: got {first['input']!r}; " if place else ""
        text = f"game {name!r}: {subject}{told}"
    return text if len(faults) == 1 else f"{text} (and {len(faults) - 1} more)"


def _load(plugin: EntryPoint) -> None:
    try:
        loaded = plugin.load()
        if getattr(loaded, "name", None) != plugin.name:
            raise GameRegistrationError(
                f"its class is named {getattr(loaded, 'name', None)!r}; expected the same name"
            )
        register_game(loaded)
    except GAME_ERRORS as error:
        raise GamePluginError(plugin_fault(plugin, error)) from error
