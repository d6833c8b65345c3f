"""One cell of a comparison: run to its end, and what it was made of written beside it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from coterie.config import Config
from coterie.core import storage
from coterie.core.errors import CoterieError
from coterie.core.events import Listener
from coterie.core.units import count
from coterie.runs.comparison import Cell
from coterie.runs.files import text_of
from coterie.studies.run import experiment, started
from coterie.studies.run.result import Result
from coterie.tasks.optimiser import SGD

BESIDES = ("epochs", "steps", "pretrain", "rounds_before")  # options that are work


def run_cell(config: Config, cell: Cell, listen: Listener) -> None:
    """One cell from an experiment file: begun, or gone on with where it stopped."""
    if (cell.folder / "run.toml").exists():
        then = text_of(cell.folder / "run.toml")
        started.refuse_changes(then, config, ())
        # Its code is that of `config`, which was allowed when that was read.
        result = experiment.resume(cell.folder, allow_code=True, on_event=listen, page=False)
    else:
        result = experiment.execute(config, cell.folder, listen, page=False)
    record_facts(cell, result)


def record_facts(cell: Cell, result: Result) -> None:
    """Write what a cell was made of; from then on it is done."""
    row = result.fed.layout.initial
    facts = {
        "population": result.population.key,
        "initial": hashlib.sha256(row.contiguous().numpy().tobytes()).hexdigest(),
        "work": work(result),
        "sizes": dict(zip(result.population.names, result.population.sizes.tolist(), strict=True)),
    }
    storage.replace_file(cell.folder / "cell.json", (json.dumps(facts, indent=1) + "\n").encode())


def work(result: Result) -> dict[str, Any]:
    """The local work: what is planned for a round, and the samples seen over the whole run.

    All training of clients is counted, also before the first round and in rounds with everybody;
    what a method does besides its rounds is named in `own`.
    """
    method: Any = result.method
    solver = getattr(method, "solver", None)
    share = getattr(method, "fraction", 1.0)
    own = {
        f.name: value
        for f in fields(method)
        if any(word in f.name for word in BESIDES)
        and (value := getattr(method, f.name))
        and not isinstance(value, bool)
    }
    shown = {k: getattr(solver, k, None) for k in ("epochs", "steps", "batch", "lr")}
    return {
        **shown,
        "participation": share,
        "samples": int(result.history.total("samples")),  # as read back, too
        "recipe": ", ".join(recipe(solver, getattr(method, "server", None))),
        "own": ", ".join(f"{k} = {v}" for k, v in own.items()),
    }


def recipe(solver: Any, server: Any) -> Iterator[str]:
    """What is not plain in how a method trains: its optimiser, clipping, schedule, server."""
    optimiser, schedule = (getattr(solver, name, None) for name in ("optimiser", "schedule"))
    if optimiser is not None and not isinstance(optimiser, SGD):
        yield type(optimiser).__name__
    if momentum := getattr(optimiser, "momentum", 0):
        yield f"{'Nesterov ' * getattr(optimiser, 'nesterov', False)}momentum {momentum:g}"
    if decay := getattr(optimiser, "weight_decay", 0):
        yield f"weight decay {decay:g}"
    if clip := getattr(solver, "clip", 0):
        yield f"gradients clipped to {clip:g}"
    if schedule is not None and schedule.varies:
        warm = f" after {count(schedule.warmup, 'round')} of warm-up" * bool(schedule.warmup)
        yield f"{schedule.kind} schedule{warm}"
    if server is not None and server.kind != "none":
        yield f"server {server.kind} at {server.rate:g}"
    if server is not None and server.robust:
        yield f"{server.merge} for {100 * server.byzantine:g} % hostile"


def listener_of(cell: Cell, listen: Listener) -> Listener:
    """A listener for one cell, whose events are told with the name of the cell."""
    return lambda event: listen({**event, "cell": cell.folder.name})


def error_text(error: BaseException) -> str:
    """Why a cell failed, in its error's words."""
    if isinstance(error, CoterieError):
        return f"error[{error.code}]: {error}"
    return f"{type(error).__name__}: {error}"
