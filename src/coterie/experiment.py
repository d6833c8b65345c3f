"""From an experiment file to a run, and from the folder of a run to the rest of it."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch

from coterie import checkpoint, storage
from coterie import config as configs
from coterie.config import Config
from coterie.data.load import load
from coterie.data.population import Population, partition
from coterie.errors import CheckpointError
from coterie.methods import find
from coterie.result import Result
from coterie.training import Listener, fit
from coterie.types import Method


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
    if not (path / "run.toml").exists():
        raise CheckpointError(
            f"{path} is not the folder of a run",
            code="K006",
            why="it has no run.toml",
            fix="name a folder that `coterie run` wrote, for example one under runs/",
        )
    text = (path / "run.toml").read_text()
    if tomllib.loads(text).get("started_from") == "python":
        raise CheckpointError(
            f"{path} was started from Python, which alone has its data and its model",
            code="K009",
            fix="continue it there with coterie.fit(..., out=folder, resume=True)",
        )
    config = configs.load(path / "run.toml", settings)
    saved, _ = checkpoint.latest(path / "checkpoints")
    refuse_changes(saved.notes["settings"], configs.resolved(config), {"train.rounds", *allow})
    return go(config, path, on_event, resume=True)


def go(config: Config, out: Path, on_event: Listener | None, *, resume: bool = False) -> Result:
    """Everything an experiment names, put together and run."""
    torch.set_num_threads(config.engine.threads)
    clients = population(config)
    settings = configs.resolved(config)
    if resume and (out / "run.toml").read_text() != settings:
        storage.replace_file(out / "run.toml", settings.encode())
    return fit(
        method(config),
        clients,
        config.model.name,
        rounds=config.train.rounds,
        seed=config.seed,
        head=config.model.head,
        model_options=model_options(config),
        engine=config.engine.name,
        out=out,
        resume=resume,
        settings=settings,
        on_event=on_event,
        every=config.evaluate.every,
        last_k=config.evaluate.last_k,
        target=config.evaluate.target,
        checkpoint_every=config.output.checkpoint_every,
        keep=config.output.keep,
    )


def population(config: Config) -> Population:
    """The clients of an experiment."""
    source = config.data
    options = {k: getattr(source, k) for k in ("label", "owner", "size", "gray")}
    data = load(source.source, **{k: v for k, v in options.items() if v})
    return partition(
        data,
        config.partition.spec,
        clients=config.partition.clients,
        seed=config.seed,
        test=source.test,
        test_share=source.test_share if source.test == "own" else None,
        pool=source.pool,
        scaling=source.scaling,
    )


def method(config: Config) -> Method:
    """The method of an experiment: its own table, and from [train] its solver and participation."""
    cls: Any = find(config.method)
    own = {f.name: f.default for f in fields(cls)}
    shared: dict[str, Any] = {}
    if "solver" in own:
        shared["solver"] = replace(own["solver"], **config.train.solver)
    if "fraction" in own:
        shared["fraction"] = config.train.participation
    made: Method = cls(**shared, **config.hyper)
    return made


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
