"""One process at a time in a run folder: two would mix their metrics and delete each other's checkpoints."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coplay.training.messages import ConfigError

if sys.platform != "win32":
    import fcntl


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Hold a run folder; let go at the end, or when the process dies, however it dies.

    The lock is on the folder itself, so it leaves no file behind. Where a file system or platform has no such
    locks, nothing is held.

    Raises:
        ConfigError: if another process holds it.
    """
    if sys.platform == "win32":
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"another process trains in run folder '{folder}'; expected it to end first, or a new name (--name)"
            ) from None
        except OSError:  # this file system has no locks
            pass
        yield
    finally:
        os.close(handle)
