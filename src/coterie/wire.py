"""Tasks as text: what any engine that leaves this process sends to a client."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from coterie.errors import ConfigError
from coterie.types import Task


def encode(task: Task) -> str:
    """A task as JSON: its name and its fields, tasks inside tasks included."""
    return json.dumps(_plain(task), sort_keys=True)


def decode(text: str) -> Task:
    """The task that `encode` wrote. Only tasks this installation knows are made, nothing is run."""
    task = _task(json.loads(text))
    assert isinstance(task, Task)
    return task


def _plain(value: Any) -> Any:
    if isinstance(value, Task):
        body = {f.name: _plain(getattr(value, f.name)) for f in fields(value)}  # type: ignore[arg-type]
        return {"task": type(value).__name__, **body}
    return value


def _task(value: Any) -> Any:
    if not (isinstance(value, dict) and "task" in value):
        return value
    body = {name: _task(field) for name, field in value.items() if name != "task"}
    if value["task"] not in Task.known:
        raise ConfigError(
            f"this client does not know the task {value['task']!r}",
            code="C043",
            fix="install the same version of coterie, and of your own methods, on both sides",
        )
    return Task.known[value["task"]](**body)
