"""The one door to training: commands that train go through `execute`, `proceed` or `serve`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from coterie.core.events import Event, Listener

if TYPE_CHECKING:
    from coterie.config import Config
    from coterie.engines.flower.serving import ServerAddress
    from coterie.studies.result import Result


class Done(NamedTuple):
    """A run that came to its end, and how long it took."""

    result: Result
    seconds: float


def execute(config: Config, out: Path | None, listen: Listener, *, page: bool = True) -> Done:
    """Train a new experiment, into the folder given or a new one that the experiment names."""
    from coterie.studies import experiment

    folder = out or experiment.fresh(config)
    with under_way(folder, f"coterie resume {folder}", new=True):
        return timed(listen, partial(experiment.execute, config, folder, page=page))


def proceed(
    folder: Path,
    listen: Listener,
    settings: Iterable[tuple[str, Any]] = (),
    allow: Iterable[str] = (),
    *,
    page: bool = True,
) -> Done:
    """Train on where a run stopped."""
    from coterie.studies import experiment

    resume = partial(experiment.resume, folder, settings=settings, allow=allow, page=page)
    with under_way(folder, f"coterie resume {folder}"):
        return timed(listen, lambda hear: resume(on_event=hear))


def serve(
    config: Config, folder: Path, address: ServerAddress, listen: Listener, *, resume: bool
) -> Done:
    """Train an experiment with clients that join a server at this address."""
    from coterie.engines.flower.serving import serving
    from coterie.studies.federation import run_federation

    with (
        under_way(folder, f"coterie serve --resume {folder} ...", new=not resume),
        serving(address, folder / "flower") as (grid, registered, check),
    ):
        run = partial(run_federation, grid, config, folder, resume=resume, names=address.names)
        return timed(listen, partial(run, registered=registered, check=check))


def timed(listen: Listener, run: Callable[[Listener], Result]) -> Done:
    """A run with somebody listening to its events, and the seconds that it says it took."""
    seconds = 0.0

    def hear(event: Event) -> None:
        nonlocal seconds
        if event["event"] == "done":
            seconds = float(event["seconds"])
        listen(event)

    return Done(run(hear), seconds)


@dataclass
class UnderWay:
    """The run that a command has begun and not ended: what whoever stops it needs to go on.

    One travels with each call of the command line, as the object of Click's context.
    """

    folder: Path | None = None
    again: str = ""  # the command that goes on with it

    @property
    def saved(self) -> bool:
        """Whether there is something in the folder to go on from."""
        saved = "checkpoints/[0-9]*/manifest.json"
        return self.folder is not None and any(self.folder.glob(saved))


@contextmanager
def under_way(folder: Path, again: str, *, new: bool = False) -> Iterator[None]:
    """Have a run under way in a folder until it ends well; if it does not, `again` goes on."""
    context = click.get_current_context(silent=True)
    run = (context and context.find_object(UnderWay)) or UnderWay()
    if not (new and (folder / "run.toml").exists()):  # what another run left is not this one's
        run.folder, run.again = folder, again
    yield
    run.folder = None
