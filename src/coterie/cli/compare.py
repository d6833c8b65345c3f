"""The command that compares methods."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli import options, say
from coterie.cli.options import AllowCode, Quiet, Settings
from coterie.cli.several import command, going_on, watching
from coterie.cli.tune import Budget, TuneBy, TuneSeeds, tuned_grid
from coterie.core import shell
from coterie.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from coterie.config.grid import Grid
    from coterie.runs.comparison import Comparison
    from coterie.studies.comparison.sweep import Point


Target = Annotated[
    str | None, typer.Option(help="evaluate.target: the accuracy to reach, or several: 0.7,0.8")
]
Sweep = Annotated[
    list[str] | None,
    typer.Option(help="A comparison for each value: partition.alpha=0.1,0.5,1"),
]
Tune = Annotated[
    list[str] | None,
    typer.Option(help="Choose for each method first: 'lr=0.01,0.1 kin.gain=0.1,0.2'."),
]
Seeds = Annotated[str | None, typer.Option(help="How many, or which: 0,3,7. 5 if not given.")]
Metrics = Annotated[
    str | None, typer.Option(help="evaluate.metrics, as macro_f1,auc: see docs/metrics.md.")
]
Methods = Annotated[
    str | None,
    typer.Option(help="As fedavg,fedclust:clusters=4; or method = [...] in the file."),
]


def compare(
    settings: Settings = None,
    methods: Methods = None,
    seeds: Seeds = None,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at once, each in its process.")] = 1,
    target: Target = None,
    sweep: Sweep = None,
    metrics: Metrics = None,
    tune: Tune = None,
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
    and the compare.toml of a comparison is a FILE that does all of it again. With --sweep there is
    one for each value of a setting, also of one that changes the clients.
    """
    from coterie.config.grid import grid, listed
    from coterie.studies.comparison import sweep as sweeping

    options.expect_format(format)
    more, wanted = tuple(metrics.split(",")) if metrics else None, shares(target)
    first = wanted[0] if wanted else None
    file, given = options.sort(settings, {"evaluate.target": first, "evaluate.metrics": more})
    which = None if seeds is None else chosen(seeds)
    grids = {
        point: grid(file, [*given, *point], listed(methods or ""), which, allow_code=allow_code)
        for point in sweeping.points(sweep or ())
    }
    prepare(grids.values())

    def tuned(asked: Grid, point: Point, folder: Path) -> Grid:
        how: dict[str, Any] = {"seeds": tune_seeds, "by": tune_by, "budget": budget, "jobs": jobs}
        how |= {"allow_code": allow_code, "quiet": quiet}
        return tuned_grid(asked, file, [*given, *point], tune, folder, **how) if tune else asked

    found = run_all(grids, tuned, out, jobs, quiet)
    if sweep:
        say.result(sweeping.table(found.runs).to(format))
        say.label("records", f"{sweeping.save(found.runs, found.out)}  (with a folder for each)")
    failed = [show(one, found.out, wanted, format, whole=not sweep) for one in found.runs.values()]
    if any(failed):
        raise typer.Exit(1)


@dataclass(frozen=True)
class Found:
    """The comparisons of a command, and the folder of all of them."""

    out: Path
    runs: dict[Point, Comparison]


def run_all(
    grids: Mapping[Point, Grid],
    tuned: Callable[[Grid, Point, Path], Grid],
    out: Path | None,
    jobs: int,
    quiet: bool,
) -> Found:
    """One comparison after another, each in its folder, or the only one in `out` itself."""
    from coterie.studies.comparison import sweep as sweeping
    from coterie.studies.comparison.running import compare_grid, fresh

    found = Found(out or fresh(), {})
    for point, asked in grids.items():
        folder = found.out / sweeping.folder(point) if point else found.out
        chosen = tuned(asked, point, folder)
        with going_on(found.out), watching(quiet) as listen:
            found.runs[point] = compare_grid(chosen, folder, jobs=jobs, on_event=listen)
    return found


def prepare(grids: Iterable[Grid]) -> None:
    """See that all data are at hand, and tell what the files want told, each once."""
    known = list(grids)
    for config in (c for asked in known for c in asked.experiments.values()):
        options.data_at_hand(config)
    for text in dict.fromkeys(note for asked in known for note in asked.notes):
        say.label("note", text)


def show(
    found: Comparison, out: Path, wanted: Sequence[float], format: str, *, whole: bool
) -> bool:
    """The tables of a comparison, of one among several only that of its targets; whether it failed.

    Then its page, what is in its folder, and what to do next.
    """
    from coterie.runs.targets import targets

    if whole:
        say.result(found.to(format))
    if len(wanted) > 1:
        say.result(targets(found, wanted).to(format))
    return conclude(found, out)


def shares(text: str | None) -> tuple[float, ...]:
    """The targets of a text, as 0.7,0.8.

    >>> shares("0.7,0.8"), shares(None)
    ((0.7, 0.8), ())
    """
    try:
        found = tuple(float(word) for word in (text or "").split(",") if word.strip())
    except ValueError:
        found = (-1.0,)
    if not all(0 <= t <= 1 for t in found):
        fix = "accuracies between 0 and 1: 0.8, or 0.7,0.8"
        raise ConfigError(f"--target is {text!r}", code="C001", fix=fix)
    return found


def conclude(found: Comparison, out: Path) -> bool:
    """What is in the folder, what failed, and what to do next; whether anything failed."""
    from coterie.report import write_comparison

    for name, why in found.failed.items():
        say.label("failed", f"{name}  {why}")
    what = "compare.toml, table.csv, a run for each method and seed"
    say.label("records", f"{found.folder}  ({what})")
    page = write_comparison(found.folder)
    say.label("report", str(page))
    if found.failed:
        say.label("next", f"{command(out)}    tries what failed again")
        return True
    say.label("next", f"{shell.command('open', found.folder)}    look at the page")
    return False


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
