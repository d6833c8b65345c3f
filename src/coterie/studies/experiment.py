"""From an experiment file to a run, and from the folder of a run to the rest of it."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import fields, replace
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import torch

from coterie import config as configs
from coterie.config import Config, toml
from coterie.config.schema import Server, Train
from coterie.core.errors import CheckpointError
from coterie.core.events import Listener, silence
from coterie.core.layout import Layout
from coterie.core.types import Method
from coterie.core.units import count
from coterie.data.divide.kind_words import told
from coterie.data.load import load
from coterie.data.population import Population, partition
from coterie.methods import METHODS, find
from coterie.models.zoo import AUTO, suited
from coterie.runs import checkpoint, newcomers, records
from coterie.runs.files import toml_of
from coterie.runs.whereabouts import expect_run
from coterie.studies import training
from coterie.studies.agreement import refuse_federation
from coterie.studies.newcomers import hold_out, join
from coterie.studies.result import Result
from coterie.studies.train_loop import Plan
from coterie.tasks.optimiser import SGD, Adam, AdamW
from coterie.tasks.schedule import Schedule
from coterie.tasks.solver import Solver
from coterie.trackers import track
from coterie.words.server import ServerOptimiser

# Keys that came later, by table: what a file meant that does not have them.
LATER: dict[str, dict[str, Any]] = {
    "autocfl": {"earliest": 1, "told": 4},
    "drift": {"pattern": "sudden", "span": 5},
    "engine": {"max_weight_share": 0.5},
    "evaluate": {"first": 0, "last": 0, "metrics": [], "tuned": 0},
    "train": {
        "everybody": 0,
        "optimiser": "sgd",
        "nesterov": False,
        "beta1": 0.9,
        "beta2": 0.999,
        "eps": 1e-8,
        "clip": 0.0,
        "schedule": "constant",
        "warmup_rounds": 0,
        "lr_every": 10,
        "lr_end": 0.0,
    },
    "data": {"validation_share": 0.0},
    "server": {"optimiser": "none", "beta1": 0.9, "beta2": 0.99, "tau": 1e-3},
}
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
    folder = Path(out) if out else fresh(config)
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
    path = Path(folder)
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
        shared["solver"] = solver(config.train, own["solver"])
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


def refuse_changes(
    then: str, now: Config, allowed: Collection[str], fixed: Collection[str] = ()
) -> None:
    """Only what was allowed by name may differ from the experiment that was started.

    `then` is the run.toml of that time; what is `fixed` is not allowed this time.
    """
    before, after = started_with(then), flat(configs.resolved(now))
    if after["model.name"] == AUTO:  # it was chosen for the data, which have a check of their own
        after["model.name"] = before.get("model.name")
    changed = [k for k in sorted({*before, *after}) if before.get(k) != after.get(k)]
    free = set(allowed).difference(fixed)
    refused = [k for k in changed if k not in free and not k.startswith("output.")]
    if refused:
        raise CheckpointError(
            f"{count(len(refused), 'setting differs', 'settings differ')} from the run's start",
            code="K010",
            where="\n".join(f"{k}: was {before.get(k)!r}, is {after.get(k)!r}" for k in refused),
            why="the rounds to come would belong to another experiment than the rounds behind"
            + "; the learning rate follows from how many are planned" * bool({*refused} & {*fixed}),
            fix=f"put them back, or add --allow-change {' --allow-change '.join(refused)}"
            if allowed  # who may allow nothing has no such option
            else "put them back, or choose another folder with --out",
        )


def started_with(text: str) -> dict[str, Any]:
    """The values of a file that an older version may have written, as this one would write them.

    >>> started_with("[experiments.mine.engine]\\nthreads = 1")["experiments.mine.engine.threads"]
    1
    """
    found = flat(text)
    for table in {key.rpartition(".")[0] for key in found}:
        root, _, name = table.rpartition(".")
        for home in (name, "server") if name == "train" else (name,):  # [server] came as a whole
            for key, meant in LATER.get(home, {}).items():
                found.setdefault(".".join(filter(None, (root, home, key))), meant)
    return found


def flat(text: str) -> dict[str, Any]:
    """The values of a TOML file by their dotted keys.

    >>> flat("seed = 0\\n[train]\\nlr = 0.1")
    {'seed': 0, 'train.lr': 0.1}
    """
    tree = tomllib.loads(text)
    return {".".join(path): reduce(getitem, path, tree) for path in toml.leaves(tree)}
