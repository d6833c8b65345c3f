"""One cell of a comparison: run to its end, and what it was made of written beside it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from typing import Any

from coterie.config import Config
from coterie.core import storage
from coterie.core.errors import CoterieError
from coterie.core.events import Listener
from coterie.runs.comparison import Cell
from coterie.studies import experiment
from coterie.studies.result import Result


def run_cell(config: Config, cell: Cell, listen: Listener) -> None:
    """One cell from an experiment file: begun, or gone on with where it stopped."""
    if (cell.folder / "run.toml").exists():
        then = (cell.folder / "run.toml").read_text()
        experiment.refuse_changes(then, config, ())
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
    }
    storage.replace_file(cell.folder / "cell.json", (json.dumps(facts, indent=1) + "\n").encode())


def work(result: Result) -> dict[str, Any]:
    """The local work that was planned: in a round, and as samples over the whole run.

    Samples are counted for every client and round in which it took part: its own times the epochs,
    or steps times the batch. What a method trains besides is named in `own`, not counted.
    """
    method: Any = result.method
    solver = getattr(method, "solver", None)
    sizes = dict(zip(result.population.names, result.population.sizes.tolist(), strict=True))
    took = {(r.round, r.client) for r in result.history if r.client and r.stage == "traffic"}
    rounds = int(result.summary["round"])
    share = getattr(method, "fraction", 1.0)
    samples = 0.0
    if solver is not None:
        each = {
            name: solver.steps * (solver.batch or n) if solver.steps else solver.epochs * n
            for name, n in sizes.items()
        }
        samples = sum(each[client] for t, client in took if t > 0)
        if not took:  # nothing was sent: it trains alone
            samples = rounds * share * sum(each.values())
    own = {
        f.name: value
        for f in fields(method)
        if ("epochs" in f.name or "steps" in f.name)
        and (value := getattr(method, f.name))
        and not isinstance(value, bool)
    }
    shown = {k: getattr(solver, k, None) for k in ("epochs", "steps", "batch", "lr")}
    return {
        **shown,
        "participation": share,
        "samples": samples,
        "own": ", ".join(f"{k} = {v}" for k, v in own.items()),
    }


def listener_of(cell: Cell, listen: Listener) -> Listener:
    """A listener for one cell, whose events are told with the name of the cell."""
    return lambda event: listen({**event, "cell": cell.folder.name})


def error_text(error: BaseException) -> str:
    """Why a cell failed, in its error's words."""
    if isinstance(error, CoterieError):
        return f"error[{error.code}]: {error}"
    return f"{type(error).__name__}: {error}"
