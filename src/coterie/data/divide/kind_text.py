"""The fields of a kind of partition as text and as plain values, and their faults in words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields
from typing import Any, TypeVar, cast

from pydantic_core import to_jsonable_python

from coterie.core.errors import ConfigError, FieldError
from coterie.core.suggest import similar

T = TypeVar("T")


def fields_of(kind: object) -> tuple[Field[Any], ...]:
    """The fields of a kind or of its class."""
    return fields(cast(Any, kind))


def kebab(cls: type) -> str:
    """The name of a class as files and the command line have it.

    >>> kebab(type("QuantityDirichlet", (), {})), kebab(type("IID", (), {}))
    ('quantity-dirichlet', 'iid')
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", cls.__name__).lower()


def field_values(kind: object) -> dict[str, Any]:
    """The fields of a kind as plain values, tuples as lists."""
    return cast(dict[str, Any], to_jsonable_python(kind))


def fields_as_text(kind: object) -> str:
    """The fields of a kind that are not at their defaults, as `fields_in_text` reads them."""
    first, *_ = (*fields_of(kind), None)
    return ",".join(
        joined(value) if isinstance(value, tuple) and f is first else f"{f.name}={one_word(value)}"
        for f in fields_of(kind)
        if (value := getattr(kind, f.name)) != f.default or f.default is MISSING
    )


def one_word(value: Any) -> str:
    """A value without a comma: numbers of a tuple are divided by slashes.

    >>> one_word((12, 8)), one_word(0.5)
    ('12/8', '0.5')
    """
    return "/".join(map(str, value)) if isinstance(value, tuple) else str(value)


def numbers(value: Any) -> Any:
    """What `one_word` made of a tuple, taken apart; all else is left for the bounds to judge.

    >>> numbers("12/8"), numbers((3,)), numbers(3)
    (['12', '8'], (3,), [3])
    """
    if isinstance(value, str):
        return [word for word in value.split("/") if word.strip()]
    return [value] if isinstance(value, int) else value


def joined(value: tuple[Any, ...]) -> str:
    """A tuple as text; groups are divided by slashes.

    >>> joined((0.0, 22.5)), joined(((0, 1), (2,)))
    ('0,22.5', '0,1/2')
    """
    if value and isinstance(value[0], tuple):
        return "/".join(joined(group) for group in value)
    return ",".join(f"{v:g}" if float(f"{v:g}") == v else str(v) for v in value)


def fields_in_text(cls: type, text: str) -> dict[str, Any]:
    """The fields in a text such as `0.3,small=error`: by name, or in the order of the class.

    A class whose first field is a tuple takes all that is not named into it.
    """
    words = [word.strip() for word in text.split(",")] if text else []
    named = dict(word.split("=", 1) for word in words if "=" in word)
    ordered = [word for word in words if "=" not in word]
    known = fields_of(cls)
    first = known[0].default if known else None
    found: dict[str, Any]
    if ordered and isinstance(first, tuple) and isinstance(first[0], tuple):
        found = {known[0].name: [labels(group) for group in ",".join(ordered).split("/")]}
    elif ordered and isinstance(first, tuple):
        found = {known[0].name: ordered}
    else:
        beyond = [f"field {i + 1}" for i in range(len(known), len(ordered))]
        found = dict(zip([*(f.name for f in known), *beyond], ordered, strict=False))
    return found | named


def labels(text: str) -> tuple[str | int, ...]:
    """The labels in a text; what is no range is left for the bounds to judge.

    >>> labels("0-2,5")
    (0, 1, 2, '5')
    """
    found: list[str | int] = []
    for part in text.split(","):
        span = re.fullmatch(r"\s*(\d{1,5})\s*-\s*(\d{1,5})\s*", part)
        found += range(int(span[1]), int(span[2]) + 1) if span else [part]
    return tuple(found)


def turns(angles: tuple[float, ...]) -> tuple[float, ...]:
    """Angles that differ; 2 to 12 alone is how many groups there are, for no group turns alone.

    >>> turns((3.0,)), turns((30.0,))
    ((0.0, 120.0, 240.0), (30.0,))
    """
    if len(angles) == 1 and angles[0] in range(2, 13):
        return tuple(360 * i / angles[0] for i in range(int(angles[0])))
    if not angles or len({a % 360 for a in angles}) < len(angles):
        raise ValueError("give at least one angle, and no two that mean the same")
    return angles


def build(cls: type[T], given: Mapping[str, Any]) -> T:
    """A kind with these fields, or every fault of them at once."""
    try:
        return cls(**given)
    except FieldError as cause:
        many = len(cause.faults) > 1
        known = ", ".join(f"{f.name}={f.default}" for f in fields_of(cls))
        raise ConfigError(
            f"{kebab(cls)} cannot have {'these fields' if many else 'this field'}",
            code="C021",
            why=cause.why,
            fix=f"its fields and their defaults: {known or 'none'}",
        ) from None


def unknown_kind(name: str, text: str, names: Sequence[str], also: Sequence[str]) -> ConfigError:
    """The error about a name that no kind has, with the nearest one that exists."""
    return ConfigError(
        f"no kind of partition is named {name!r}",
        code="C020",
        where=text,
        why=similar(name, [*names, *also], "one"),
        fix=f"use one of {', '.join(names)}; or {', '.join(also)}",
    )
