"""What comparisons and tunings show of themselves: their runs as they go, and how they go on."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coterie.cli import progress, say
from coterie.core.events import Event, Listener
from coterie.core.units import count

LINES = 5  # that a run has for its rounds, where there is no terminal


@contextmanager
def going_on(folder: Path) -> Iterator[None]:
    """Tell whoever stops a comparison how it goes on."""
    try:
        yield
    except KeyboardInterrupt:
        say.note("\ninterrupted; every whole round is saved")
        say.label("next", f"{command(folder)}    goes on from there")
        raise SystemExit(130) from None  # an Exit would be taken for an interrupted run


def command(folder: Path) -> str:
    """The command that was given, with the folder it must name to go on."""
    known = sys.argv[1:2] in (["compare"], ["tune"])
    words = sys.argv[1:] if known else ["compare", "..."]
    if not any(w == "--out" or w.startswith("--out=") for w in words):
        words = [*words, "--out", str(folder)]
    return shlex.join(["coterie", *words])


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
