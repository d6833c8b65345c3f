"""From an experiment file to a run, and from the folder of a run to the rest of it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch

from coterie import config as configs
from coterie.config import Config
from coterie.config.schema import Server, Train
from coterie.core import checks
from coterie.core.errors import CheckpointError
from coterie.core.events import Listener, silence
from coterie.core.layout import Layout
from coterie.core.types import Method
from coterie.data.divide.kind_words import told
from coterie.data.load import load
from coterie.data.population import Population, partition
from coterie.methods import METHODS, find
from coterie.models.zoo import AUTO, suited
from coterie.runs import checkpoint, newcomers, records
from coterie.runs.files import toml_of
from coterie.runs.whereabouts import expect_run
from coterie.studies.finished.newcomers import hold_out, join
from coterie.studies.remote.agreement import refuse_federation
from coterie.studies.run import private, training
from coterie.studies.run.plan import Plan
from coterie.studies.run.result import Result
from coterie.studies.run.started import flat, refuse_changes
from coterie.tasks.optimiser import SGD, Adam, AdamW
from coterie.tasks.schedule import Schedule
from coterie.tasks.solver import Solver
from coterie.trackers import track
from coterie.words.server import ServerOptimiser

OPTIMISERS: dict[str, type[Any]] = {"sgd": SGD, "adam": Adam, "adamw": AdamW}


def execute(
    config: Config,
    out: str | Path | None = None,
    on_event: Listener | None = None,
    *,
    resume: bool = False,
    page: bool = True,
    gather: training.Gather | None = None,
) -> Result:
    """Everything an experiment file names, put together, run, and followed by its trackers.

    It is run in the folder `out`, or in a new one named by the experiment. `gather` brings clients
    from elsewhere; without it they are made from the experiment's data.
    """
    torch.set_num_threads(config.engine.threads)
    folder = checks.path(out, "out") if out else fresh(config)
    if gather is None:
        config, gather = simulated(config)
    plan, settings = Plan.of(config), configs.resolved(config)
    listen, trackers = on_event or silence, config.output.trackers
    with track(trackers, folder, settings=flat(settings), then=listen) as tell:
        return training.train(
            gather, plan, settings, out=folder, resume=resume, tell=tell, page=page
        )


def resume(
    folder: str | Path,
    *,
    settings: Iterable[tuple[str, Any]] = (),
    allow: Iterable[str] = (),
    allow_code: bool = False,
    on_event: Listener | None = None,
    page: bool = True,
) -> Result:
    """Continue a run from its last whole round, to the same bits as if it had never stopped.

    `settings` change keys of its experiment; a change other than more rounds must be allowed by
    name, because the result is then no longer that of one experiment. A method or network that is
    not coterie's is imported only with `allow_code`: a folder may come from anywhere.
    """
    path = checks.path(folder, "folder")
    config = config_to_resume(path, settings, allow, allow_code=allow_code)
    refuse_federation(path)
    return execute(config, path, on_event, resume=True, page=page)


def simulated(config: Config) -> tuple[Config, training.Gather]:
    """The clients of an experiment, made from its data; those who are held out join afterwards.

    The experiment comes back with the network that was chosen for them, if it named none.
    """
    everyone = everybody(config)
    clients, late = divided(config, everyone)
    asked, config = config, with_network(config, clients.shape)
    config = private.with_noise(config, method, clients.sizes)
    about = {
        "data": config.data.source,
        "partition": told(config.partition.spec),
        "network": config.model.name,
        "chosen": config.model != asked.model,  # the network, for the data
    }
    if config.method in METHODS and METHODS[config.method].uploads == "nothing":
        about["round_bytes"] = 0

    def welcome(result: Result) -> None:
        if not late or not result.folder:
            return
        groups = None if everyone.group is None else everyone.group[late].tolist()
        them, how = [everyone[i] for i in late], config.newcomers
        newcomers.record(
            result.folder, join(result, them, groups, epochs=how.epochs, shots=how.shots)
        )

    return config, training.simulation(
        method(config),
        clients,
        network(config, clients.shape, clients.classes),
        seed=config.seed,
        engine=config.engine.name,
        workers=config.engine.workers,
        address=config.engine.address,
        about=about,
        afterwards=welcome,
        attack=config.attack,
    )


def with_network(config: Config, shape: Sequence[int]) -> Config:
    """The experiment with the name of a network for samples of this shape, if it had none."""
    if config.model.name != AUTO:
        return config
    return replace(config, model=replace(config.model, name=suited(shape)))


def config_of(
    path: Path, settings: Iterable[tuple[str, Any]] = (), *, allow_code: bool = False
) -> Config:
    """The experiment that a run's folder was made by."""
    if from_python(path):
        raise python_alone(path)
    return configs.load(path / "run.toml", settings, allow_code=allow_code)


