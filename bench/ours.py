"""coterie with its default settings."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

import coterie as ct
from bench.contestant import Channel, versions
from bench.environments import HOME
from bench.workloads import CLASSES, SEED, Array, Study, Workload
from coterie import engines
from coterie.core.events import Event
from coterie.runs import checkpoint
from coterie.studies.run.plan import Plan
from coterie.studies.run.training import simulation, train


def solver_of(workload: Workload) -> ct.Solver:
    """How its clients train."""
    return ct.Solver(
        lr=workload.lr,
        optimiser=ct.SGD(momentum=workload.momentum),
        batch=workload.batch,
        epochs=workload.epochs,
    )


def split(models: torch.Tensor, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """The tensors of models, one model after the other."""
    sizes = [torch.Size(shape).numel() for shape in shapes]
    return [
        part.view(shape).numpy()
        for row in models
        for part, shape in zip(row.split(sizes), shapes, strict=True)
    ]


class Ours:
    """FedAvg, as `coterie.fit` runs it, without the evaluation between rounds."""

    def __init__(self, workload: Workload, engine: str, workers: int = 0) -> None:
        self.layout = ct.Layout(workload.network())
        self.shapes = [t.shape for t in workload.starts]
        population = ct.Population.of(
            [workload.client(i) for i in range(workload.clients)],
            CLASSES,
            test_share=0.0,  # everybody trains on all, as in the other libraries
        )
        self.method = ct.FedAvg(solver_of(workload))
        self.chosen = engines.settle(engine, workers, population, self.layout, self.method)
        self.fed = engines.build(
            self.chosen.name, population, self.layout, SEED, self.chosen.workers
        )
        self.state = next(ct.run(self.method, self.fed, 0))

    def round(self, epochs: int) -> None:
        """One turn of the loop."""
        solver = dataclasses.replace(self.method.solver, epochs=epochs)
        method = dataclasses.replace(self.method, solver=solver)
        *_, self.state = ct.run(method, self.fed, self.state.round + 1, self.state)

    def weights(self) -> list[Array]:
        """The global model."""
        return split(self.state.models[:1], self.shapes)


class OverError(Exception):
    """Nobody asks for a further round."""


def serve_study(study: Study, channel: Channel, engine: str) -> None:
    """FedClust by the road of `coterie run`: each round with its tests, records and checkpoint.

    The run waits wherever it tells that a round is over; its first is round 0 and round 1.
    """
    layout, shapes = ct.Layout(study.network()), [t.shape for t in study.starts]
    everybody = range(study.clients)
    population = ct.Population.of(
        [(*study.client(i), *study.test(i)) for i in everybody],
        CLASSES,
        group=[study.group(i) for i in everybody],
    )
    method = ct.FedClust(
        solver_of(study),
        fraction=study.fraction,
        clusters=study.groups,
        warmup_epochs=study.epochs,
    )
    with tempfile.TemporaryDirectory(dir=HOME) as folder:
        out = Path(folder) / "run"

        def weights() -> list[Array]:
            return split(checkpoint.latest(out / "checkpoints")[0].state.models, shapes)

        chosen = engines.settle(engine, 0, population, layout, method)
        about = {"versions": versions("coterie", "torch"), "how": str(chosen)}
        turns = channel.turns(weights, **about)

        def hear(event: Event) -> None:
            begins = event["event"] == "start"
            ends = event["event"] == "round" and event["round"] > 0
            if (begins or ends) and next(turns, None) is None:
                raise OverError

        clients = simulation(method, population, layout, seed=SEED, engine=engine)
        try:
            train(clients, Plan(rounds=10_000), "", out=out, tell=hear, page=False)
        except OverError:
            return


def main(workload: Workload, channel: Channel, engine: str = "auto") -> None:
    """Serve rounds."""
    if isinstance(workload, Study):
        serve_study(workload, channel, engine)
        return
    ours = Ours(workload, engine)
    channel.serve(ours, versions=versions("coterie", "torch"), how=str(ours.chosen))
