"""Libraries that coplay can do without: imported when they are first needed, asked for in one sentence."""

from importlib import import_module
from typing import Any


class MissingLibraryError(ImportError):
    """A library of an extra is not installed."""


def optional_library(module: str, *, extra: str, use: str) -> Any:
    """Import a library that comes with an extra.

    Args:
        module: what is imported.
        extra: the extra of coplay that installs it.
        use: what it is needed for, in words.

    Raises:
        MissingLibraryError: if it is not installed.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        raise MissingLibraryError(
            f"{use} needs the library {error.name!r}, which is not installed:"
            f" pip install -c constraints.txt '.[{extra}]'"
        ) from None
