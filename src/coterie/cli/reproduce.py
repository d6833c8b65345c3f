"""The command that does a paper's table again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli import options, say
from coterie.cli.options import Quiet
from coterie.cli.several import watching
from coterie.core.shell import command
from coterie.core.units import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.studies.reproduction.results import Row
    from coterie.studies.reproduction.running import Asked


Results = Annotated[
    Path | None,
    typer.Option(help="A folder of CSVs: what it has is not run again, what is new joins it."),
]
Copy = Annotated[
    Path | None, typer.Option(help="Only write its experiment file here, to change it.")
]
Tune = Annotated[
    list[str] | None,
    typer.Option(help="Only choose what a paper leaves open: 'dapfl.lam=0.01,0.1,1'."),
]
Which = Annotated[
    str, typer.Option("--setting", help="Only these settings: parts of names, as alpha=0.5.")
]
Out = Annotated[Path, typer.Option(help="The folder of all reproductions.")]


def reproduce(
    table: Annotated[str | None, typer.Argument(help="A table, as fedclust-1.")] = None,
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings above its file.")
    ] = None,
    dataset: Annotated[str, typer.Option(help="Only these data, as fashion-mnist,cifar10.")] = "",
    setting: Which = "",
    methods: Annotated[str, typer.Option(help="Only these, by the paper's name or ours.")] = "",
    seeds: Annotated[int, typer.Option(min=1, help="How many, counted from 0.")] = 1,
    rounds: Annotated[int | None, typer.Option(min=1, help="Fewer rounds than the paper.")] = None,
    out: Out = Path("runs/reproduce"),
    results: Results = None,
    format: Annotated[str, typer.Option(help="text, md, csv, latex or html.")] = "text",
    run: Annotated[bool, typer.Option(help="Run what is missing, or only show the rest.")] = True,
    copy: Copy = None,
    tune: Tune = None,
    quiet: Quiet = False,
) -> None:
    """Do a paper's table again, and show its numbers beside yours.

    Without a table, lists them. The same command goes on after a stop; more methods and seeds join
    what is there, and with --results what other machines measured.
    """
    if table is None:
        listed()
        return
    from coterie.config.grid import listed as labels_in
    from coterie.studies.reproduction.table import DATA

    options.expect_format(format)
    from coterie.studies.reproduction import joining, running
    from coterie.studies.reproduction.page import write_page
    from coterie.studies.reproduction.results import Reproduction, written
    from coterie.studies.reproduction.text import shown

    given = options.assigned(settings, {"train.rounds": rounds})
    data, named = options.words(dataset), options.words(setting)
    asked = running.ask(table, out, data, labels_in(methods), seeds, given, named)
    if copy is not None:
        copy.write_text((DATA / f"{asked.table.experiment}.toml").read_text(encoding="utf-8"))
        say.label("next", command("compare", copy))
        return
    if tune:
        choose(asked, tune, quiet)
        return
    before = joining.known(results, asked.table) if results else ()
    if run:
        run_missing(asked, before, quiet)
    found = Reproduction(asked, before)
    say.result(written(found.rows) if format == "csv" else shown(found, format))
    say.label("records", str(found.save()))
    say.page(write_page(found))
    for file in joining.join(asked, results) if results else ():
        say.label("results", str(file))


def run_missing(asked: Asked, before: Sequence[Row], quiet: bool) -> None:
    """Run what is neither done nor known; all its data must be at hand before anything is run."""
    from coterie.studies.reproduction import joining, running

    wanted = joining.wanted(asked, before)
    for setting in asked.settings:
        made = running.experiments(asked, setting).experiments
        for label in wanted(setting):
            options.data_at_hand(made[label])
    try:
        with watching(quiet) as listen:
            running.run(asked, listen, wanted)
    except KeyboardInterrupt:
        say.note("\ninterrupted; every whole round is saved")
        say.label("next", f"{command(*sys.argv[1:])}    goes on from there")
        raise SystemExit(130) from None


def choose(asked: Asked, texts: Sequence[str], quiet: bool) -> None:
    """Try values of what a paper leaves open, and tell what is best on validation data.

    Seeds that choose are not reported. What was tried is in tuning.json, a folder for each setting.
    """
    from coterie.cli.tune import searched, validating
    from coterie.runs.tuning import Tuning
    from coterie.studies.comparison import tuning
    from coterie.studies.reproduction import running

    for setting in asked.settings:
        made = running.experiments(asked, setting)
        chosen = {label: made.experiments[label] for label in asked.methods}
        for config in chosen.values():
            options.data_at_hand(config)
        search = searched(chosen, texts, made.seeds, 1, None, None)
        make = running.candidates(asked, setting, validating(chosen.values()), search.seeds)
        rounds = next(iter(chosen.values())).train.rounds
        folder = asked.folder / "tuning" / setting.folder
        with watching(quiet) as listen:
            best = tuning.tune(search, make, rounds, folder, on_event=listen)
        found = Tuning.load(folder)
        assert found is not None
        say.result(f"{setting.dataset}, {setting.name}\n{found.table().to('text')}")
        for text in found.sentences():
            say.result(text)
        say.label("records", f"{folder}  (tuning.json, a run for each candidate)")
        words = [f"{k}={v}" for one in best.values() for k, v in one.settings.items()]
        words += ["--methods", ",".join(asked.methods)]
        say.label("next", command("reproduce", asked.table.name, *words))


def listed() -> None:
    """The tables, and what can be run of them."""
    from coterie.studies.reproduction.papers import TABLES

    rows = []
    for t in TABLES.values():
        data = ", ".join(dict.fromkeys(s.source for s in t.settings)) or "–"
        rows.append((t.name, t.title, data, count(len(t.figures), "number"), t.paper))
    say.result(say.table(("table", "what it shows", "can be run on", "prints", "paper"), rows))
    say.label("next", "coterie reproduce fedclust-1 --rounds 20    a first look at one")
