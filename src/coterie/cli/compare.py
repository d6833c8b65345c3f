"""The command that compares methods."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli import options, say
from coterie.cli.options import AllowCode, Quiet, Settings
from coterie.cli.several import command, going_on, watching
from coterie.cli.tune import Budget, TuneBy, TuneSeeds, tuned_grid
from coterie.core.errors import ConfigError

if TYPE_CHECKING:
    from coterie.runs.comparison import Comparison


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
        typer.Option(help="Choose for each method first: 'lr=0.01,0.1 kin.gain=0.1,0.2'."),
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

    options.expect_format(format)
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
