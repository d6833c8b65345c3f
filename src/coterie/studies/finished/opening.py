"""A run opened again from its folder: without its data, and without the program that started it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from coterie.config import Config
from coterie.core import checks, rng
from coterie.core.errors import CheckpointError, CoterieWarning, DataError
from coterie.core.layout import Layout
from coterie.core.types import Method
from coterie.data.load import load
from coterie.data.population import Population, partition
from coterie.engines.front import Front
from coterie.methods import written
from coterie.runs import checkpoint, choosing, reading
from coterie.runs.model import RunModel
from coterie.runs.whereabouts import expect_run
from coterie.studies.finished.opened import OpenedPopulation
from coterie.studies.remote.agreement import Agreement, RemotePopulation
from coterie.studies.run import experiment
from coterie.studies.run.plan import Plan
from coterie.studies.run.result import Result
from coterie.studies.run.summary import summary_of
from coterie.studies.run.training import Model, changes

Bring = Callable[[], Population]


class Opened(NamedTuple):
    """What a folder says of its run, wherever it was started."""

    method: Method
    plan: Plan
    layout: Layout
    clients: Population
    seed: int


def open_run(
    folder: str | Path,
    *,
    model: Model | None = None,
    population: Population | None = None,
    method: Method | None = None,
    allow_code: bool = False,
) -> Result:
    """The result of a run as its last whole round left it; the folder is only read.

    Its data are read when something needs them, and not before. Of a run that Python started,
    `model`, `population` and `method` give again what has no name. A method or network that is not
    coterie's is imported only with `allow_code`.
    """
    path = checks.path(folder, "folder")
    expect_run(path)
    saved, faults = checkpoint.latest(path / "checkpoints")
    for text in checkpoint.passed_over(faults, saved):
        warnings.warn(text, CoterieWarning, stacklevel=2)
    known = RunModel.load(path)
    if experiment.from_python(path):
        run = of_python(path, known, saved, model, method, allow_code)
    else:
        config = experiment.config_of(path, allow_code=allow_code)
        run = of_experiment(path, config, known, saved, model, method)
    how, plan, layout, clients, seed = run
    if population is not None:
        changes({"population": population.key}, saved.notes)
        clients = population
    fed = Front(
        clients,
        layout,
        classes=clients.classes,
        seed=seed,
        sizes=clients.sizes,
        names=clients.names,
        public=lambda: clients.public,
        groups=clients.group,
    )
    history = reading.RunReader(path).history_at(saved.notes)
    best = choosing.taken(plan.stop, history)
    if best and best.round != saved.state.round:
        saved = checkpoint.load(checkpoint.at(path / "checkpoints", best.round))
    fed.restore(saved.memories)
    summary = summary_of(how, clients, plan, history, saved.state, fed)
    return Result(how, clients, fed, saved.state, history, summary, path)


def of_experiment(
    path: Path,
    config: Config,
    known: RunModel | None,
    saved: checkpoint.Checkpoint,
    model: Model | None,
    method: Method | None,
) -> Opened:
    """A run of an experiment file; one of an earlier version wants its data at once."""

    def network(shape: Sequence[int], classes: Sequence[str]) -> Layout:
        return experiment.network(config, shape, len(classes), model)

    def bring() -> Population:
        found = experiment.population(config)
        changes({"population": found.key}, saved.notes)
        return found

    how, plan = method or experiment.method(config), Plan.of(config)
    if agreed := Agreement.load(path):
        names = known.names if known else reading.RunReader(path).clusters.names
        layout = network(agreed.shape, agreed.classes)
        away = RemotePopulation(agreed.of(names), config.data.scaling)
        return Opened(how, plan, layout, away, config.seed)
    if known is None:
        real = bring()
        return Opened(how, plan, network(real.shape, real.class_names), real, config.seed)
    layout = network(known.spec.shape, known.spec.classes)
    known.check(layout, path)
    source = config.data.source
    return Opened(how, plan, layout, opened(path, known, saved, bring, source), config.seed)


def of_python(
    path: Path,
    known: RunModel | None,
    saved: checkpoint.Checkpoint,
    model: Model | None,
    method: Method | None,
    allow_code: bool,
) -> Opened:
    """A run that Python started: all that has a name is made again."""
    if known is None or known.python is None:
        raise experiment.python_alone(path)
    told, recipe = known.python, known.python["population"]
    if method is None and told["method"] is None:
        raise CheckpointError(
            f"the method of {path} was made in Python and has no name",
            code="K009",
            fix="give it again: coterie.open_run(folder, method=...)",
        )

    def bring() -> Population:
        if recipe is None:
            raise ValueError("they were made in Python, from what no file or name tells")
        how = dict(recipe)
        found = partition(load(**how.pop("data")), **how)
        changes({"population": found.key}, saved.notes)
        return found

    return Opened(
        method or written.from_plain(told["method"], allow_code=allow_code),
        Plan(**told["plan"]),
        known.layout(path, model, seed=rng.address(known.seed, "model"), allow_code=allow_code),
        opened(path, known, saved, bring, str((recipe or {}).get("data", ""))),
        known.seed,
    )


def opened(
    path: Path, known: RunModel, saved: checkpoint.Checkpoint, bring: Bring, source: str
) -> Population:
    """The clients of a run; whoever needs their data hears where they should be."""

    def ask() -> Population:
        try:
            return bring()
        except (DataError, ValueError) as cause:
            why = cause.what if isinstance(cause, DataError) else str(cause)
            raise DataError(
                "the data of this run are not at hand",
                code="D048",
                where=f"{path}: {source}" if source else str(path),
                why=why,
                fix="put them back where they were, or give them again: "
                "coterie.open_run(folder, population=clients); the models can be used without",
            ) from cause

    held = reading.RunReader(path).clusters
    return OpenedPopulation(known, held, saved.notes["population"], ask)


def read_like(path: Path, *, allow_code: bool = False) -> tuple[dict[str, Any], int]:
    """The options of the reader of a run's data, for other data; and its threads, 0: not said."""
    if experiment.from_python(path):
        known = RunModel.load(path)
        told = ((known and known.python) or {}).get("population") or {}
        reader, threads = dict(told.get("data", {})), 0
    else:
        config = experiment.config_of(path, allow_code=allow_code)
        reader, threads = dict(config.data.reader), config.engine.threads
    for own in ("source", "test_source", "name"):  # of the run alone
        reader.pop(own, None)
    return reader, threads
