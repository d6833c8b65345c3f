"""Running a comparison: one cell after another or several at once, and on again after any stop.

It is on equal terms: one comparison in a folder, and runs that share clients and initial weights.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from coterie.config import toml
from coterie.config.grid import Grid
from coterie.core import storage
from coterie.core.errors import CheckpointError, ConfigError, DataError
from coterie.core.events import Listener, silence
from coterie.core.types import Method
from coterie.core.units import count
from coterie.data.population import Population
from coterie.data.readers.once import read_once
from coterie.methods import METHODS
from coterie.runs.comparison import Cell, Comparison, cell_name
from coterie.runs.comparison_text import csv
from coterie.runs.files import text_of, understanding
from coterie.runs.records import RunFolder, unused
from coterie.studies.comparison.cells import error_text, listener_of, record_facts, run_cell
from coterie.studies.comparison.jobs import in_processes
from coterie.studies.run import started
from coterie.studies.run.arguments import FitOptions, clients_of, meant, method_of
from coterie.studies.run.training import Model, fit

RunCell = Callable[[Cell, Listener], object]
RunCells = Callable[[Sequence[Cell], Listener], dict[str, str]]  # -> why each that failed did


def compare_grid(
    grid: Grid, out: str | Path | None = None, *, jobs: int = 1, on_event: Listener | None = None
) -> Comparison:
    """Run what is not done yet of a comparison in `out`, and read all of it back.

    With `jobs`, so many processes at once. A cell that fails is named; the others are not lost.
    """

    folder = Path(out) if out else fresh()
    return run_missing(folder, grid.asked(), ways_to_run(grid, jobs), on_event)


def ways_to_run(grid: Grid, jobs: int = 1) -> RunCells:
    """How cells of a grid are run: one after another here, or several at once."""

    def run(cell: Cell, listen: Listener) -> None:
        run_cell(grid.config(cell.label, cell.seed), cell, listen)

    return partial(in_processes, jobs) if jobs > 1 else partial(in_turn, run)


def seeds_of(given: object) -> list[int]:
    """The seeds of a comparison: so many from 0, or those of a list, each once."""
    if isinstance(given, int):
        return list(range(given))
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise meant("seeds", given, "no number and no list of seeds", "3 or [0, 1, 2]")
    chosen = list(given)
    if len(set(chosen)) < len(chosen):
        what = f"a seed stands twice: {', '.join(map(str, chosen))}"
        raise ConfigError(what, code="C017", fix="each seed once: more runs need other seeds")
    return chosen


def compare(
    methods: Sequence[Method | str] | Mapping[str, Method | str],
    population: Population | Callable[[int], Population],
    model: Model,
    *,
    rounds: int,
    seeds: int | Sequence[int] = 5,
    out: str | Path | None = None,
    on_event: Listener | None = None,
    page: bool = True,
    **options: Unpack[FitOptions],
) -> Comparison:
    """Train every method with every seed and compare them; further keywords are those of `fit`.

    `population` is a population, which then is the same for all seeds, or a function from a seed
    to one. The same call in the same folder `out` goes on where it was stopped. At the end there is
    a report.html in it unless `page` is False.
    """
    if isinstance(methods, str):
        raise meant("methods", methods, "no list of methods", f"{methods.split(',')!r}")
    labelled = (
        {label: method_of(method) for label, method in methods.items()}
        if isinstance(methods, Mapping)
        else labels([method_of(method) for method in methods])
    )
    chosen = seeds_of(seeds)
    if len(labelled) < 2 or not chosen:
        what = f"{count(len(labelled), 'method')} and {count(len(chosen), 'seed')}"
        fix = "compare two methods or more, with one seed or more"
        raise ConfigError(what, code="C017", fix=fix)
    made: dict[int, Population] = {}

    def clients(seed: int) -> Population:
        if seed not in made:
            made.clear()  # one is enough: cells come seed by seed
            made[seed] = clients_of(population(seed) if callable(population) else population)
        return made[seed]

    expect_tests(clients(chosen[0]))

    def run(cell: Cell, listen: Listener) -> None:
        result = fit(
            labelled[cell.label],
            clients(cell.seed),
            model,
            rounds=rounds,
            seed=cell.seed,
            out=cell.folder,
            resume=True,
            on_event=listen,
            page=False,
            **options,
        )
        record_facts(cell, result)

    asked = asked_from_python(labelled, chosen, model, rounds, options)
    found = run_missing(Path(out) if out else fresh(), asked, partial(in_turn, run), on_event)
    return with_page(found, on_event or silence) if page else found


def with_page(found: Comparison, tell: Listener) -> Comparison:
    """The page of a comparison that just ended; what goes wrong here is told and spoils nothing."""
    from coterie.report import write_comparison  # plotly takes its time

    try:
        write_comparison(found.folder)
    except Exception as error:  # as for a run: hours of training are worth more than their page
        tell({"event": "warning", "text": f"no report: {type(error).__name__}: {error}"})
    return found


def expect_tests(population: Population) -> None:
    """Refuse clients of whom none can be tested: there would be nothing to compare."""
    if not any(len(population[i].y_test) for i in range(len(population))):
        raise DataError(
            "no client has test samples",
            code="D046",
            why="methods are compared by the accuracy of each client on its own test set",
            fix="bring (x, y, x_test, y_test), or let test_share of Population.of be above 0",
        )


def asked_from_python(
    methods: Mapping[str, Method],
    seeds: Sequence[int],
    model: Any,
    rounds: int,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """The compare.toml of a comparison of Python objects, which it can only describe."""
    name = model if isinstance(model, str) else getattr(model, "__qualname__", type(model).__name__)
    shown = {k: v if isinstance(v, str | int | float) else repr(v) for k, v in options.items()}
    return {
        "format": 1,
        "started_from": "python",
        "methods": list(methods),
        "seeds": list(seeds),
        "last_k": options.get("last_k", 10),
        "target": options.get("target"),
        "experiments": {
            label: {"method": repr(method), "model": name, "rounds": rounds} | shown
            for label, method in methods.items()
        },
    }


def in_turn(run: RunCell, cells: Sequence[Cell], listen: Listener) -> dict[str, str]:
    """One cell after another, in this process; why each that failed did."""
    failed: dict[str, str] = {}
    with read_once():
        for cell in cells:
            tell = listener_of(cell, listen)
            try:
                run(cell, tell)
            except Exception as error:
                failed[cell.folder.name] = error_text(error)
                tell({"event": "failed", "text": failed[cell.folder.name]})
    return failed


def run_missing(
    folder: Path,
    asked: Mapping[str, Any],
    run_cells: RunCells,
    on_event: Listener | None,
    *,
    table: bool = True,
    wanted: Callable[[Cell], bool] = lambda cell: True,
) -> Comparison:
    """The `wanted` cells that are not done yet, then the `table` of all of them."""
    listen = on_event or (lambda event: None)
    storage.make_folder(folder)
    with RunFolder(folder):  # no second comparison runs in it at the same time
        record_request(folder, asked)
        comparison = Comparison.load(folder)
        some = [cell for cell in comparison.cells if wanted(cell)]
        listen({"event": "comparison", "cells": len(some), "folder": str(folder)})
        for cell in some:
            if cell.done:
                listener_of(cell, listen)({"event": "already", "seconds": cell.seconds})
        failed = run_cells([cell for cell in some if not cell.done], listen)
        expect_equal_terms(comparison)
        comparison = replace(comparison, failed=failed)
        if table:
            file, text = folder / "table.csv", f"{csv(comparison, times=False)}\n"
            storage.replace_file(file, text.encode())
    return comparison


def labels(methods: Sequence[Method]) -> dict[str, Method]:
    """Methods by name, with the settings that are not their defaults.

    >>> from coterie.methods.ifca import IFCA
    >>> list(labels([IFCA(), IFCA(clusters=7)]))
    ['ifca', 'ifca:clusters=7']
    """
    names = {e.path.split(":")[1]: name for name, e in METHODS.items()}
    out: dict[str, Method] = {}
    for method in methods:
        cls: Any = type(method)
        label = names.get(cls.__name__, cls.__name__)
        for f in fields(cls) if is_dataclass(cls) else ():
            value = getattr(method, f.name)
            default = f.default_factory() if f.default_factory is not MISSING else f.default
            if f.name not in ("solver", "fraction") and value != default:
                label += f":{f.name}={value}"
        if label in out:
            fix = "name them yourself: {'one': method, 'other': method}"
            raise ConfigError(f"two methods are called {label}", code="C017", fix=fix)
        out[label] = method
    return out


def fresh(kind: str = "compare") -> Path:
    """A folder of its own for a comparison that was given none."""
    return unused(Path("runs") / time.strftime(f"%Y-%m-%d_%H%M%S_{kind}"))


def record_request(folder: Path, asked: Mapping[str, Any]) -> None:
    """Write down what was asked, or refuse to go on with something else."""
    file, text = folder / "compare.toml", toml.write(asked)
    if not file.exists():
        names = [cell_name(label, 0) for label in asked["methods"]]
        if same := next((n for n in names if names.count(n) > 1), None):
            what = f"two methods would share the folder {same.removesuffix('-seed0')}"
            raise ConfigError(what, code="C017", fix="write their settings in another way")
        storage.replace_file(file, text.encode())
        return
    with understanding(file):
        then, now = started.started_with(text_of(file)), started.flat(text)
    lines = differences(then, now, list(asked["methods"]))
    if lines:
        raise CheckpointError(
            f"{folder} holds another comparison",
            code="K012",
            where="\n".join(lines),
            why="the runs to come would not be comparable with the runs that are there",
            fix="put the settings back, or choose another folder with --out",
        )


def differences(then: Mapping[str, Any], now: Mapping[str, Any], methods: list[str]) -> list[str]:
    """What differs, key by key; a key that differs alike for every method is told once."""
    found: dict[tuple[str, str], list[str]] = {}
    for key in dict.fromkeys([*then, *now]):
        if then.get(key) == now.get(key) or ".output." in key:
            continue
        label = next((m for m in methods if key.startswith(f"experiments.{m}.")), "")
        short = key.removeprefix(f"experiments.{label}.") if label else key
        found.setdefault((short, f"was {then.get(key)!r}, is {now.get(key)!r}"), []).append(label)
    if any(key in ("methods", "seeds") for key, _ in found):  # the rest follows from it
        found = {k: v for k, v in found.items() if k[0] in ("methods", "seeds")}
    everybody = ({""}, set(methods))
    return [
        f"{key}{'' if set(who) in everybody else ' of ' + ', '.join(who)}: {text}"
        for (key, text), who in found.items()
    ]


def expect_equal_terms(comparison: Comparison) -> None:
    """Refuse cells of one seed whose clients or initial weights are not the same."""
    for seed in comparison.seeds:
        cells = [c for c in comparison.cells if c.seed == seed and c.done]
        for what in ("population", "initial"):
            kinds = {c.facts[what] for c in cells}
            if len(kinds) > 1:
                raise CheckpointError(
                    f"the runs of seed {seed} do not share their "
                    + {"population": "clients", "initial": "initial weights"}[what],
                    code="K013",
                    where="\n".join(f"{c.folder.name}: {c.facts[what][:16]}" for c in cells),
                    fix="start the comparison again in another folder with --out",
                )
