"""Commands that write into a folder, as small as they can be, for tests that disturb them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import coterie as ct
from coterie import config as configs
from coterie.report import write_run
from coterie.runs import checkpoint
from coterie.studies.run import experiment
from tests.tiny import clients, network

SOLVER = ct.Solver(lr=0.1, batch=8)
TIMED = {".lock", "events.jsonl", "summary.json", "report.html", "federation.json"}
SMALL = """
seed = 3
[data]
limit = 120
[partition]
kind = "rotation:0,180"
clients = 4
[model]
name = "mclr"
[train]
local_epochs = 1
[engine]
name = "serial"
"""


@dataclass(frozen=True)
class Command:
    """A command: what is there before it, and itself, which is also given again after a crash."""

    go: Callable[[Path], object]
    before: Callable[[Path], object] = lambda folder: None
    timed: frozenset[str] = frozenset(TIMED)  # names of files that tell the time


def written(folder: Path, timed: frozenset[str] = frozenset(TIMED)) -> dict[str, bytes]:
    """Every file below a folder that must not depend on whether the command was disturbed."""
    files = sorted(f for f in folder.rglob("*") if f.is_file() and f.name not in timed)
    return {str(f.relative_to(folder)): f.read_bytes() for f in files}


def saved_rounds(folder: Path) -> dict[str, list[int]]:
    """The rounds in each folder of checkpoints that has some; each is whole, or this raises."""
    homes = [f for f in folder.rglob("checkpoints") if f.is_dir()]
    return {
        str(home.relative_to(folder)): [checkpoint.load(path).state.round for path in there]
        for home in homes
        if (there := checkpoint.rounds(home))
    }


def strays(folder: Path) -> list[Path]:
    """What a crash left behind that belongs to nothing."""
    return [path for path in folder.rglob("*") if path.name.endswith(".tmp")]


def configured(settings: dict[str, Any], home: Path) -> configs.Config:
    """The small experiment with some settings."""
    file = home / "small.toml"
    if not file.exists():
        file.write_text(SMALL)
    return configs.load(file, list(settings.items()))


def train(folder: Path, page: bool = False, **settings: Any) -> ct.Result:
    """`coterie run`, or `coterie resume` where a run is."""
    if (folder / "run.toml").exists():
        return experiment.resume(folder, page=page)
    given = {key.replace("__", "."): value for key, value in settings.items()}
    return experiment.execute(configured(given, folder.parent), folder, page=page)


def compare(folder: Path) -> ct.Comparison:
    people = ct.Population.of(clients(3), classes=4)
    methods = [ct.FedAvg(SOLVER), ct.Local(SOLVER)]
    how: dict[str, Any] = {"engine": "serial", "page": False}
    return ct.compare(methods, people, network(), rounds=1, seeds=1, out=folder, **how)


def stopped(folder: Path) -> None:
    """A run that has one round of two behind it."""
    home = folder.parent / "stopped"
    if not home.exists():
        train(home, method="ditto", train__rounds=1)
    shutil.copytree(home, folder)


def more(folder: Path) -> ct.Result:
    return experiment.resume(folder, settings=[("train.rounds", 2)], page=False)


COMMANDS = {
    "run": Command(partial(train, method="fedclust", fedclust__clusters=2, train__rounds=3)),
    "resume": Command(more, stopped),
    "compare": Command(compare),
    "newcomers": Command(
        partial(train, method="fedavg", train__rounds=1, newcomers__share=0.3, newcomers__epochs=1)
    ),
    "report": Command(write_run, stopped, frozenset(TIMED - {"report.html"})),
}