def from_python(path: Path) -> bool:
    """Whether a run was started from Python, without an experiment file."""
    expect_run(path)
    return toml_of(path / "run.toml").get("started_from") == "python"


def python_alone(path: Path) -> CheckpointError:
    """The error of a run that only the program that started it can go on with."""
    return CheckpointError(
        f"{path} was started from Python, which alone has its data and its model",
        code="K009",
        fix=f'in the program that started it: coterie.fit(..., out="{path}", resume=True);\n'
        "its page, tables and models need no such program: report, export, predict and place",
    )


def config_to_resume(
    path: Path,
    settings: Iterable[tuple[str, Any]] = (),
    allow: Iterable[str] = (),
    *,
    allow_code: bool = False,
) -> Config:
    """The experiment of a run that is to go on; besides more rounds, only what is allowed differs.

    A run that was stopped before its first round was saved may go on as any other experiment.
    """
    config = config_of(path, settings, allow_code=allow_code)
    checkpoint.expect_rounds_left(path / "checkpoints", config.train.rounds)
    if checkpoint.rounds(path / "checkpoints"):
        saved, _ = checkpoint.latest(path / "checkpoints")
        # Where rates follow from the rounds planned, other rounds are another experiment.
        fixed = {"train.rounds"} if Schedule(**config.train.rates).planned else set()
        allowed = {"train.rounds", *allow}
        refuse_changes(saved.notes["settings"], config, allowed, fixed.difference(allow))
    return config


def population(config: Config) -> Population:
    """The clients of an experiment: all who take part in its training."""
    return divided(config, everybody(config))[0]


def divided(config: Config, everyone: Population) -> tuple[Population, list[int]]:
    """Who takes part in the training, and the places of those who are held out of it."""
    share = config.newcomers.share
    return hold_out(everyone, share, config.seed) if share else (everyone, [])


def everybody(config: Config) -> Population:
    """The clients of an experiment, with those who are held out."""
    source = config.data
    return partition(
        load(source.source, **source.reader),
        config.partition.spec,
        clients=config.partition.clients,
        seed=config.seed,
        test=source.test,
        test_share=source.test_share,
        validation_share=source.validation_share,
        pool=source.pool,
        scaling=source.scaling,
        public=source.public or 0,
    )


def method(config: Config) -> Method:
    """The method of an experiment: its own table, and from [train] its solver and participation."""
    cls: Any = find(config.method)
    own: dict[str, Any] = {f.name: f.default for f in fields(cls)}
    shared: dict[str, Any] = {}
    if "solver" in own:
        local = solver(config.train, own["solver"])
        shared["solver"] = replace(local, privacy=private.asked(config))
    if "fraction" in own:
        shared["fraction"] = config.train.participation
    if "server" in own:
        shared["server"] = server(config.server)
    made: Method = cls(**shared, **config.hyper)
    return made


def network(
    config: Config, shape: Sequence[int], classes: int, model: training.Model | None = None
) -> Layout:
    """The network of an experiment, or `model` in its place, for samples of this shape."""
    return training.build_layout(
        model or config.model.name,
        shape,
        classes,
        seed=config.seed,
        head=config.model.head,
        options=model_options(config),
    )


def solver(train: Train, own: Solver) -> Solver:
    """A method's own recipe of local training with all that [train] sets."""
    cls = OPTIMISERS[train.optimiser]
    optimiser = cls(**{f.name: getattr(train, f.name) for f in fields(cls)})
    return replace(own, **train.solver, optimiser=optimiser, schedule=Schedule(**train.rates))


def server(table: Server) -> ServerOptimiser:
    """The optimiser of the server."""
    how = {key: value for key, value in vars(table).items() if key != "optimiser"}
    return ServerOptimiser(table.optimiser, **how)


def model_options(config: Config) -> dict[str, Any]:
    """What is passed on to the network's builder."""
    norm = {"norm": config.model.norm} if config.model.norm else {}
    return {**norm, **config.model.options}


def fresh(config: Config) -> Path:
    """A folder for a new run of an experiment: as its output.dir says, and not there yet."""
    name = config.method.rsplit(":", 1)[-1].lower()
    date = time.strftime("%Y-%m-%d_%H%M%S")
    return records.unused(Path(config.output.dir.format(date=date, method=name, seed=config.seed)))
