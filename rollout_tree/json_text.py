"""JSON values and odd texts, exactly: what is written reads back with the same types, or is refused."""

import json
from collections.abc import Mapping
from json.encoder import encode_basestring
from math import isfinite
from operator import is_
from typing import Any

_SCALARS = frozenset({str, int, bool, type(None)})
"""Types of which every value is plain."""
_TEXT = frozenset({str})
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
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is dict:
        return _plain_dict(value, name)
    if kind is list:
        items = [item if type(item) in _SCALARS else plain(item, name) for item in value]
        return value if all(map(is_, items, value)) else items
    return _converted(value, name)


def _plain_dict(value: dict[Any, Any], name: str) -> dict[str, Any]:
    changed = None
    for key, item in value.items():
        if type(key) is not str:
            raise TypeError(f"{name} holds the key {key!r}; expected text, since JSON has no other keys")
        if type(item) in _SCALARS:
            continue
        new = plain(item, name)
        if new is not item:
            changed = changed or dict(value)
            changed[key] = new
    return value if changed is None else changed


def _converted(value: Any, name: str) -> Any:
    if isinstance(value, float):
        if not isfinite(value):
            raise ValueError(f"{name} holds {value!r}; expected a finite number, since JSON has no other")
        return value if type(value) is float else float(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, Mapping):
        return _plain_dict(dict(value), name)
    if isinstance(value, list | tuple):
        return [item if type(item) in _SCALARS else plain(item, name) for item in value]
    raise TypeError(
        f"{name} holds {value!r} of type {type(value).__name__}; expected text, a number, true, false, null,"
        " a list or an object with text keys"
    )


def dumps(value: Any, name: str) -> str:
    """Write a plain JSON value as text whose `json.loads` equals it, types included.

    Raises:
        TypeError: if the value is not plain (see `plain`), e.g. holds a tuple or a key that is no text.
        ValueError: at NaN or an infinite number.
    """
    kind = type(value)
    if kind is str:
        return str(encode_basestring(value))
    if kind is dict:
        if not _TEXT.issuperset(map(type, value)):
            plain(value, name)
        return "{" + ",".join([f"{encode_basestring(k)}:{dumps(v, name)}" for k, v in value.items()]) + "}"
    if kind is list:
        return "[" + ",".join([dumps(item, name) for item in value]) + "]"
    if value is None or kind is bool:
        return "null" if value is None else "true" if value else "false"
    if kind is int or (kind is float and isfinite(value)):
        return repr(value)
    other = plain(value, name)
    raise TypeError(f"{name} holds {value!r}; expected the plain JSON value {other!r}")


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
