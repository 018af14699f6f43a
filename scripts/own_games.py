"""Games of one's own modules on the command line: `module:Class`, the module looked for in this folder too."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from coplay.games import register_game
from coplay.games.registry import find_game
from coplay.training.messages import ConfigError

OPTION = "--import"


@contextmanager
def modules_of_this_folder() -> Iterator[None]:
    """Find modules of the current folder inside, and those of before after."""
    before = list(sys.path)
    sys.path.insert(0, os.getcwd())
    try:
        yield
    finally:
        sys.path[:] = before


def use_game(target: str) -> str:
    """The name of a game; that of `module:Class` is made known first, so that it can be played by name.

    Raises:
        GameRegistrationError: if `module:Class` names no game, or one whose name is taken.
    """
    if ":" not in target:
        return target
    with modules_of_this_folder():
        return register_game(find_game(target)).name


def import_games(words: list[str]) -> list[str]:
    """A command's words without `--import module:Class`, whose games are known from then on.

    Raises:
        ConfigError: if what follows is no `module:Class`.
    """
    left: list[str] = []
    rest = iter(words)
    for word in rest:
        option, equals, target = word.partition("=")
        if option != OPTION:
            left.append(word)
            continue
        target = target if equals else next(rest, "")
        if ":" not in target:
            raise ConfigError(f"{OPTION} {target!r}; expected module:Class, e.g. {OPTION} my_game:MyGame")
        use_game(target)
    return left
