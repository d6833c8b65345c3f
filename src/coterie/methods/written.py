"""A method as plain values, and back: how a run that Python started can be opened again."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from coterie.core.errors import ConfigError
from coterie.core.types import Method, place_of

PLACE = "class"  # the key that tells which class a table is of: no field can be called so
OURS = re.compile(r"coterie(\.[a-z]\w*)+:\w+")
PLAIN = (bool, int, float, str, type(None))


def as_plain(method: Any) -> dict[str, Any] | None:
    """A method's class and its fields, with all that lies in them; None if they are not plain."""
    try:
        found = _plain(method)
    except TypeError:
        return None
    return found if isinstance(found, dict) and PLACE in found else None


def from_plain(plain: Mapping[str, Any], *, allow_code: bool = False) -> Method:
    """The method that `as_plain` wrote; a class that is not coterie's only with `allow_code`."""
    method: Method = _made(plain, allow_code)
    return method


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        if "<" in place_of(type(value)) or type(value).__module__ == "__main__":
            raise TypeError("it can be imported from nowhere")
        body = {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
        return {PLACE: place_of(type(value)), **body}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if not isinstance(value, PLAIN):
        raise TypeError(f"{type(value).__name__} is no plain value")
    return value


def _made(value: Any, allow_code: bool) -> Any:
    if isinstance(value, list):
        return tuple(_made(v, allow_code) for v in value)
    if not isinstance(value, dict):
        return value
    body = {k: _made(v, allow_code) for k, v in value.items() if k != PLACE}
    if PLACE not in value:
        return body
    place = str(value[PLACE])
    if not (OURS.fullmatch(place) or allow_code):
        raise ConfigError(
            f"the method {place} is not coterie's",
            code="C040",
            why="making it runs code of yours, which a folder from elsewhere must not choose",
            fix="say so if it is meant: --allow-code, or allow_code=True in Python",
        )
    try:
        cls = pkgutil.resolve_name(place)
    except (ImportError, AttributeError) as cause:
        raise ConfigError(
            f"the method {place} cannot be imported",
            code="C040",
            why=str(cause),
            fix="install the module it is in, or put its folder on PYTHONPATH",
        ) from cause
    if not (isinstance(cls, type) and is_dataclass(cls)):
        raise ConfigError(
            f"{place} is no method", code="C040", fix="start from a folder that coterie wrote"
        )
    return cls(**body)
