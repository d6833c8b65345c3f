"""coterie with its default settings."""

from __future__ import annotations

import dataclasses

import torch

import coterie as ct
from bench.contestant import Channel, versions
from bench.workloads import CLASSES, SEED, Array, Workload
from coterie import engines


class Ours:
    """FedAvg, as `coterie.fit` runs it, without the evaluation between rounds."""

    def __init__(self, workload: Workload, engine: str, workers: int = 0) -> None:
        self.layout = ct.Layout(workload.network())
        self.shapes = [t.shape for t in workload.initial()]
        population = ct.Population.of(
            [workload.client(i) for i in range(workload.clients)],
            CLASSES,
            test_share=0.0,  # everybody trains on all, as in the other libraries
        )
        solver = ct.Solver(
            lr=workload.lr,
            optimiser=ct.SGD(momentum=workload.momentum),
            batch=workload.batch,
            epochs=workload.epochs,
        )
        self.method = ct.FedAvg(solver)
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
        row = self.state.models[0]
        parts = row.split([torch.Size(shape).numel() for shape in self.shapes])
        return [p.view(s).numpy() for p, s in zip(parts, self.shapes, strict=True)]


def main(workload: Workload, channel: Channel, engine: str = "auto") -> None:
    """Serve rounds."""
    ours = Ours(workload, engine)
    channel.serve(ours, versions=versions("coterie", "torch"), how=str(ours.chosen))
