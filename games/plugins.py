"""What other packages announce under the entry-point group `coplay.games`, and what it may raise."""

import logging
from importlib.metadata import EntryPoint, entry_points

GROUP = "coplay.games"

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


def announced_games() -> dict[str, EntryPoint]:
    """Name of each announced game -> where it is."""
    return {plugin.name: plugin for plugin in entry_points(group=GROUP)}


def import_announced() -> None:
    """Import what announces a game, so that its grammars are known; what cannot be is left out with a warning."""
    for plugin in announced_games().values():
        try:
            plugin.load()
        except GAME_ERRORS as error:
            logging.getLogger(__name__).warning(
                "the plug-in %r that announces game %r cannot be loaded: %s: %s",
                plugin.value,
                plugin.name,
                type(error).__name__,
                error,
            )
