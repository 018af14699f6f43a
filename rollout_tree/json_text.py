"""JSON values and odd texts, exactly: what is written reads back with the same types, or is refused."""

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any

_SCALARS = frozenset({str, int, bool, type(None)})
"""Types of which every value is plain."""
_WRITER = json.JSONEncoder(ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":"))
_ESCAPED = "\0"
"""First character of a text stored in escaped form."""


def plain(value: Any, name: str) -> Any:
    """Give `value` as JSON knows it: itself if it is plain, else with tuples as lists and mappings as dicts.

    Args:
        value: what a game or grammar made.
        name: what it is, for the error.

    Raises:
        TypeError: at a key that is no text (JSON would turn 0 into "0"), or a value JSON does not know.
        ValueError: at NaN or an infinite number.
    """
    if _is_plain(value):
        return value
    if isinstance(value, float):
        if not isfinite(value):
            raise ValueError(f"{name} holds {value!r}; expected a finite number, since JSON has no other")
        return float(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, Mapping):
        for key in value:
            if type(key) is not str:
                raise TypeError(f"{name} holds the key {key!r}; expected text, since JSON has no other keys")
        return {key: plain(item, name) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, name) for item in value]
    raise TypeError(
        f"{name} holds {value!r} of type {type(value).__name__}; expected text, a number, true, false, null,"
        " a list or an object with text keys"
    )


def _is_plain(value: Any) -> bool:
    """True if nothing has to be converted or refused; asked several times a turn."""
    kind = type(value)
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str or (type(item) not in _SCALARS and not _is_plain(item)):
                return False
        return True
    if kind is list:
        return _SCALARS.issuperset(map(type, value)) or all(map(_is_plain, value))
    return kind in _SCALARS or (kind is float and isfinite(value))


def dumps(value: Any, name: str) -> str:
    """Write a plain JSON value as text whose `json.loads` equals it, types included.

    Raises:
        TypeError: if the value is not plain (see `plain`), e.g. holds a tuple or a key that is no text.
        ValueError: at NaN or an infinite number.
    """
    other = plain(value, name)
    if other is not value:
        raise TypeError(f"{name} holds {value!r}; expected the plain JSON value {other!r}")
    return _WRITER.encode(value)


def loads(text: str) -> Any:
    """The inverse of `dumps`."""
    return json.loads(text)


def shield(text: str) -> str:
    """Give a text that UTF-8 can hold: itself, or an escaped form if it holds half a surrogate pair."""
    if text[:1] != _ESCAPED:
        if text.isascii():
            return text
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            pass
        else:
            return text
    return _ESCAPED + text.encode("unicode_escape").decode("ascii")


def unshield(text: str) -> str:
    """The inverse of `shield`."""
    return text if text[:1] != _ESCAPED else text[1:].encode("ascii").decode("unicode_escape")
