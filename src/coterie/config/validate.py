"""Values against the fields they are for, and in words what a field's value may be."""

from __future__ import annotations

import math
import types
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from coterie.config.fields import Field, Record, Required
from coterie.config.problems import Absent, Path, Problem
from coterie.core.suggest import similar

BASES = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
PLURALS = {
    "a whole number": "whole numbers",
    "a number": "numbers",
    "a list": "lists",
    "a table": "tables",
    "text": "texts",
}
SIGNS = (("gt", ">"), ("ge", ">="), ("lt", "<"), ("le", "<="))


def resolve_fields(
    fields: Mapping[str, Field], given: Mapping[str, Any], path: Path, problems: list[Problem]
) -> dict[str, Any]:
    """Every field with the value given for it or its default; what does not fit is noted."""
    for key in given:
        if key not in fields:
            problems.append(unknown_key(key, given[key], path, fields))
    return {
        key: resolve_field(field, given, (*path, key), problems) for key, field in fields.items()
    }


def resolve_field(
    field: Field, given: Mapping[str, Any], path: Path, problems: list[Problem]
) -> Any:
    """The value given for one field, or its default; what does not fit is noted."""
    default = plain(field.default)
    if path[-1] not in given:
        if default is Required:
            problems.append(Problem(path, Absent, "missing", hint(field)))
        return default
    found = given[path[-1]]
    nested = record_in(field.annotation)
    if nested and isinstance(found, Mapping):
        before = default if isinstance(default, Mapping) else {}
        return resolve_fields(nested.known, {**before, **found}, path, problems)
    if not fits(field.annotation, found):
        problems.append(Problem(path, found, must_be(field.annotation, found), hint(field)))
    return found


def record_in(annotation: Any) -> type[Record] | None:
    """The record that an annotation admits, alone or in a union."""
    for option in (annotation, *get_args(annotation)):
        if isinstance(option, type) and issubclass(option, Record):
            return option
    return None


def plain(value: Any) -> Any:
    """A default as a file would hold it: a record becomes a table."""
    return value.model_dump() if isinstance(value, BaseModel) else value


def hint(field: Field) -> str:
    """What a field is for, in brackets."""
    return f"({field.comment})" if field.comment else ""


def unknown_key(key: str, value: Any, path: Path, fields: Iterable[str]) -> Problem:
    """The problem with a key that no field has."""
    fix = similar(key, fields, "key") or f"keys here: {', '.join(fields)}"
    return Problem((*path, key), value, "unknown key", fix)


def describe(annotation: Any) -> str:
    """What a value of this type is.

    >>> from coterie.core.bounds import Count, Share
    >>> describe(Share), describe(Literal["auto"] | Count)
    ('a number > 0 and <= 1', '"auto" or a whole number >= 1')
    """
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return " ".join(filter(None, (describe(args[0]), bounds(annotation))))
    if origin is Literal:
        return either(f'"{a}"' for a in args)
    if origin in (Union, types.UnionType):
        return either(describe(a) for a in args if a is not type(None))
    if origin is tuple:
        size = "" if args[1:] == (...,) else f"{len(args)} "
        return f"a list of {size}{plural(describe(args[0]))}"
    if origin in (Mapping, dict):
        return "a table"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"a table of {', '.join(annotation.model_fields)}"
    return BASES.get(annotation, getattr(annotation, "__name__", str(annotation)))


def plural(text: str) -> str:
    """Many of what a type's words say one of.

    >>> plural("a whole number >= 1"), plural("a list of texts")
    ('whole numbers >= 1', 'lists of texts')
    """
    for one, many in PLURALS.items():
        if text.startswith(one):
            return many + text.removeprefix(one)
    return text


def bounds(annotation: Any) -> str:
    """The limits of an annotated number, in signs."""
    marks = get_args(annotation)[1:]
    found = (f"{sign} {getattr(m, a):g}" for m in marks for a, sign in SIGNS if hasattr(m, a))
    return " and ".join(found)


def either(parts: Any) -> str:
    """A list with "or" before its last."""
    *most, last = dict.fromkeys(parts)
    return f"{', '.join(most)} or {last}" if most else str(last)


def must_be(annotation: Any, value: Any) -> str:
    """Why a value is refused; only the limits, if its kind is right.

    >>> from coterie.core.bounds import Positive
    >>> must_be(Positive, -0.3), must_be(Positive, "x")
    ('must be > 0', 'must be a number > 0')
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and not math.isfinite(value):
        return "must be finite"
    options = [a for a in get_args(annotation) if a is not type(None)]
    if get_origin(annotation) in (Union, types.UnionType) and len(options) == 1:
        return must_be(options[0], value)
    plain = options[0] if get_origin(annotation) is Annotated else None
    if number and (plain is float or (plain is int and isinstance(value, int))):
        return f"must be {bounds(annotation)}"
    return f"must be {describe(annotation)}"


@cache
def adapter(annotation: Any) -> TypeAdapter[Any]:
    """The strict check of a type: a text is no number, and true is not 1."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return TypeAdapter(annotation)
    return TypeAdapter(annotation, config=ConfigDict(strict=True))


def fits(annotation: Any, value: Any) -> bool:
    """Whether a value is of a type."""
    try:
        adapter(annotation).validate_python(value)
    except ValidationError:
        return False
    return True
