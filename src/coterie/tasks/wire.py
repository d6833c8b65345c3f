"""Tasks as text: what any engine that leaves this process sends to a client."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import fields
from importlib import import_module
from typing import Any

from coterie.core.errors import ConfigError
from coterie.core.types import Sendable, Task, place_of

PLACE = "class"  # the key that tells which class a table is of: no field can be called so
TRUSTED: set[str] = set()  # modules of others' whose functions a message may have called here
OURS = re.compile(r"coterie(\.[a-z]\w*)+")  # modules that a message may have imported by name


def encode(task: Task) -> str:
    """A task as JSON: where its class is defined and its fields, with all that lies in them."""
    return json.dumps(_plain(task), sort_keys=True)


def decode(text: str) -> Task:
    """The task that `encode` wrote. Only tasks this installation knows are made, nothing is run.

    Those of coterie itself are imported where they are named; tasks of your own are known where the
    module that defines them was imported. No other module is imported because a message names it.
    """
    task = _made(json.loads(text))
    if not isinstance(task, Task):
        raise _unknown(text[:80])
    for name in task.code:
        if (module := name.partition(":")[0]) not in TRUSTED:
            raise ConfigError(
                f"the server wants {name} called, which is not coterie's",
                code="C051",
                fix=f"join with --trust {module} if it is installed here and meant",
            )
    return task


def trust(module: str) -> None:
    """Import a module of others', and let messages name its tasks and functions."""
    import_module(module)
    TRUSTED.add(module)


def _plain(value: Any) -> Any:
    if isinstance(value, Sendable):
        body = {f.name: _plain(getattr(value, f.name)) for f in fields(value)}  # type: ignore[arg-type]
        return {PLACE: place_of(type(value)), **body}
    return value


def _made(value: Any) -> Any:
    if not (isinstance(value, dict) and PLACE in value):
        return value
    cls: Any = _class(value[PLACE])
    return cls(**{key: _made(field) for key, field in value.items() if key != PLACE})


def _class(place: object) -> type[Sendable]:
    if not isinstance(place, str):
        raise _unknown(place)
    module = place.partition(":")[0]
    if place not in Sendable.known and OURS.fullmatch(module):
        with suppress(ImportError):
            import_module(module)
    if place not in Sendable.known:
        raise _unknown(place)
    return Sendable.known[place]


def _unknown(name: object) -> ConfigError:
    return ConfigError(
        f"this client does not know the task {name!r}",
        code="C043",
        fix="install the same version of coterie, and of your own methods, on both sides",
    )
