"""Tasks as text: what any engine that leaves this process sends to a client."""

from __future__ import annotations

import json
import pkgutil
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

from coterie.core.errors import ConfigError
from coterie.core.types import Task


def encode(task: Task) -> str:
    """A task as JSON: its name and its fields, tasks inside tasks included."""
    return json.dumps(_plain(task), sort_keys=True)


def decode(text: str) -> Task:
    """The task that `encode` wrote. Only tasks this installation knows are made, nothing is run.

    Those of coterie's own methods are known without being imported before; tasks of your own are
    known where the module that defines them was imported.
    """
    task = _task(json.loads(text))
    if not isinstance(task, Task):
        raise _unknown(text[:80])
    return task


def acquaint() -> None:
    """Import every method of coterie, so that their tasks are known."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent / "methods")]):
        import_module(f"coterie.methods.{module.name}")


def _plain(value: Any) -> Any:
    if isinstance(value, Task):
        body = {f.name: _plain(getattr(value, f.name)) for f in fields(value)}  # type: ignore[arg-type]
        return {"task": type(value).__name__, **body}
    return value


def _task(value: Any) -> Any:
    if not (isinstance(value, dict) and "task" in value):
        return value
    name = value["task"]
    if not isinstance(name, str):
        raise _unknown(name)
    body = {key: _task(field) for key, field in value.items() if key != "task"}
    if name not in Task.known:
        acquaint()
    if name not in Task.known:
        raise _unknown(name)
    return Task.known[name](**body)


def _unknown(name: object) -> ConfigError:
    return ConfigError(
        f"this client does not know the task {name!r}",
        code="C043",
        fix="install the same version of coterie, and of your own methods, on both sides",
    )
