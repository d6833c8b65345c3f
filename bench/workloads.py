"""What is measured: synthetic clients, a network, and how long each client trains on them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import nn

Array = NDArray[Any]
CLASSES, KERNEL, SEED = 10, 5, 0


@dataclass(frozen=True)
class Workload:
    """One round of FedAvg: every client trains from the global model; the models are averaged.

    The network: 5x5 convolutions, each with ReLU and a 2x2 maximum, then linear layers with ReLU.
    """

    name: str
    summary: str
    clients: int
    samples: int  # of each client
    shape: tuple[int, ...]  # of one sample: (channels, height, width)
    epochs: int
    batch: int
    channels: tuple[int, ...] = ()  # of the convolutions
    padding: int = 0
    hidden: tuple[int, ...] = ()  # widths of the linear layers before the last
    lr: float = 0.01
    momentum: float = 0.5
    repeat: int = 3  # counted rounds, unless another number is asked for

    @property
    def steps(self) -> int:
        """Mini-batches of all clients in a round."""
        return self.clients * self.epochs * -(-self.samples // self.batch)

    @cached_property
    def sides(self) -> list[int]:
        """Height = width of what enters each convolution, and of what leaves the last pooling."""
        sides = [self.shape[1]]
        for _ in self.channels:
            sides.append((sides[-1] + 2 * self.padding - KERNEL + 1) // 2)
        return sides

    @cached_property
    def widths(self) -> list[int]:
        """Inputs of every linear layer, and the classes."""
        depth = (self.shape[0], *self.channels)[-1]
        return [depth * self.sides[-1] ** 2, *self.hidden, CLASSES]

    def layers(self) -> Iterator[tuple[tuple[int, ...], int]]:
        """The shape of each layer's weight, and at how many places it is applied to a sample."""
        for (i, o), side in zip(
            pairwise((self.shape[0], *self.channels)), self.sides[:-1], strict=True
        ):
            yield (o, i, KERNEL, KERNEL), (side + 2 * self.padding - KERNEL + 1) ** 2
        for i, o in pairwise(self.widths):
            yield (o, i), 1

    @cached_property
    def flops(self) -> float:
        """Of a round: forward once, backward twice, but no gradient of the samples themselves."""
        forward = [2 * prod(shape) * places for shape, places in self.layers()]
        return float((3 * sum(forward) - forward[0]) * self.samples * self.epochs * self.clients)

    def initial(self) -> list[Array]:
        """Weight and bias of each layer, drawn as PyTorch does, for every contestant the same."""
        rng = np.random.default_rng(SEED)
        tensors: list[Array] = []
        for shape, _ in self.layers():
            bound = 1 / sqrt(prod(shape[1:]))
            tensors += [rng.uniform(-bound, bound, s).astype("f") for s in (shape, shape[:1])]
        return tensors

    def client(self, i: int) -> tuple[Array, Array]:
        """Samples (n, ...) and labels (n,): noise around one picture per class, some mislabelled.

        So the loss falls, and does not reach zero: denormal gradients would slow all down.
        """
        depth, height, width = self.shape
        coarse = np.random.default_rng(SEED).normal(size=(CLASSES, depth, height // 4, width // 4))
        pictures = np.kron(coarse, np.ones((4, 4)))  # squares that a convolution can see
        rng = np.random.default_rng([SEED, i])
        truth = rng.integers(CLASSES, size=self.samples)
        x = 0.5 * pictures[truth].astype("f")
        x += rng.standard_normal(size=x.shape, dtype="f")
        noise = rng.integers(CLASSES, size=self.samples)
        return x, np.where(rng.random(self.samples) < 0.1, noise, truth)

    def order(self, round: int, i: int) -> int:
        """Seeds the order in which client i sees its samples in a round (`coterie.core.rng`)."""
        address = repr((SEED, "train", round, 0, str(i))).encode()
        return int.from_bytes(hashlib.sha256(address).digest()[:8], "big") >> 1

    def network(self) -> nn.Sequential:
        """The network in plain PyTorch, with the initial weights."""
        import torch
        from torch import nn

        layers: list[nn.Module] = []
        for i, o in pairwise((self.shape[0], *self.channels)):
            layers += [nn.Conv2d(i, o, KERNEL, padding=self.padding), nn.ReLU(), nn.MaxPool2d(2)]
        layers.append(nn.Flatten())
        for i, o in pairwise(self.widths):
            layers += [nn.Linear(i, o), nn.ReLU()]
        net = nn.Sequential(*layers[:-1])
        with torch.no_grad():
            for parameter, values in zip(net.parameters(), self.initial(), strict=True):
                parameter.copy_(torch.from_numpy(values))
        return net


LENET: dict[str, Any] = {"channels": (6, 16), "hidden": (120, 84)}
WORKLOADS = {
    w.name: w
    for w in (
        Workload("W1", "LeNet-5, 1x28x28", 10, 500, (1, 28, 28), 10, 10, **LENET),
        Workload("W1c", "LeNet-5, 3x32x32", 10, 500, (3, 32, 32), 10, 10, **LENET),
        Workload(
            "W2",
            "CNN 16-32, padded",
            *(20, 2000, (1, 28, 28), 5, 128),
            channels=(16, 32),
            padding=2,
            repeat=1,  # a round takes more than a minute
        ),
        Workload("W3", "logistic regression", 100, 640, (1, 28, 28), 1, 32, repeat=7),
        Workload("W5", "MLP 200-200", 100, 200, (1, 28, 28), 1, 10, hidden=(200, 200), repeat=7),
    )
}
