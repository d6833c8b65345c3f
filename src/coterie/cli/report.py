"""Commands that show a run: report and open what came out, live what goes on."""

from __future__ import annotations

import warnings
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli import say
from coterie.cli.options import AllowCode, Run
from coterie.core.errors import ConfigError
from coterie.core.shell import command
from coterie.runs.whereabouts import reportable

if TYPE_CHECKING:
    from coterie.report import RunData
    from coterie.report.run_data import Insight
    from coterie.runs.text_table import TextTable

Format = StrEnum("Format", ["html", "csv", "md", "latex"])  # what a report is written as


def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Runs, comparisons, or folders of them.")
    ],
    format: Annotated[
        Format, typer.Option(help="A page (html), or a table of the runs on stdout.")
    ] = Format.html,
    figures: Annotated[
        bool, typer.Option("--figures", help="Every chart as a file, in RUN/figures.")
    ] = False,
    kinds: Annotated[str, typer.Option("--as", help="Of figures: pdf,svg,png.")] = "pdf",
    out: Annotated[
        Path | None, typer.Option(help="Another file for the page, or folder for the figures.")
    ] = None,
    allow_code: AllowCode = False,
) -> None:
    """Build the page of a run, its table, or its figures.

    The page is one file that needs no network. Runs that are still going can be looked at, too.
    """
    folders = [found for folder in folders for found in reportable(folder)]
    if out and len(folders) > 1:
        raise ConfigError("--out names one place for several runs", code="C001", fix="leave it out")
    import torch

    torch.set_num_threads(1)
    told = partial(insight, allow_code=allow_code)
    if figures:
        from coterie.report.figures import write_figures

        for folder in folders:
            place = out or folder / "figures"
            for file in write_figures(folder, place, kinds.split(","), insight=told):
                say.result(str(file))
        return
    if format is not Format.html:
        tables(folders, format.value)
        return
    for folder in folders:
        say.result(str(page(folder, out, allow_code=allow_code)))
    say.label("next", command("open", folders[-1]))


def open_page(
    folder: Annotated[
        Path, typer.Argument(metavar="RUN|PAGE", help="A run, comparison or demo, or a page.")
    ],
) -> None:
    """Open a run's page in the browser."""
    file = folder if folder.suffix == ".html" and folder.is_file() else folder / "report.html"
    if not file.exists():
        file = page(reportable(folder)[-1])
    say.result(str(file))
    if not webbrowser.open(file.resolve().as_uri()):
        say.label("note", "no browser was found here; open the file in one")


def page(folder: Path, out: Path | None = None, *, allow_code: bool = False) -> Path:
    """The page of a run or a comparison."""
    from coterie.report import write_comparison, write_run

    if (folder / "compare.toml").exists():
        return write_comparison(folder, out)
    return write_run(folder, out, insight=partial(insight, allow_code=allow_code))


def insight(folder: Path, *, allow_code: bool = False) -> Insight | None:
    """What the clients' data tell of a run: they are read again, as its settings say."""
    from coterie.studies.finished.opening import open_run

    return open_run(folder, allow_code=allow_code).insight


def tables(folders: list[Path], format: str) -> None:
    """Comparisons in their own tables, runs in one."""
    from coterie.report import read
    from coterie.runs.comparison import Comparison

    for folder in folders:
        if (folder / "compare.toml").exists():
            say.result(Comparison.load(folder).to(format))
    runs = [read(f, memory=False) for f in folders if (f / "run.toml").exists()]
    if runs:
        say.result(table_of_runs(runs).to(format))


def table_of_runs(runs: list[RunData]) -> TextTable:
    """A row for each run."""
    from coterie.runs.text_table import TextTable

    head = ("run", "method", "rounds", "clients", "accuracy", "worst client", "worst tenth")
    more = ("models", "clusters", "ARI", "bytes up", "bytes down")

    def last(run: RunData, metric: str, stage: str | None = None, shown: str = ".4f") -> str:
        value = run.value(metric, stage)
        return format(value, shown) if value == value else ""

    rows = tuple(
        (
            str(run.folder),
            run.method,
            f"{run.rounds[-1] if len(run.rounds) else 0}",
            f"{run.n}",
            *(last(run, f"accuracy_{m}") for m in ("mean", "worst", "bottom_10pct")),
            run.kind,
            *(
                (last(run, "clusters", "clusters", ".0f"), last(run, "ari", "clusters"))
                if run.kind == "clustered"
                else ("", "")
            ),
            f"{run.up.sum():.0f}",
            f"{run.down.sum():.0f}",
        )
        for run in runs
    )
    return TextTable("", head + more, rows)


def live(
    folder: Run,
    port: Annotated[int, typer.Option(help="The port; 0 is any that is free.")] = 0,
) -> None:
    """Watch a run in the browser.

    While it goes, after it, and across a resume. Only this machine can look, and nothing can be
    changed. Ctrl-C ends the view and leaves the run alone.
    """
    from coterie.live import listening
    from coterie.live.server import Server

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
