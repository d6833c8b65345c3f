"""From an experiment file to a run, and from the folder of a run to the rest of it."""

from __future__ import annotations

import hashlib
import time
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch

from coterie import config as configs
from coterie import engines
from coterie.config import Config
from coterie.config.schema import Train
from coterie.core import storage
from coterie.core.errors import CheckpointError
from coterie.core.layout import Layout
from coterie.core.rng import address
from coterie.core.types import Method
from coterie.data.load import load
from coterie.data.population import Population, partition
from coterie.methods import find
from coterie.models import factory
from coterie.runs import checkpoint
from coterie.runs.history import from_csv
from coterie.runs.records import expect_run
from coterie.studies.fit import Listener, changes, fit
from coterie.studies.newcomers import Joined, hold_out, join, record
from coterie.studies.result import Result, summarise
from coterie.tasks.optimiser import SGD
from coterie.tasks.solver import Solver
from coterie.trackers import track


def execute(
    config: Config, out: str | Path | None = None, on_event: Listener | None = None
) -> Result:
    """Run an experiment in a folder: `out`, or a new one named by the experiment."""
    return go(config, Path(out) if out else fresh(config), on_event)


def resume(
    folder: str | Path,
    *,
    settings: Iterable[tuple[str, Any]] = (),
    allow: Iterable[str] = (),
    on_event: Listener | None = None,
) -> Result:
    """Continue a run from its last whole round, to the same bits as if it had never stopped.

    `settings` change keys of its experiment; a change other than more rounds must be allowed by
    name, because the result is then no longer that of one experiment.
    """
    path = Path(folder)
    config = config_of(path, settings)
    if not checkpoint.rounds(path / "checkpoints"):
        return go(config, path, on_event)  # it was stopped before its first round was saved
    saved, _ = checkpoint.latest(path / "checkpoints")
    refuse_changes(saved.notes["settings"], configs.resolved(config), {"train.rounds", *allow})
    return go(config, path, on_event, resume=True)


def config_of(path: Path, settings: Iterable[tuple[str, Any]] = ()) -> Config:
    """The experiment that a run's folder was made by."""
    expect_run(path)
    text = (path / "run.toml").read_text()
    if tomllib.loads(text).get("started_from") == "python":
        raise CheckpointError(
            f"{path} was started from Python, which alone has its data and its model",
            code="K009",
            fix="continue it there with coterie.fit(..., out=folder, resume=True)",
        )
    return configs.load(path / "run.toml", settings)


def open_run(folder: str | Path) -> Result:
    """The result of a run as its last whole round left it; the folder is only read."""
    path = Path(folder)
    config = config_of(path)
    saved, _ = checkpoint.latest(path / "checkpoints")
    clients = population(config)
    changes({"population": clients.key}, saved.notes)
    net = factory.build(
        config.model.name,
        shape=clients.shape,
        classes=clients.classes,
        seed=address(config.seed, "model"),
        **model_options(config),
    )
    layout = Layout(net, head=config.model.head)
    fed = engines.build("serial", clients, layout, config.seed)
    fed.restore(saved.memories)
    how = method(config)
    history = from_csv(written(path / "metrics.csv", saved.notes["metrics.csv"]))
    summary = {"method": repr(how), "rounds": config.train.rounds, "clients": len(clients)}
    summary |= summarise(
        history,
        clients=len(clients),
        last_k=config.evaluate.last_k,
        target=config.evaluate.target,
        drift=clients.partition.moves_at,
    )
    return Result(how, clients, fed, saved.state, history, summary, path)


def written(file: Path, mark: Mapping[str, Any]) -> str:
    """A table of a run as it stood at a checkpoint's mark."""
    data = file.read_bytes()[: mark["bytes"]] if file.exists() else b""
    if hashlib.sha256(data).hexdigest() != mark["sha256"]:
        raise CheckpointError(
            f"{file} was changed since its round was saved",
            code="K004",
            why=f"its first {mark['bytes']:,} bytes are not the ones the checkpoint knows",
            fix="put the file back, or start the run again",
        )
    return data.decode()


