"""States as JSON values: dataclasses whose fields are numbers, texts, and tuples of these at any depth."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

State = TypeVar("State")


def encode_fields(state: Any) -> dict[str, Any]:
    """Every field by name, tuples as lists."""
    return {each.name: _listed(getattr(state, each.name)) for each in fields(state)}


def decode_fields(kind: type[State], data: Mapping[str, Any]) -> State:
    """The inverse of `encode_fields`."""
    return kind(**{name: _frozen(value) for name, value in data.items()})


def _listed(value: Any) -> Any:
    return [_listed(item) for item in value] if isinstance(value, tuple) else value


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value
