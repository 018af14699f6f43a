"""The nearest right name for a wrong one, for messages to people."""

import difflib
from collections.abc import Iterable


def nearest(name: object, options: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the option most like `name`, or the empty string if none is near."""
    known = list(options)
    folded = {option.casefold(): option for option in known}
    matches = difflib.get_close_matches(str(name).casefold(), folded, n=1, cutoff=0.6)
    return f"; did you mean {folded[matches[0]]!r}?" if matches else ""
