"""One clear sentence out of a validation error: what, got, expected, and the nearest right name."""

import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from coplay.games.names import nearest

CHOSEN = "NAME"
"""Stands in field paths for a name that people choose."""


class ConfigError(ValueError):
    """A configuration that cannot be run; its message is meant for the person who wrote it."""


def model_variants(annotation: Any) -> Iterator[type[BaseModel]]:
    """The settings classes an annotation admits: itself, members of a union, values of a table, inside Annotated."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif _is_table(annotation):
        yield from model_variants(typing.get_args(annotation)[1])
    elif typing.get_origin(annotation) in (typing.Union, types.UnionType, typing.Annotated):
        for part in typing.get_args(annotation):
            yield from model_variants(part)


def _is_table(annotation: Any) -> bool:
    return typing.get_origin(annotation) is dict


def field_paths(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Every dotted field path of a settings class, variants included."""
    for name, field in model.model_fields.items():
        path = f"{prefix}{name}"
        yield path
        for variant in model_variants(field.annotation):
            yield from field_paths(
                variant, f"{path}.{CHOSEN}." if _is_table(field.annotation) else f"{path}."
            )


def field_hint(path: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for a dotted path: a like name in its section, the same name elsewhere, or a like path."""
    paths = sorted(known)
    section, _, key = path.rpartition(".")
    beside = {p.rpartition(".")[2]: p for p in paths if p.rpartition(".")[0] == section}
    elsewhere = [p for p in paths if p.rpartition(".")[2] == key]
    if not nearest(key, beside) and elsewhere:
        return f"; did you mean {' or '.join(map(repr, elsewhere))}?"
    return nearest(key, beside) or nearest(path, paths)


def explain(error: ValidationError, model: type[BaseModel], *, prefix: str = "") -> str:
    """The first finding of a validation error as one sentence."""
    finding = error.errors(include_url=False)[0]
    place = _find_place([str(part) for part in finding["loc"]], model)
    shown = ".".join(filter(None, (prefix, *place.path)))
    if finding["type"] == "extra_forbidden":
        return f"unknown key {shown!r}{_unknown_hint(place, model)}"
    message = finding["msg"]
    if finding["type"] == "value_error":
        return message.removeprefix("Value error, ")
    if finding["type"] == "union_tag_invalid":
        tag = str(finding["ctx"]["tag"])
        expected = [part.strip("'\" ") for part in str(finding["ctx"]["expected_tags"]).split(",")]
        hint = nearest(tag, expected) or _kind_elsewhere(tag, model)
        return f"{shown}.kind is {tag!r}; expected one of {', '.join(map(repr, expected))}{hint}"
    if finding["type"] in ("model_attributes_type", "model_type", "dict_type"):
        return f"{shown!r} is {finding['input']!r}; expected {_table_or_number(place)}"
    if finding["type"] == "missing":
        return f"{shown!r} is missing; it has no default and must be given"
    return f"{shown!r} is {finding['input']!r}; {message[0].lower()}{message[1:]}{_literal_hint(finding)}"


def _table_or_number(place: "_Place") -> str:
    """What a section may be: one that can be constant may be a number too."""
    fields = [v.model_fields[place.path[-1]] for v in place.variants if place.path[-1] in v.model_fields]
    variants = [found for field in fields for found in model_variants(field.annotation)]
    kinds = [repr(v.model_fields["kind"].default) for v in variants if "kind" in v.model_fields]
    table = f"a table with a kind of {', '.join(dict.fromkeys(kinds))}" if kinds else "a table"
    return f"a number, or {table}" if "'constant'" in kinds else table


def _literal_hint(finding: Mapping[str, Any]) -> str:
    """How to write what was perhaps meant: a number as a text, or nothing."""
    value = finding["input"]
    if finding["type"] == "string_type" and isinstance(value, int | float):
        return f', in a file "{value}", as a flag \'"{value}"\''
    if value == "None":
        return "; a flag writes None as null"
    return ""


def _kind_elsewhere(tag: str, model: type[BaseModel]) -> str:
    """Which sections have that kind, if this one has not."""
    sections = [
        f"{section}.kind"
        for section, field in model.model_fields.items()
        for variant in model_variants(field.annotation)
        if "kind" in variant.model_fields and variant.model_fields["kind"].default == tag
    ]
    return f"; {tag!r} is one of {' or '.join(sections)}" if sections else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where a finding is, without the union tags that pydantic puts between field names."""

    path: list[str]
    pattern: list[str]
    """The same with `CHOSEN` for names that people chose."""
    variants: list[type[BaseModel]]
    """The settings classes its last section may be."""


def _find_place(parts: list[str], model: type[BaseModel]) -> _Place:
    path: list[str] = []
    pattern: list[str] = []
    variants = holders = [model]
    chosen = False
    for part in parts:
        if chosen:
            path.append(part)
            pattern.append(CHOSEN)
            chosen = False
            continue
        tags = [v.model_fields["kind"].default for v in variants if "kind" in v.model_fields]
        if part in tags and not any(part in v.model_fields for v in variants):
            continue
        path.append(part)
        pattern.append(part)
        annotations = [v.model_fields[part].annotation for v in variants if part in v.model_fields]
        holders = variants
        chosen = any(map(_is_table, annotations))
        variants = [found for annotation in annotations for found in model_variants(annotation)] or variants
    return _Place(path=path, pattern=pattern, variants=holders)


def _unknown_hint(place: _Place, model: type[BaseModel]) -> str:
    """Whose key it is, if it is one of another kind; else the nearest one."""
    key = place.path[-1]
    kinds = [repr(v.model_fields["kind"].default) for v in place.variants if key in v.model_fields]
    if kinds:
        return f"; it is a key of kind {' or '.join(dict.fromkeys(kinds))}"
    return field_hint(".".join(place.pattern), field_paths(model))
