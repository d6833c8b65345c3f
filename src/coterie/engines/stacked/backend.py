"""The stacked backend: clients side by side in one set of operations, in this process."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from math import prod

import torch
from torch import Tensor

from coterie.core.layout import Layout
from coterie.engines.chain import Convolution, Layer, NotStackableError, Pool, chain, on_one_draw
from coterie.engines.question import Portion, Question
from coterie.engines.stacked.descent import descend
from coterie.engines.stacked.stack import Stack
from coterie.engines.together import Together
from coterie.tasks.solver import Descent

# Fitted on logistic regression, MLPs, LeNet-5 and a CNN of 16-32 channels, on one core with AVX2
# and 1 MB of its own cache.
CACHE = 6_000_000  # bytes that a stack may touch in one step and still be fast
GATHERED = 8_000_000  # bytes of a client's fields, above which a client goes alone
CHANNELS = 256  # in x out of a convolution, from which PyTorch's own is as fast for one client


class Stacked(Together):
    """Clients train side by side, in one set of operations. Within rounding it is `Serial`.

    A network that is no straight line of layers it knows is trained one client after another, as
    `Serial` does it, and `notes` says so.
    """

    def __init__(self, layout: Layout, samples: Tensor, *, workers: int = 1) -> None:
        """`samples` are a few of any client, on which the layers are tried out."""
        super().__init__(layout)
        self.workers = workers  # how many of it there are, so that each gets its share of a cohort
        self.layers: list[Layer] = []
        try:
            self.layers = chain(layout)
            self.outputs = on_one_draw(lambda n: agree(self.layers, layout, samples, n))
            self.known = True
        except NotStackableError as why:
            self.notes = (f"clients train one after another, not stacked: {why}",)

    def trainings(self, question: Question) -> list[Portion]:
        """As many stacks as there are workers, or a multiple."""
        solver, m = question.task.trains, len(question.cohort)
        if solver is None or not self.known or not m:
            return super().trainings(question)
        order = question.sizes.argsort(descending=True, stable=True).tolist()
        sample, batch = question.clients[0].x.shape[1:], solver.batch or int(question.sizes.max())
        wide = widest(self.layers, sample, batch, self.layout.size)
        count = min(m, -(-m // (wide * self.workers)) * self.workers)
        return [sorted(order[i::count]) for i in range(count)]

    def train(self, descents: Sequence[Descent]) -> list[tuple[Tensor, int]]:
        """A stack at a time, no wider than its largest mini-batch allows."""
        sample = descents[0].client.x.shape[1:]
        batch = descents[0].solver.batch or max(len(d.client) for d in descents)
        alone = goes_alone(self.layers, sample, batch)
        wide = widest(self.layers, sample, batch, self.layout.size)
        return [
            result
            for i in range(0, len(descents), wide)
            for result in descend(
                descents[i : i + wide],
                self.layers,
                self.layout,
                self.outputs,
                channels_last=alone,
            )
        ]


def convolutions(
    layers: Sequence[Layer], shape: Sequence[int]
) -> Iterator[tuple[Convolution, int]]:
    """Every convolution, and at how many places it is applied to one sample."""
    height, width = (shape[1], shape[2]) if len(shape) == 3 else (0, 0)
    for layer in layers:
        match layer:
            case Convolution(shape=(_, _, kh, kw), stride=(sh, sw), padding=(ph, pw)):
                height, width = (height + 2 * ph - kh) // sh + 1, (width + 2 * pw - kw) // sw + 1
                yield layer, height * width
            case Pool(size=k):
                height, width = height // k, width // k


def goes_alone(layers: Sequence[Layer], shape: Sequence[int], batch: int) -> bool:
    """Whether one client fills a core: then one after another, channels last.

    >>> lenet = [Convolution(slice(0), None, (6, 1, 5, 5), (1, 1), (0, 0))]
    >>> goes_alone(lenet, (1, 28, 28), batch=10), goes_alone(lenet, (1, 28, 28), batch=500)
    (False, True)
    """
    return any(
        layer.shape[0] * layer.shape[1] >= CHANNELS
        or 4 * batch * places * prod(layer.shape[1:]) > GATHERED
        for layer, places in convolutions(layers, shape)
    )


def widest(layers: Sequence[Layer], shape: Sequence[int], batch: int, size: int) -> int:
    """How many clients at most stand side by side: as many as stay in a core's cache.

    Like `goes_alone` it is a function of shapes alone, never of a clock.

    >>> from coterie.engines.chain import Dense
    >>> widest([Dense(slice(0), None, (10, 784))], (784,), batch=32, size=7850)
    20
    >>> widest([Dense(slice(0), None, (200, 784))], (784,), batch=10, size=199_210)
    2
    """
    if goes_alone(layers, shape, batch):
        return 1
    weights = 3 * 4 * size  # numbers, gradients, momentum
    found = [layer.shape[0] * places for layer, places in convolutions(layers, shape)]
    largest = 2 * 4 * batch * max([prod(shape), *found])  # on the way there, and on the way back
    return max(1, CACHE // (weights + largest))


def agree(layers: Sequence[Layer], layout: Layout, x: Tensor, draw: int = 0) -> int:
    """One gradient both ways: a network that only looks like its layers is found out here.

    Of one that is what it looks like, the number of its outputs.
    """
    rng = torch.Generator().manual_seed(draw)
    rows = layout.initial + 0.01 * torch.randn(2, layout.size, generator=rng).to(layout.dtype)
    plain = copy.deepcopy(layout)
    outputs = plain.predict(rows[0], x).shape[1]
    y = torch.randint(outputs, (len(x),), generator=rng)
    share = x.new_zeros(outputs, len(x)).scatter_(0, y[None], 1 / len(x))
    expected = []
    for row in rows:
        net = plain.flat(row)
        with net.drawing(rng):
            net.gradient(x, y)
        expected.append(net.grad.clone())
    slices = list(layout.slices.values())
    for chosen, last in ((rows, False), (rows[:1], True)):
        stack = Stack(layers, slices, chosen, channels_last=last)
        m = len(chosen)
        try:
            stack.gradient(torch.stack([x] * m), share.expand(m, *share.shape))
        except RuntimeError as cause:
            raise NotStackableError(f"its layers do not fit together: {cause}") from cause
        want = torch.stack(expected[:m])
        tolerance = 1e-4 * want.abs().max() if layout.dtype == torch.float32 else 1e-9
        if not torch.allclose(stack.unlaid(stack.grad), want, rtol=1e-4, atol=float(tolerance)):
            raise NotStackableError("its gradient is not that of its layers")
    return outputs
