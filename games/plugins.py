"""What other packages announce as entry points (games, scores, tools), and what it may raise."""

import logging
from functools import cache
from importlib.metadata import EntryPoint, entry_points

GAMES = "coplay.games"

GAME_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)
"""What somebody else's code may raise while it is imported or asked: it must not stop what is not its own."""


def announced(group: str) -> dict[str, EntryPoint]:
    """Name of each thing that a package announces under an entry-point group -> where it is."""
    return {plugin.name: plugin for plugin in entry_points(group=group)}


def plugin_fault(plugin: EntryPoint, error: Exception) -> str:
    """Why a plug-in cannot be loaded, as one sentence."""
    return (
        f"the plug-in {plugin.value!r} that announces game {plugin.name!r} cannot be loaded:"
        f" {type(error).__name__}: {error}"
    )


@cache
def warn_once(sentence: str) -> None:
    """Warn, but not twice of the same: plug-ins are looked for at every flag."""
    logging.getLogger(__name__).warning("%s", sentence)


def import_announced() -> None:
    """Import what announces a game, so that its grammars are known; what cannot be is left out with a warning."""
    for plugin in announced(GAMES).values():
        try:
            plugin.load()
        except GAME_ERRORS as error:
            warn_once(plugin_fault(plugin, error))
