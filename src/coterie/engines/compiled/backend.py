"""The compiled backend: each client by itself, all steps of its training in one call."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor

from coterie.core.layout import Layout
from coterie.engines.compiled.host import NotCompilableError
from coterie.engines.compiled.network import Gradients, Network
from coterie.engines.compiled.objects import machine
from coterie.engines.compiled.planning import planned
from coterie.engines.question import Portion, Question
from coterie.engines.serial import Serial
from coterie.engines.stacked.backend import Stacked
from coterie.engines.stacked.chain import NotStackableError
from coterie.tasks.solver import Descent
from coterie.tasks.steps import Forward, SteppedTask


class Compiled(Stacked):
    """Clients train one after another, by code that is compiled for their network.

    Within rounding it is `Serial`, with the same bits for any number of workers. A network that it
    does not know is trained as `Serial` does it, and `notes` says so.
    """

    together = 500  # test samples in one portion: a large one is no faster, small ones share out

    def __init__(self, layout: Layout, samples: Tensor) -> None:
        """`samples` are a few of any client, on which the code is tried out."""
        self.layout, self.workers, self.layers = layout, 1, None
        try:
            made = planned(layout, tuple(samples.shape[1:]))
            code, new = machine(made)
            self.network = Network(made, code)
            agree(self.network, layout, samples)
            self.layers = []  # known, and of no more use
        except NotStackableError as why:
            self.notes = (f"clients train one after another, not compiled: {why}",)
        else:
            if new:
                self.notes = (
                    "training was compiled for this network, and is kept for the next run",
                )

    def portions(self, question: Question) -> list[Portion]:
        """Whoever trains does so alone; for tests, the clients of a model."""
        if isinstance(question.task, SteppedTask) and question.task.trains:
            return Serial.portions(self, question)
        return super().portions(question)

    def train(self, descents: Sequence[Descent]) -> list[tuple[Tensor, int]]:
        """One after another."""
        return [self.network.train(descent, self.layout) for descent in descents]

    def read(self, forwards: Sequence[Forward]) -> list[Tensor]:
        """Every sample once, though several clients may be tested on it."""
        if self.layers is None:
            return super().read(forwards)
        sets = {f.x.data_ptr(): f.x for f in forwards}
        answers = self.network.read(forwards[0].row, list(sets.values()))
        said = dict(zip(sets, answers, strict=True))
        return [said[f.x.data_ptr()] for f in forwards]


def agree(network: Network, layout: Layout, x: Tensor) -> None:
    """One gradient both ways: a network that only looks like its layers is found out here."""
    rng = torch.Generator().manual_seed(0)
    row = layout.initial + 0.01 * torch.randn(layout.size, generator=rng)
    x = x[:4].float().contiguous()
    y = torch.randint(network.plan.outputs, (len(x),), generator=rng)
    net = copy.deepcopy(layout).flat(row)
    with net.drawing(rng):
        net.gradient(x, y)
    mine = Gradients(network, row, None, network.learns(None))
    mine.gradient(x, y)
    got, want = mine.grad[network.back], net.grad
    if not torch.allclose(got, want, rtol=1e-3, atol=1e-4 * float(want.abs().max())):
        raise NotCompilableError("its gradient is not that of its layers")
