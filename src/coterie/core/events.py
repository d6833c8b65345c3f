"""What happens in a run, as it is told to whoever listens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Event = dict[str, Any]
"""One thing that happened: its kind under "event" ("start", "round", "warning", "done", ...), and
whatever belongs to that kind, all of it plain values that JSON can hold."""

Listener = Callable[[Event], None]
"""Whoever wants to hear of a run: called with every event, in order, in the run's own thread."""


def silence(event: Event) -> None:
    """The listener of a run that nobody listens to."""
