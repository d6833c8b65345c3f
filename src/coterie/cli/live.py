"""Watching a run: live."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from coterie.cli import say


def live(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    port: Annotated[int, typer.Option(help="The port; 0 is any that is free.")] = 0,
) -> None:
    """Watch a run in the browser.

    While it goes, after it, and across a resume. Only this machine can look, and nothing can be
    changed. Ctrl-C ends the view and leaves the run alone.
    """
    import warnings

    from coterie.live import listening
    from coterie.live.server import Server
    from coterie.runs.records import expect_run

    expect_run(folder)
    view = listening(port)
    say.label("live", f"{view.address}    Ctrl-C ends the view")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of empty tables, while a run has none
        with Server(folder, view.socket, view.token) as server:
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                say.note()


@contextmanager
def watched(folder: Path, wanted: bool) -> Iterator[None]:
    """A run, with its view beside it if that was wanted."""
    if not wanted:
        yield
        return
    from coterie.live import beside

    with beside(folder) as address:
        say.label("live", address)
        yield
