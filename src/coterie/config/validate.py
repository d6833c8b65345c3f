"""Values against the fields they are for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, get_args

from pydantic import BaseModel, ConfigDict, create_model

from coterie.config.describe import fits, must_be
from coterie.config.fields import Field, Required
from coterie.config.problems import Absent, Path, Problem
from coterie.core.suggest import similar


class Record(BaseModel):
    """A nested table: the fields of a class that was read, not imported."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    known: ClassVar[Mapping[str, Field]]


def record_of(name: str, fields: Mapping[str, Field]) -> type[Record]:
    """The record with these fields: a type that a value can be checked against."""
    given: dict[str, Any] = {
        key: (f.annotation, ... if f.default is Required else f.default)
        for key, f in fields.items()
    }
    model: type[Record] = create_model(name, __base__=Record, **given)
    model.known = fields
    return model


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


def unknown_key(key: str, value: Any, path: Path, fields: Mapping[str, Field]) -> Problem:
    """The problem with a key that no field has."""
    fix = similar(key, fields, "key") or f"keys here: {', '.join(fields)}"
    return Problem((*path, key), value, "unknown key", fix)
