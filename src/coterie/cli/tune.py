"""Settings chosen on validation data: the command, and what `compare --tune` shares with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli import options, say
from coterie.cli.options import AllowCode, Quiet
from coterie.cli.several import going_on, watching
from coterie.core.errors import ConfigError
from coterie.core.shell import command as shell_command

if TYPE_CHECKING:
    from coterie.config import Config
    from coterie.config.grid import Grid
    from coterie.studies.comparison.tuning import Make, Search

SHARE = 0.2  # of the training samples that choose, where nobody says how many
Given = list[tuple[str, Any]]
TuneSeeds = Annotated[
    int, typer.Option(min=1, help="How many seeds choose; none of them is reported.")
]
TuneBy = Annotated[
    str | None, typer.Option(help="What is best on validation data, as accuracy, worst, loss.")
]
Budget = Annotated[
    int | None,
    typer.Option(min=1, help="Whole runs a method and seed may take: halves the candidates."),
]


def tune(
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE] KEY=A,B,C... [KEY=VALUE]...",
            help="An experiment file, what is tried, and settings.",
        ),
    ] = None,
    method: options.Method = None,
    tune_seeds: TuneSeeds = 2,
    tune_by: TuneBy = None,
    budget: Budget = None,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at once, each in its process.")] = 1,
    out: Annotated[Path | None, typer.Option(help="The folder of the tuning.")] = None,
    allow_code: AllowCode = False,
    quiet: Quiet = False,
) -> None:
    """Choose settings of one method on validation data.

    Every combination of the values is tried with other seeds than the experiment's own; what is
    best is written as an experiment file. The same command with the same --out goes on after a
    stop. `coterie compare --tune` does it for every method of a comparison.
    """
    from coterie.config import load, resolved
    from coterie.config.tuning import several

    tried = [s for s in settings or [] if several(s) and not Path(s).is_file()]
    file, given = options.sort([s for s in settings or [] if s not in tried], {"method": method})
    config = load(file, given, allow_code=allow_code)
    options.data_at_hand(config)
    given = [(k, v) for k, v in given if k != "method"] + validating([config])
    search = searched({config.method: config}, tried, [config.seed], tune_seeds, tune_by, budget)

    from coterie.core import storage
    from coterie.runs.tuning import Tuning
    from coterie.studies.comparison.running import fresh
    from coterie.studies.comparison.tuning import tune as choose

    folder = out or fresh("tune")
    make = maker(file, given, search.seeds, allow_code)
    with going_on(folder), watching(quiet) as listen:
        chosen = choose(search, make, config.train.rounds, folder, jobs=jobs, on_event=listen)
    found = Tuning.load(folder)
    assert found is not None
    labels = [c.label for c in search.candidates[config.method]]
    best = make(labels, config.train.rounds).experiments[chosen[config.method].label]
    how = "".join(f"# {text}\n" for text in found.sentences())
    text = how + resolved(replace(best, seed=config.seed))
    storage.replace_file(folder / "tuned.toml", text.encode())
    say.result(found.table().to("text"))
    for text in found.sentences():
        say.result(text)
    say.label("records", f"{folder}  (tuned.toml, tuning.json, a run for each candidate and seed)")
    say.label(
        "next", f"{shell_command('run', folder / 'tuned.toml')}    trains with what was chosen"
    )


def tuned_grid(
    asked: Grid,
    file: Path | None,
    given: Given,
    tune: Sequence[str],
    folder: Path,
    *,
    seeds: int,
    by: str | None,
    budget: int | None,
    jobs: int,
    allow_code: bool,
    quiet: bool,
) -> Grid:
    """The comparison that was asked for, with what is best for each of its methods."""
    from coterie.config.grid import grid
    from coterie.studies.comparison import tuning

    given = given + validating(asked.experiments.values())
    search = searched(asked.experiments, tune, asked.seeds, seeds, by, budget)
    rounds = next(iter(asked.experiments.values())).train.rounds
    make = maker(file, given, search.seeds, allow_code)
    with going_on(folder), watching(quiet) as listen:
        chosen = tuning.tune(search, make, rounds, folder, jobs=jobs, on_event=listen)
    labels = [candidate.label for candidate in chosen.values()]
    return tuning.tuned(
        grid(file, given, labels, asked.seeds, allow_code=allow_code), chosen, search
    )


def maker(file: Path | None, given: Given, seeds: Sequence[int], allow_code: bool) -> Make:
    """The experiments of some candidates with these seeds, as the command asks for them."""
    from coterie.config.grid import grid

    def make(labels: Sequence[str], rounds: int) -> Grid:
        shorter = [*given, ("train.rounds", rounds)]
        return grid(file, shorter, labels, seeds, allow_code=allow_code)

    return make


def searched(
    experiments: Mapping[str, Config],
    texts: Sequence[str],
    reported: Sequence[int],
    seeds: int,
    by: str | None,
    budget: int | None,
) -> Search:
    """What is tried of each method, by what and on which seeds it is chosen."""
    from coterie.config import tuning
    from coterie.core.best_by import choosable, full
    from coterie.studies.comparison.tuning import Search

    axes = tuning.axes(texts)
    tuning.expect_used(axes, list(experiments))
    first = next(iter(experiments.values()))
    metric = by or (first.train.stop.metric if first.train.stop else "accuracy")
    if full(metric) not in (names := choosable(first.evaluate.metrics)):
        raise ConfigError(
            f"{metric!r} is not measured, so that nothing can be chosen by it",
            code="C061",
            fix=f"one of {', '.join(names)}; evaluate.metrics measures more",
        )
    tried = {label: tuning.candidates(label, axes) for label in experiments}
    return Search(tried, tuning.seeds_to_choose_by(reported, seeds), metric, budget)


def validating(experiments: Any) -> Given:
    """The setting that gives clients samples to choose by, where they have none; it is said."""
    if all(config.data.validation_share for config in experiments):
        return []
    say.label(
        "note", f"data.validation_share = {SHARE}: of each client's training samples, to choose by"
    )
    return [("data.validation_share", SHARE)]
