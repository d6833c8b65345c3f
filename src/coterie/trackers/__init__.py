"""Runs shown in other programs: TensorBoard, MLflow, Weights & Biases.

A tracker hears the events of a run and passes its numbers on. Nothing depends on one: a tracker
that fails becomes a warning among the events and hears nothing more, and the run goes on. None of
them reaches another machine unless the user named it.

May touch: core, runs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from coterie.core.errors import ConfigError
from coterie.core.events import Event, Listener
from coterie.runs.records import RunFolder
from coterie.trackers.programs import MLflow, TensorBoard, WandB


class Tracker(Protocol):
    """Another program that follows a run. Its adapter is made from the folder it may write in."""

    def start(self, facts: Mapping[str, Any], at: int) -> None:
        """A run begins, or goes on after round `at`; `facts` are what it was asked to do."""

    def log(self, at: int, numbers: Mapping[str, float]) -> None:
        """The numbers of round `at`."""

    def end(self, whole: bool) -> None:
        """The run came to its end, or was stopped before it."""


TRACKERS: dict[str, Callable[[Path], Tracker]] = {  # each by the name of the package it needs
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": WandB,
}


def find(name: str) -> Callable[[Path], Tracker]:
    """An adapter by its name, if its package is installed."""
    if name not in TRACKERS:
        raise ConfigError(
            f"there is no tracker called {name!r}",
            code="C045",
            fix=f"use one of {', '.join(TRACKERS)}",
        )
    if find_spec(name) is None:
        raise ConfigError(
            f"the tracker {name} is not installed",
            code="C045",
            why=f"there is no package {name}",
            fix=f"pip install 'coterie[{name}]', or leave the tracker out",
        )
    return TRACKERS[name]


@dataclass
class Tracking:
    """A listener of a run that tells trackers of it. As a context, it ends them with the run."""

    trackers: dict[str, Tracker]
    folder: Path
    settings: Mapping[str, Any]
    then: Listener

    def __call__(self, event: Event) -> None:
        """Hear one event: pass it on, then tell the trackers."""
        self.then(event)
        match event["event"]:
            case "start" | "resume":
                facts = {**self.settings, **{k: event[k] for k in FACTS if k in event}}
                self.tell(lambda tracker: tracker.start(facts, event["round"]))
            case "round":
                found = numbers(event)
                self.tell(lambda tracker: tracker.log(event["round"], found))
            case "done":
                self.close(whole=True)

    def tell(self, what: Callable[[Tracker], None]) -> None:
        """Tell every tracker; one that fails is told no more."""
        for name, tracker in list(self.trackers.items()):
            try:
                what(tracker)
            except Exception as error:  # whatever a foreign program does, the run goes on
                del self.trackers[name]
                self.warn(f"{name} no longer follows: {type(error).__name__}: {error}")

    def warn(self, text: str) -> None:
        """One event more: in the records, if there are any, and to whoever listens."""
        event = {"event": "warning", "text": text}
        if (self.folder / "events.jsonl").exists():
            RunFolder(self.folder).event(event)
        self.then(event)

    def close(self, *, whole: bool) -> None:
        """End every tracker, once."""
        self.tell(lambda tracker: tracker.end(whole))
        self.trackers.clear()

    def __enter__(self) -> Tracking:
        return self

    def __exit__(self, *_: object) -> None:
        self.close(whole=False)


FACTS = ("method", "clients", "parameters", "rounds")


def numbers(event: Event) -> dict[str, float]:
    """The numbers of a round, by name.

    >>> numbers({"event": "round", "round": 3, "rounds": 9, "accuracy": 0.5})
    {'accuracy': 0.5}
    """
    return {
        name: float(value)
        for name, value in event.items()
        if isinstance(value, int | float) and name not in ("round", "rounds", "time")
    }


def track(
    names: str | Iterable[str],
    folder: str | Path,
    *,
    settings: Mapping[str, Any] | None = None,
    then: Listener | None = None,
) -> Tracking:
    """A listener for `fit(on_event=...)` that tells trackers of the run.

    They write inside `folder`. `settings` are shown beside the run; `then` hears every event too,
    and the warning if a tracker fails.
    """
    chosen = [names] if isinstance(names, str) else list(names)
    made = {name: find(name)(Path(folder)) for name in chosen}
    return Tracking(made, Path(folder), settings or {}, then or speak)


def speak(event: Event) -> None:
    """What is heard where nobody listens: only warnings of the trackers themselves."""
    if event["event"] == "warning" and "no longer follows" in event["text"]:
        warnings.warn(event["text"], stacklevel=2)
