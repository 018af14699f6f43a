"""What other packages announce under the entry-point group `coplay.games`, and what it may raise."""

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
