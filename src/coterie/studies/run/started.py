"""What a run was started with, and what of it may change when it goes on."""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from functools import reduce
from operator import getitem
from typing import Any

from coterie import config as configs
from coterie.config import Config, toml
from coterie.core.errors import CheckpointError
from coterie.core.units import count
from coterie.models.zoo import AUTO

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
    "attack": {
        "kind": "none",
        "share": 0.2,
        "clients": [],
        "start": 1,
        "target": 0,
        "lies": False,
    },
    "server": {
        "optimiser": "none",
        "beta1": 0.9,
        "beta2": 0.99,
        "tau": 1e-3,
        "merge": "mean",
        "byzantine": 0.2,
        "flag": False,
    },
    "privacy": {"delta": 1e-5, "clip": 1.0},
}
WHOLE = ("server", "attack", "privacy")  # tables that came as a whole


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
        if root == "experiments":  # of a comparison: a method, which may be called as its table
            continue
        for home in (name, *WHOLE) if name == "train" else (name,):
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