def go(config: Config, out: Path, on_event: Listener | None, *, resume: bool = False) -> Result:
    """Everything an experiment names, put together and run."""
    torch.set_num_threads(config.engine.threads)
    clients = population(config)
    settings = configs.resolved(config)
    if resume and (out / "run.toml").read_text() != settings:
        storage.replace_file(out / "run.toml", settings.encode())
    listener = track(
        config.output.trackers,
        out,
        settings=flat(tomllib.loads(settings)),
        then=on_event or (lambda event: None),
    )
    with listener:
        result = fit(
            method(config),
            clients,
            config.model.name,
            rounds=config.train.rounds,
            seed=config.seed,
            head=config.model.head,
            model_options=model_options(config),
            engine=config.engine.name,
            workers=config.engine.workers,
            address=config.engine.address,
            out=out,
            resume=resume,
            settings=settings,
            on_event=listener,
            every=config.evaluate.every,
            last_k=config.evaluate.last_k,
            target=config.evaluate.target,
            checkpoint_every=config.output.checkpoint_every,
            keep=config.output.keep,
        )
    if config.newcomers.share:
        welcome(config, result)
    return result


def population(config: Config) -> Population:
    """The clients of an experiment: all who take part in its training."""
    clients = everybody(config)
    share = config.newcomers.share
    return hold_out(clients, share, config.seed)[0] if share else clients


def welcome(config: Config, result: Result) -> Joined:
    """Let those join who were held out, and write how they did into the run's folder."""
    clients = everybody(config)
    _, new = hold_out(clients, config.newcomers.share, config.seed)
    joined = join(
        result,
        [clients[i] for i in new],
        None if clients.group is None else clients.group[new].tolist(),
        epochs=config.newcomers.epochs,
        shots=config.newcomers.shots,
    )
    if result.folder:
        record(result.folder, joined)
    return joined


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
    made: Method = cls(**shared, **config.hyper)
    return made


def solver(train: Train, own: Solver) -> Solver:
    """A method's own recipe of local training with all that [train] sets."""
    return replace(own, **train.solver, optimiser=SGD(**train.optimiser))


def model_options(config: Config) -> dict[str, Any]:
    """What is passed on to the network's builder."""
    norm = {"norm": config.model.norm} if config.model.norm else {}
    return {**norm, **config.model.options}


def fresh(config: Config) -> Path:
    """A folder that does not exist yet."""
    name = config.method.rsplit(":", 1)[-1].lower()
    date = time.strftime("%Y-%m-%d_%H%M%S")
    wanted = Path(config.output.dir.format(date=date, method=name, seed=config.seed))
    path, count = wanted, 1
    while path.exists():
        count += 1
        path = wanted.with_name(f"{wanted.name}-{count}")
    return path


def refuse_changes(then: str, now: str, allowed: Iterable[str]) -> None:
    """Only what was allowed by name may differ from the experiment that was started."""
    before, after = flat(tomllib.loads(then)), flat(tomllib.loads(now))
    changed = [k for k in sorted({*before, *after}) if before.get(k) != after.get(k)]
    refused = [k for k in changed if k not in set(allowed) and not k.startswith("output.")]
    if refused:
        raise CheckpointError(
            f"{len(refused)} settings differ from the run that was started",
            code="K010",
            where="\n".join(f"{k}: was {before.get(k)!r}, is {after.get(k)!r}" for k in refused),
            why="the rounds to come would belong to another experiment than the rounds behind",
            fix=f"put them back, or add --allow-change {' --allow-change '.join(refused)}",
        )


def flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted keys.

    >>> flat({"seed": 0, "train": {"lr": 0.1}})
    {'seed': 0, 'train.lr': 0.1}
    """
    out: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            out |= flat(value, f"{prefix}{key}.")
        else:
            out[prefix + key] = value
    return out
