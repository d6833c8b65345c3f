"""The one door to training: every command that trains goes through these two calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from coterie.config import Config
    from coterie.studies.result import Result

Event = dict[str, Any]
Listener = Callable[[Event], None]

_folder: Path | None = None


class Done(NamedTuple):
    """A run that came to its end, and how long it took."""

    result: Result
    seconds: float


def fresh(config: Config) -> Path:
    """A new folder for an experiment, as it names it."""
    from coterie.studies import experiment

    return experiment.fresh(config)


def execute(config: Config, out: Path | None, listen: Listener) -> Done:
    """Train a new experiment, into the folder given or a new one that the experiment names."""
    from coterie.studies import experiment

    folder = out or experiment.fresh(config)
    if not (folder / "run.toml").exists():  # another run's folder is not this one's to resume
        _enter(folder)
    clock = Clock(listen)
    result = experiment.execute(config, folder, clock)
    _leave()
    return Done(result, clock.seconds)


def proceed(
    folder: Path, listen: Listener, settings: Iterable[tuple[str, Any]], allow: Iterable[str]
) -> Done:
    """Train on where a run stopped."""
    from coterie.studies import experiment

    _enter(folder)
    clock = Clock(listen)
    result = experiment.resume(folder, settings=settings, allow=allow, on_event=clock)
    _leave()
    return Done(result, clock.seconds)


class Clock:
    """A listener that passes every event on and remembers how long the run took."""

    def __init__(self, listen: Listener) -> None:
        self.listen, self.seconds = listen, 0.0

    def __call__(self, event: Event) -> None:
        """Hear one event."""
        if event["event"] == "done":
            self.seconds = float(event["seconds"])
        self.listen(event)


def resumable() -> Path | None:
    """The folder of the run that was under way, if there is something in it to go on from."""
    if _folder and any(_folder.glob("checkpoints/[0-9]*/manifest.json")):
        return _folder
    return None


def _enter(folder: Path) -> None:
    global _folder
    _folder = folder


def _leave() -> None:
    global _folder
    _folder = None
