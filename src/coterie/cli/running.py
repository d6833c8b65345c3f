"""The one door to training: commands that train go through `execute`, `proceed` or `serve`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coterie.core import stopping
from coterie.core.events import Listener
from coterie.core.shell import command

if TYPE_CHECKING:
    from coterie.config import Config
    from coterie.engines.flower.serving import ServerAddress
    from coterie.studies.run.result import Result


def own_code(config: Config) -> bool:
    """Whether an experiment names code that is not coterie's: a folder runs it only if allowed."""
    return any(":" in name for name in (config.method, config.model.name, *config.evaluate.metrics))


def again(folder: Path, allow_code: bool, *more: object) -> str:
    """The command that goes on with a run."""
    return command("resume", folder, *["--allow-code"] * allow_code, *more)


def execute(config: Config, out: Path | None, listen: Listener, *, page: bool = True) -> Result:
    """Train a new experiment, into the folder given or a new one that the experiment names."""
    from coterie.studies.run import experiment

    folder = out or experiment.fresh(config)
    with under_way(folder, again(folder, own_code(config)), new=True):
        return experiment.execute(config, folder, listen, page=page)


def proceed(
    folder: Path,
    listen: Listener,
    settings: Iterable[tuple[str, Any]] = (),
    allow: Iterable[str] = (),
    *,
    allow_code: bool = False,
    page: bool = True,
) -> Result:
    """Train on where a run stopped."""
    from coterie.studies.run import experiment

    with under_way(folder, again(folder, allow_code)):
        return experiment.resume(
            folder,
            settings=settings,
            allow=allow,
            allow_code=allow_code,
            on_event=listen,
            page=page,
        )


def serve(
    config: Config, folder: Path, address: ServerAddress, listen: Listener, *, resume: bool
) -> Result:
    """Train an experiment with clients that join a server at this address."""
    from coterie.engines.flower.serving import serving
    from coterie.studies.remote.federation import run_federation

    with (
        under_way(folder, served(folder, address), new=not resume),
        serving(address, folder / "flower") as (grid, registered, check),
    ):
        return run_federation(
            grid,
            config,
            folder,
            listen,
            resume=resume,
            names=address.names,
            stands=address.plain(),
            registered=registered,
            check=check,
        )


def served(folder: Path, address: ServerAddress, *settings: str) -> str:
    """The command that goes on with a run whose clients join a server at this address."""
    how = ["--certs", address.certs] if address.certs else ["--insecure"]
    usual = type(address)(address.certs)
    for name in ("host", "port"):
        if (value := getattr(address, name)) != getattr(usual, name):
            how += [f"--{name}", value]
    return command("serve", "--resume", folder, *settings, *how)


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
    with stopping.begun():
        yield
    run.folder = None
