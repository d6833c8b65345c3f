"""A stack: the networks of m clients as one, on flat tensors as a `FlatModule` is on a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from coterie.engines.chain import Convolution, Dense, Flatten, Layer, Pool, Rectify
from coterie.engines.stacked import batched, single_client


class Operation(Protocol):
    """One layer of a stack at work: it remembers what the way back needs."""

    def forward(self, a: Tensor) -> Tensor:
        """Activations to activations."""

    def backward(self, g: Tensor, needed: bool) -> Tensor:
        """Gradients to gradients, and those of its weights on the way; `needed`: of its input."""


class Stack:
    """m networks whose numbers are `w` and whose gradients are `grad`, as those of a `FlatModule`.

    Both are flat, first tensor by tensor and then client by client, so that every tensor of all
    clients is one piece of memory and a solver's step is a few operations for all.
    """

    exact = False  # another order of sums has rounded otherwise already

    def __init__(
        self,
        layers: Sequence[Layer],
        slices: Sequence[slice],
        rows: Tensor,  # (m, P)
        mask: Tensor | None = None,  # (P,) 1 where a column learns
        *,
        channels_last: bool = False,  # one client by itself
    ) -> None:
        self.slices, self.m = slices, len(rows)
        self.w = self.laid(rows)
        self.grad = torch.zeros_like(self.w)
        self.mask = None if mask is None else self.laid(mask.expand(rows.shape))
        self.channels_last = channels_last
        head, *_ = layers
        self.takes_rows = isinstance(head, Flatten | Dense)  # samples are, or become, vectors
        inner = layers[1:] if isinstance(head, Flatten) else layers
        self.scratch = batched.Scratch()
        self.ops = [self.operation(*of) for of in zip(inner, tiles(inner), strict=True)]
        self.lowest = [isinstance(layer, Convolution | Dense) for layer in inner].index(True)

    def laid(self, rows: Tensor) -> Tensor:
        """(m, P) rows as one flat tensor, tensor by tensor."""
        if len(rows) == 1:
            return rows[0].clone()
        return torch.cat([rows[:, s].reshape(-1) for s in self.slices])

    def unlaid(self, flat: Tensor) -> Tensor:
        """A flat tensor as (m, P) rows, copied: the inverse of `laid`."""
        m = self.m
        return torch.cat([flat[m * s.start : m * s.stop].view(m, -1) for s in self.slices], 1)

    @property
    def rows(self) -> Tensor:
        """(m, P) the networks' numbers, copied."""
        return self.unlaid(self.w)

    def operation(self, layer: Layer, tile: tuple[int, int]) -> Operation:
        """A layer at work on this stack, so many rows and columns together."""
        match layer:
            case Rectify():
                return batched.ReLU()
            case Dense():
                return batched.Product(layer, self.w, self.grad, self.m)
            case Convolution() if self.channels_last:
                return single_client.Fields(layer, self.w, self.grad)
            case Convolution():
                return batched.Fields(layer, self.w, self.grad, self.m, tile, self.scratch)
            case Pool() if self.channels_last:
                return single_client.Pooling(layer)
            case Pool(size=2, mean=False) if tile[0] == 2:
                return batched.Larger()
            case Pool():
                return batched.Windows(layer)
            case Flatten():
                return single_client.Flat() if self.channels_last else batched.Flat()

    def gradient(self, x: Tensor, y: Tensor) -> None:
        """Put the gradient of each client's mean cross-entropy into `grad`.

        x: (m, B, ...) samples. y: (m, K, B) the share of each sample in its client's loss, at its
        label: 1/b for a mini-batch of b, and zero for what only fills a shorter one up.
        """
        a = self.entered(x)
        for op in self.ops:
            a = op.forward(a)
        # Over the classes with the samples side by side: four times as fast as the other way round.
        g = a.transpose(1, 2).softmax(1).mul_(y.sum(1, keepdim=True)).sub_(y).transpose(1, 2)
        for i in range(len(self.ops) - 1, self.lowest - 1, -1):
            g = self.ops[i].backward(g, needed=i > self.lowest)

    def clip(self, norm: float) -> None:
        """Shorten the gradient of each client to this norm, where it is longer."""
        parts = [
            self.grad[self.m * s.start : self.m * s.stop].view(self.m, -1) for s in self.slices
        ]
        total = torch.stack([torch.linalg.vector_norm(part, dim=1) for part in parts]).norm(dim=0)
        share = (norm / (total + 1e-6)).clamp(max=1)[:, None]  # as PyTorch does
        for part in parts:
            part.mul_(share)

    def entered(self, x: Tensor) -> Tensor:
        """Samples (m, B, ...) in the order in which the first layer wants them."""
        if self.takes_rows:
            return x.flatten(2)
        if self.channels_last:
            return x[0].to(memory_format=torch.channels_last)
        first = self.ops[0]
        if isinstance(first, batched.Fields):
            return first.combed(x)
        return x.movedim(1, -1).contiguous()


def tiles(layers: Sequence[Layer]) -> list[tuple[int, int]]:
    """For each layer how many rows and columns stand together: in front of a pooling, its size.

    Columns only where the pooling is a maximum of 2 x 2 and the convolution the first layer.

    >>> conv = Convolution(slice(0), None, (6, 1, 5, 5), (1, 1), (0, 0))
    >>> tiles([conv, Pool(2), Rectify(), conv, Rectify(), Pool(2, mean=True), conv, Flatten()])
    [(2, 2), (2, 2), (1, 1), (2, 1), (2, 1), (2, 1), (1, 1), (1, 1)]
    """
    found = [(1, 1)] * len(layers)
    start = None
    for i, layer in enumerate(layers):
        if isinstance(layer, Pool) and start is not None:
            wide = 2 if layer == Pool(2) and start == 0 else 1
            found[start : i + 1] = [(layer.size, wide)] * (i + 1 - start)
        if isinstance(layer, Convolution):
            start = i
        elif not isinstance(layer, Rectify):
            start = None
    return found
