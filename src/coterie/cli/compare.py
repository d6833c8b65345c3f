"""The command that compares methods."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli import options, progress, say
from coterie.cli.options import AllowCode, Quiet, Settings
from coterie.cli.tune import Budget, TuneBy, TuneSeeds, tuned_grid
from coterie.core.errors import ConfigError
from coterie.core.events import Event, Listener
from coterie.core.units import count

if TYPE_CHECKING:
    from coterie.runs.comparison import Comparison

LINES = 5  # that a run has for its rounds, where there is no terminal


def compare(
    settings: Settings = None,
    methods: Annotated[
        str | None,
        typer.Option(help="As fedavg,fedclust:clusters=4; or method = [...] in the file."),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="How many, or which: 0,3,7. 5 if not given.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at once, each in its process.")] = 1,
    target: Annotated[
        float | None, typer.Option(help="evaluate.target: the accuracy to reach, as 0.8.")
    ] = None,
    metrics: Annotated[
        str | None, typer.Option(help="evaluate.metrics, as macro_f1,auc: see docs/metrics.md.")
    ] = None,
    tune: Annotated[
        list[str] | None,
        typer.Option(help="Choose for each method first: 'lr=0.01,0.1 kin.margin=0.1,0.2'."),
    ] = None,
    tune_seeds: TuneSeeds = 2,
    tune_by: TuneBy = None,
    budget: Budget = None,
    out: Annotated[Path | None, typer.Option(help="The folder of the comparison.")] = None,
    format: Annotated[str, typer.Option(help="text, md, csv, latex or html.")] = "text",
    allow_code: AllowCode = False,
    quiet: Quiet = False,
) -> None:
    """Compare methods on equal terms: same clients, weights, draws.

    Every method is run with every seed. The same command with the same --out goes on after a stop,
    and the compare.toml of a comparison is a FILE that does all of it again.
    """
    from coterie.config.grid import grid, listed
    from coterie.runs.text_table import FORMATS

    if format not in FORMATS:
        what = f"there is no format {format}"
        raise ConfigError(what, code="C001", fix=f"one of {', '.join(FORMATS)}")
    more = tuple(metrics.split(",")) if metrics else None
    file, given = options.sort(settings, {"evaluate.target": target, "evaluate.metrics": more})
    which = None if seeds is None else chosen(seeds)
    asked = grid(file, given, listed(methods or ""), which, allow_code=allow_code)
    for config in asked.experiments.values():
        options.data_at_hand(config)
    for text in asked.notes:
        say.label("note", text)

    from coterie.studies.comparison.running import compare_grid, fresh

    folder = out or fresh()
    if tune:
        how: dict[str, Any] = {"seeds": tune_seeds, "by": tune_by, "budget": budget, "jobs": jobs}
        asked = tuned_grid(
            asked, file, given, tune, folder, **how, allow_code=allow_code, quiet=quiet
        )
    with going_on(folder), watching(quiet) as listen:
        found = compare_grid(asked, folder, jobs=jobs, on_event=listen)
    say.result(found.to(format))
    conclude(found, folder)


@contextmanager
def going_on(folder: Path) -> Iterator[None]:
    """Tell whoever stops a comparison how it goes on."""
    try:
        yield
    except KeyboardInterrupt:
        say.note("\ninterrupted; every whole round is saved")
        say.label("next", f"{command(folder)}    goes on from there")
        raise SystemExit(130) from None  # an Exit would be taken for an interrupted run


def conclude(found: Comparison, folder: Path) -> None:
    """What is in the folder, what failed, and what to do next."""
    from coterie.report import write_comparison

    for name, why in found.failed.items():
        say.label("failed", f"{name}  {why}")
    say.label("records", f"{folder}  (compare.toml, table.csv, a run for each method and seed)")
    page = write_comparison(folder)
    say.label("report", str(page))
    if found.failed:
        say.label("next", f"{command(folder)}    tries what failed again")
        raise typer.Exit(1)
    say.label("next", f"{page}    open it in a browser")


def command(folder: Path) -> str:
    """The command that was given, with the folder it must name to go on."""
    words = sys.argv[1:] if "compare" in sys.argv[1:2] else ["compare", "..."]
    if not any(w == "--out" or w.startswith("--out=") for w in words):
        words = [*words, "--out", str(folder)]
    return shlex.join(["coterie", *words])


def chosen(text: str) -> int | list[int]:
    """How many seeds, or which.

    >>> chosen("5"), chosen("0,3"), chosen("7,")
    (5, [0, 3], [7])
    """
    if not re.fullmatch(r"\d+(,\d+)*,?", text):
        raise ConfigError(
            f"--seeds is {text!r}", code="C001", fix="how many (5), or which: 0,3,7 (one: 7,)"
        )
    return [int(s) for s in text.split(",") if s] if "," in text else int(text)


@contextmanager
def watching(quiet: bool) -> Iterator[Listener]:
    """A listener that shows all runs of a comparison."""
    if quiet:
        yield failures
    elif sys.stderr.isatty():
        with bar() as listen:
            yield listen
    else:
        yield lines()


def failures(event: Event) -> None:
    """Only what a person must know."""
    if event["event"] == "failed":
        say.note(f"failed  {event['cell']}: {event['text'].splitlines()[0]}")


def lines() -> Listener:
    """A line when a run begins, goes on, ends or fails, and for some of its rounds."""
    told = False  # what the runs are about: the same data for all of them

    def listen(event: Event) -> None:
        nonlocal told
        failures(event)
        cell = event.get("cell", "")
        match event["event"]:
            case "comparison":
                say.label("compare", f"{count(event['cells'], 'run')} in {event['folder']}")
            case "already":
                say.label("run", f"{cell}  done before")
            case "compiling":
                for text in progress.outlook(event):
                    say.note(text)
            case "start" | "resume":
                for text in [] if told else progress.outlook(event):
                    say.note(text)
                told = True
                at = f"continues after round {event['round']} of" if event["round"] else "begins:"
                say.label("run", f"{cell}  {at} {count(event['rounds'], 'round')}")
            case "round" if event["round"] == event["rounds"]:
                rounds = count(event["rounds"], "round")
                say.label("run", f"{cell}  {rounds}  {progress.numbers(event)}")
            case "round" if event["round"] and event["round"] % -(-event["rounds"] // LINES) == 0:
                at = f"{event['round']}/{event['rounds']}"
                say.label("run", f"{cell}  {at}  {progress.numbers(event)}")
            case "warning":
                say.label("note", f"{cell}  {event['text']}")

    return listen


@contextmanager
def bar() -> Iterator[Listener]:
    """Two bars on a terminal: the runs, and the rounds of the run that was heard of last."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = Console(stderr=True, highlight=False)
    columns = (
        TextColumn("{task.description:<24}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[numbers]}"),
    )
    with Progress(*columns, console=console) as shown:
        runs = shown.add_task("runs", total=None, numbers="")
        rounds = shown.add_task("", total=None, numbers="")

        def listen(event: Event) -> None:
            match event["event"]:
                case "comparison":
                    shown.update(runs, total=event["cells"])
                case "failed":
                    shown.console.print(f"failed  {event['cell']}: {event['text']}", markup=False)
                    shown.advance(runs)
                case "done" | "already":
                    shown.advance(runs)
                case "start" | "resume" | "round":
                    shown.update(
                        rounds,
                        description=event["cell"],
                        completed=event["round"],
                        total=event["rounds"],
                        numbers=progress.numbers(event, short=True),
                    )

        yield listen
