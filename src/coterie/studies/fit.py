"""Train a method from Python: one call, with or without a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coterie.config import toml
from coterie.core.events import Listener, silence
from coterie.core.types import Method
from coterie.data.population import Population
from coterie.studies import training
from coterie.studies.network import Model, build_layout
from coterie.studies.result import Result
from coterie.studies.train_loop import Plan


def fit(
    method: Method,
    population: Population,
    model: Model,
    *,
    rounds: int,
    seed: int = 0,
    head: str | None = None,
    model_options: dict[str, Any] | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    engine: str = "auto",
    workers: int = 0,
    address: str | None = None,
    on_event: Listener | None = None,
    page: bool = True,
    **plan: Any,
) -> Result:
    """Train `method` for `rounds` rounds and measure every client.

    `model` is a name, a factory or a module; its initial weights follow from `seed`. With `out`,
    everything is recorded in that folder, and report.html in it shows what came out unless `page`
    is False; with `resume`, a run found there is continued to the same bits as if it had never
    stopped. Further keywords are the fields of `Plan`.
    """
    layout = build_layout(
        model, population.shape, population.classes, seed=seed, head=head, options=model_options
    )
    clients = training.simulation(
        method, population, layout, seed=seed, engine=engine, workers=workers, address=address
    )
    return training.train(
        clients,
        Plan(rounds, **plan),
        describe(method, model, seed, rounds),
        out=None if out is None else Path(out),
        resume=resume,
        tell=on_event or silence,
        page=page,
    )


def describe(method: Method, model: Model, seed: int, rounds: int) -> str:
    """The run.toml of a run that was started from Python, for people to read."""
    asked = {"method": repr(method), "model": str(model), "seed": seed, "rounds": rounds}
    return "# Started from Python; continue it with coterie.fit(..., resume=True).\n" + toml.write(
        {"started_from": "python", **asked}
    )
