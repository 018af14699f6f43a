"""Libraries that draw from Python's and numpy's global random numbers, fenced in."""

import contextlib
import io
import random
from collections.abc import Iterator


@contextlib.contextmanager
def fenced(seed: int) -> Iterator[None]:
    """Seed the global random numbers inside, and leave them, and the standard output, as if nothing had run.

    Args:
        seed: below 2^32.
    """
    import numpy as np

    python, numpy = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
