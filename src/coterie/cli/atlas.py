"""The command that maps who wins where."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli import options, say
from coterie.cli.options import Quiet
from coterie.core.errors import ConfigError
from coterie.core.events import Event
from coterie.core.shell import command
from coterie.core.units import count

if TYPE_CHECKING:
    from coterie.studies.atlas.grid import Atlas, Place
    from coterie.studies.atlas.running import Asked

GRIDS = ("core", "full")


def atlas(
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Settings above the grid's: a cut one."),
    ] = None,
    grid: Annotated[str, typer.Option(help="core, six hours on two cores; or full.")] = "core",
    role: Annotated[str, typer.Option(help="Only cells for development, or evaluation.")] = "",
    kinds: Annotated[str, typer.Option(help="Only these, as none,rotation.")] = "",
    data: Annotated[str, typer.Option(help="Only these sets, as digits,mnist.")] = "",
    sizes: Annotated[str, typer.Option(help="Only these sizes of clients, as 30,100.")] = "",
    methods: Annotated[str, typer.Option(help="Only these of the grid's methods.")] = "",
    method: Annotated[
        list[str] | None, typer.Option(help="One more, of yours: package.module:Class.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, max=3, help="How many of each.")] = 3,
    part: Annotated[str, typer.Option(help="A share of the cells, as 1/2 and 2/2.")] = "1/1",
    out: Annotated[Path, typer.Option(help="The folder of the atlas.")] = Path("runs/atlas"),
    results: Annotated[
        list[Path] | None, typer.Option(help="Results that stand: their cells are not run.")
    ] = None,
    run: Annotated[bool, typer.Option(help="Run what is missing, or only show the rest.")] = True,
    format: Annotated[str, typer.Option(help="text, md, csv, latex or html.")] = "text",
    advice: Annotated[Path | None, typer.Option(help="Write here what inspect advises by.")] = None,
    save: Annotated[
        Path | None, typer.Option(help="Write all results that count as one CSV.")
    ] = None,
    list: Annotated[bool, typer.Option("--list", help="Only say what would be run.")] = False,
    quiet: Quiet = False,
) -> None:
    """Map which method is best for which clients.

    Kinds of difference x data x sizes x methods. Each method's settings are chosen on validation
    data with the same budget. The same command goes on after a stop; results.csv is all that it
    needs for it.
    """
    from coterie.studies.atlas.grid import Atlas
    from coterie.studies.atlas.running import Asked

    options.expect_format(format)
    found = Atlas.load()
    asked = Asked(
        found,
        out,
        tuple(selected(found, grid, role, kinds, data, sizes)),
        tuple(contestants(found, methods) + own(found, method)),
        seeds,
        share_of(part),
        tuple(options.assigned(settings)),
        tuple(results or []),
    )
    if asked.absent:
        say.label("skipped", f"{', '.join(asked.absent)}: not on this machine (coterie datasets)")
    if list:
        show(asked)
        return
    failed = run_missing(asked, quiet) if run else 0
    conclude(asked, format, advice, save)
    if failed:
        say.label("next", f"{command(*sys.argv[1:])}    tries what failed again")
        raise typer.Exit(1)


def conclude(asked: Asked, format: str, advice: Path | None, save: Path | None) -> None:
    """What the results say, where they lie, and if it is wanted what is learned from them."""
    from coterie.report.again import typed
    from coterie.studies.atlas.page import text, write_page

    known = asked.known()
    say.result(text(known, format))
    if advice:
        from coterie.studies.atlas.advice import learned

        learned(known).save(advice)
        say.label("advice", str(advice))
    if save:
        known.save(save)
    say.label("records", str(save or asked.file))
    again = typed(Path.cwd(), sys.argv[1:])
    say.page(write_page(known, asked.out / "report.html", again), asked.out)


def contestants(found: Atlas, methods: str) -> list[str]:
    """The methods that are asked for, named with or without the settings that they have here."""
    from coterie.config.grid import split
    from coterie.studies.atlas.grid import chosen

    labels = {split(label)[0]: label for label in found.methods}
    names = [split(name)[0] for name in dict.fromkeys(options.words(methods))]
    return [labels[name] for name in chosen("method", names, [*labels])]


def own(found: Atlas, methods: Sequence[str] | None) -> list[str]:
    """Methods that join; one that cannot be imported is said before anything is run."""
    for label in methods or []:
        found.contestant(label).candidates(label)
    return [*(methods or [])]


def selected(found: Atlas, grid: str, role: str, kinds: str, data: str, sizes: str) -> list[Place]:
    """The places that are asked for."""
    from coterie.studies.atlas.grid import chosen

    (which,) = chosen("grid", [grid], GRIDS)
    roles = chosen("role", options.words(role), [*found.roles])
    some = chosen("kind of difference", options.words(kinds), [*found.kinds])
    sets = chosen("data set", options.words(data), [*found.data])
    there = dict.fromkeys(str(p.size) for p in found.everywhere)
    many = chosen("size", options.words(sizes), [*there])
    return [
        p
        for p in found.places(which)
        if p.kind in some and p.data in sets and str(p.size) in many and found.role(p) in roles
    ]


def share_of(text: str) -> tuple[int, int]:
    """Which of how many parts.

    >>> share_of("2/3")
    (2, 3)
    """
    first, _, last = text.partition("/")
    if not (first.isdigit() and last.isdigit() and 1 <= int(first) <= int(last)):
        raise ConfigError(f"--part is {text!r}", code="C001", fix="as 1/2, the first of two")
    return int(first), int(last)


def run_missing(asked: Asked, quiet: bool) -> int:
    """Run what is not done yet; how many runs failed."""
    from coterie.studies.atlas.running import run

    failed = 0

    def listen(event: Event) -> None:
        nonlocal failed
        failed += "failed" in event
        (failures if quiet else lines)(event)

    try:
        run(asked, listen)
    except KeyboardInterrupt:
        say.note("\ninterrupted; every run that was done is in the results")
        say.label("next", f"{command(*sys.argv[1:])}    goes on from there")
        raise SystemExit(130) from None
    return failed


def failures(event: Event) -> None:
    """Only what a person must know."""
    if "failed" in event:
        cell = event["cell"]
        what = event["failed"].splitlines()[0]
        say.note(f"failed  {cell.place} · {cell.method} · seed {cell.seed}: {what}")


def lines(event: Event) -> None:
    """A line for each run."""
    failures(event)
    if event["event"] == "atlas":
        say.label("atlas", f"{count(event['cells'], 'run')} to do, {event['known']:,} known")
    elif "row" in event:
        cell, row = event["cell"], event["row"]
        at = f"{event['number']}/{event['cells']}"
        who = f"{cell.place} · {cell.method} · seed {cell.seed}"
        say.label(at, f"{who}: {say.percent(row.accuracy)}  {say.seconds(event['seconds'])}")


def show(asked: Asked) -> None:
    """What would be run: places by data and kind, and how many runs that is."""
    atlas, cells = asked.atlas, asked.cells()
    known = asked.known()
    rows = [
        (kind, atlas.kinds[kind].what, ", ".join(sorted({f"{p.data} {p.size}" for p in places})))
        for kind in atlas.kinds
        if (places := [p for p in asked.places if p.kind == kind])
    ]
    say.result(say.table(("kind", "what differs", "places"), rows))
    missing = sum(known.result(cell) is None for cell in cells)
    say.result(f"{count(len(cells), 'run')}, of which {missing:,} are not known yet")
