"""What is measured: synthetic clients, a network, and how long each client trains on them.

A workload is a round of FedAvg; a study is a round of FedClust with all that `coterie run` does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import ceil, exp, prod, sqrt
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
    def who(self) -> str:
        """Whom a round asks."""
        return f"{self.clients} clients x {self.samples} samples"

    @property
    def warm_epochs(self) -> int:
        """Of the round that is not counted, after which the models are compared."""
        return 1

    @property
    def steps(self) -> int:
        """Mini-batches of all clients in a round."""
        return self.clients * self.epochs * ceil(self.samples / self.batch)

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
    def sample_flops(self) -> tuple[float, float]:
        """Of one sample, to read it and to train on it.

        Training is forward once and backward twice, but no gradient of the samples themselves.
        """
        forward = [2.0 * prod(shape) * places for shape, places in self.layers()]
        return sum(forward), 3 * sum(forward) - forward[0]

    @property
    def flops(self) -> float:
        """Of a round, as many as a network without zeros would take."""
        return self.sample_flops[1] * self.samples * self.epochs * self.clients

    @cached_property
    def starts(self) -> list[Array]:
        """Weight and bias of each layer, drawn as PyTorch does, for every contestant the same."""
        rng = np.random.default_rng(SEED)
        tensors: list[Array] = []
        for shape, _ in self.layers():
            bound = 1 / sqrt(prod(shape[1:]))
            tensors += [rng.uniform(-bound, bound, s).astype("f") for s in (shape, shape[:1])]
        return tensors

    def initial(self) -> list[Array]:
        """All models before the first round, one after the other: here one."""
        return self.starts

    def group(self, i: int) -> int:
        """Which of the models is client i's."""
        return 0

    def client(self, i: int) -> tuple[Array, Array]:
        """Samples (n, ...) and labels (n,) that a client trains on."""
        return self.drawn(self.samples, i)

    def drawn(self, n: int, *address: int) -> tuple[Array, Array]:
        """n samples: noise around one picture per class, some mislabelled.

        So the loss falls, and does not reach zero: denormal gradients would slow all down.
        """
        depth, height, width = self.shape
        coarse = np.random.default_rng(SEED).normal(size=(CLASSES, depth, height // 4, width // 4))
        pictures = np.kron(coarse, np.ones((4, 4)))  # squares that a convolution can see
        rng = np.random.default_rng([SEED, *address])
        truth = rng.integers(CLASSES, size=n)
        x = 0.5 * pictures[truth].astype("f")
        x += rng.standard_normal(size=x.shape, dtype="f")
        noise = rng.integers(CLASSES, size=n)
        return x, np.where(rng.random(n) < 0.1, noise, truth)

    def order(self, round: int, i: int) -> int:
        """Seeds the order in which client i sees its samples in a round."""
        return address("train", round, 0, str(i))

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
            for parameter, values in zip(net.parameters(), self.starts, strict=True):
                parameter.copy_(torch.from_numpy(values))
        return net


@dataclass(frozen=True)
class Study(Workload):
    """One round of FedClust: some clients train their cluster's model, all are tested, all is kept.

    Client i is of group i mod `groups`, each of which calls the classes otherwise. In round 0 all
    train and are grouped by their last layers; the round that is not counted includes it.
    """

    groups: int = 4
    fraction: float = 0.1  # of clients that train in a round
    spread: float = 0.6  # standard deviation of the logarithm of the clients' sizes

    @property
    def who(self) -> str:
        """Whom a round asks."""
        sizes = sorted(map(self.size, range(self.clients)))
        return (
            f"{self.clients} clients of {sizes[0]} to {sizes[-1]} samples, {self.fraction:.0%} of "
            f"them train, all are tested"
        )

    @property
    def warm_epochs(self) -> int:
        """As many as in every round: it is a study's first."""
        return self.epochs

    @property
    def steps(self) -> int:
        """Mini-batches of all clients in a round, on average."""
        every = sum(ceil(self.size(i) / self.batch) for i in range(self.clients))
        return round(self.fraction * self.epochs * every)

    @property
    def flops(self) -> float:
        """Of a round, on average: training of some, tests of all."""
        read, train = self.sample_flops
        trained = sum(map(self.size, range(self.clients))) * self.fraction * self.epochs
        return train * trained + read * sum(map(self.tests, range(self.clients)))

    def size(self, i: int) -> int:
        """Training samples of client i: `samples` is their median."""
        normal = np.random.default_rng([SEED, i, 2]).normal()
        return round(self.samples * exp(self.spread * normal))

    def tests(self, i: int) -> int:
        """Test samples of client i."""
        return ceil(self.size(i) / 4)

    @property
    def grouping_steps(self) -> int:
        """Mini-batches of everybody's training in round 0: those of the median client."""
        sizes = sorted(map(self.size, range(self.clients)))
        return self.epochs * ceil(sizes[(len(sizes) - 1) // 2] / self.batch)

    def initial(self) -> list[Array]:
        """The models of all groups, one after the other."""
        return self.starts * self.groups

    def group(self, i: int) -> int:
        """The group of client i."""
        return i % self.groups

    def client(self, i: int) -> tuple[Array, Array]:
        """What client i trains on."""
        return self.named_by(i, *self.drawn(self.size(i), i))

    def test(self, i: int) -> tuple[Array, Array]:
        """What client i is tested on."""
        return self.named_by(i, *self.drawn(self.tests(i), i, 1))

    def named_by(self, i: int, x: Array, y: Array) -> tuple[Array, Array]:
        """The samples with the labels that a client's group gives them."""
        return x, (y + 3 * self.group(i)) % CLASSES

    def cohort(self, round: int) -> list[int]:
        """Who trains in a round."""
        import torch

        rng = torch.Generator().manual_seed(address("sample", round, 0))
        drawn = torch.randperm(self.clients, generator=rng)[: int(self.fraction * self.clients)]
        return sorted(drawn.tolist())


def address(*path: object) -> int:
    """The seed that belongs to an address (`coterie.core.rng`)."""
    digest = hashlib.sha256(repr((SEED, *path)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


LENET: dict[str, Any] = {"channels": (6, 16), "hidden": (120, 84)}
WORKLOADS: dict[str, Workload] = {
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
        Study("W6", "FedClust, LeNet-5, 3x32x32", 100, 100, (3, 32, 32), 10, 10, **LENET, repeat=5),
    )
}
