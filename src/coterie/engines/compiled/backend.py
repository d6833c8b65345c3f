"""The compiled backend: each client by itself, all steps of its training in one call."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from coterie.core.events import Listener, silence
from coterie.core.flat_module import tensors
from coterie.core.layout import Layout
from coterie.engines.chain import NotStackableError, on_one_draw
from coterie.engines.compiled.host import NotCompilableError
from coterie.engines.compiled.network import Gradients, Network
from coterie.engines.compiled.objects import machine
from coterie.engines.compiled.planning import planned
from coterie.engines.question import Portion, Question
from coterie.engines.together import Together
from coterie.tasks.solver import Descent

SHARES = 16  # portions of each worker at least, so that all are done at about the same time
COMPILING = {
    "event": "compiling",
    "text": "training is compiled for this network: once, it is kept for the next run",
}


class Compiled(Together):
    """Clients train one after another, by code that is compiled for their network.

    Within rounding it is `Serial`, with the same bits for any number of workers. A network that it
    does not know is trained as `Serial` does it, and `notes` says so.
    """

    together = 500  # test samples in one portion: a large one is no faster, small ones share out

    def __init__(
        self, layout: Layout, samples: Tensor, tell: Listener = silence, *, workers: int = 1
    ) -> None:
        """`samples` are a few of any client, on which the code is tried out.

        If there is something to compile, `tell` hears it before.
        """
        super().__init__(layout)
        self.workers = workers  # how many of it there are, so that each gets its share of a cohort
        try:
            made = planned(layout, tuple(samples.shape[1:]))
            code = machine(made, announce=lambda: tell(COMPILING))[0]
            self.network = Network(made, code)
            on_one_draw(lambda draw: agree(self.network, layout, samples, draw))
            self.known = True
        except NotStackableError as why:
            self.notes = (f"clients train one after another, not compiled: {why}",)

    def trainings(self, question: Question) -> list[Portion]:
        """Of many clients some together, those of like sizes: less to do around their training."""
        many = len(question.cohort) // (SHARES * self.workers)
        if not self.known or many < 2:
            return super().trainings(question)
        order = question.sizes.argsort(descending=True, stable=True).tolist()
        return [sorted(order[i : i + many]) for i in range(0, len(order), many)]

    def train(self, descents: Sequence[Descent]) -> list[tuple[Tensor, int]]:
        """One after another."""
        return [self.network.train(descent, self.layout) for descent in descents]

    def logits(self, row: Tensor, sets: Sequence[Tensor]) -> Sequence[Tensor]:
        """(N, K) for each of some sets of samples."""
        return self.network.read(row, sets) if self.known else super().logits(row, sets)


def agree(network: Network, layout: Layout, x: Tensor, draw: int = 0) -> None:
    """One gradient both ways: a network that only looks like its layers is found out here."""
    rng = torch.Generator().manual_seed(draw)
    row = layout.initial + 0.01 * torch.randn(layout.size, generator=rng)
    x = x[:4].float().contiguous()
    y = torch.randint(network.plan.outputs, (len(x),), generator=rng)
    mine = Gradients(network, row, None, network.learns(None))
    mine.gradient(x, y)
    # PyTorch in float64: closer to the truth, and sooner than what it would prepare for float32.
    module = layout.module(row).train().double()
    with torch.random.fork_rng(devices=[]):
        torch.autograd.backward(cross_entropy(module(x.double()), y))
    theirs = tensors(module)
    got, want = mine.grad[network.back].numpy(), np.zeros(layout.size)
    for name, columns in layout.slices.items():
        gradient = theirs[name].grad
        if gradient is not None:  # else zero, as that of what has no effect
            want[columns] = gradient.reshape(-1).numpy()
    # By NumPy: PyTorch would start its threads for this, which takes longer than all the rest.
    if not np.allclose(got, want, rtol=1e-3, atol=1e-4 * float(np.abs(want).max())):
        raise NotCompilableError("its gradient is not that of its layers")
