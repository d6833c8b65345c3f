"""The hyper-parameters of a method: the fields of its class."""

from __future__ import annotations

import dataclasses
import inspect
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any, get_type_hints

from coterie.config import fields
from coterie.config.fields import Field, Required
from coterie.config.schema import SOLVER
from coterie.core.errors import ConfigError
from coterie.methods import METHODS

ELSEWHERE = {"solver": ", ".join(SOLVER), "fraction": "participation"}  # what [train] sets instead


def all_fields(method: str) -> dict[str, Field]:
    """Every field of a method's class; one of the table is read from its source, not imported."""
    if method in METHODS:
        module, name = METHODS[method].path.split(":")
        return fields.fields(f"coterie.methods.{module}", name)
    return imported(method)


def hyperparameters(method: str) -> dict[str, Field]:
    """What a method's own table may hold: its fields without those that [train] sets.

    >>> hyperparameters("fedprox")["mu"].comment
    'strength of the pull to the global model'
    """
    return {key: f for key, f in all_fields(method).items() if key not in ELSEWHERE}


def paper(method: str) -> dict[str, Any]:
    """What [train] holds if everything is the method's own."""
    found = all_fields(method)
    out: dict[str, Any] = {}
    if "fraction" in found:
        out["participation"] = found["fraction"].default
    if "solver" in found:
        solver = found["solver"].default
        out |= {key: attrgetter(name)(solver) for key, name in SOLVER.items()}
    return out


def table_name(method: str) -> str:
    """The name of a method's own table: its name, or the class of a method of yours.

    >>> table_name("fedprox"), table_name("mine.methods:FedMine")
    ('fedprox', 'FedMine')
    """
    return method.rsplit(":", 1)[-1]


def imported(method: str) -> dict[str, Field]:
    """The fields of somebody else's class, "package.module:Class", which has to be imported."""
    module, _, name = method.partition(":")
    try:
        cls = getattr(import_module(module), name)
        hints = get_type_hints(cls, include_extras=True)
        known = dataclasses.fields(cls)
    except (ImportError, AttributeError, NameError, TypeError, ValueError) as cause:
        raise ConfigError(
            f"method {method!r} cannot be imported",
            code="C040",
            why=str(cause),
            fix='write "package.module:Class", a dataclass that can be imported from here',
        ) from cause
    comments = own_comments(cls)
    return {
        f.name: Field(hints[f.name], default_of(f), comments.get(f.name, ""))
        for f in known
        if f.init
    }


def default_of(field: dataclasses.Field[Any]) -> Any:
    """A dataclass field's default, made if it has to be made."""
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return Required


def own_comments(cls: type) -> dict[str, str]:
    """The comments beside the fields of an imported class, where its source is at hand."""
    try:
        path = inspect.getsourcefile(cls)
        text = Path(path).read_text(encoding="utf-8") if path else ""
    except (TypeError, OSError, UnicodeDecodeError):
        return {}
    return fields.comments(text, cls.__name__)
