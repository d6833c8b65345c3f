"""Federated averaging in plain PyTorch, from top to bottom: no coterie in it.

Ten clients share Fashion-MNIST; each round every client trains LeNet-5 for an epoch, and the server
averages. A test feeds the same clients to coterie's FedAvg and compares. Run it with a folder that
holds the four IDX files of Fashion-MNIST (`apt-get install dataset-fashion-mnist`):

    python examples/fedavg_by_hand.py /usr/share/datasets/fashion-mnist
"""

from __future__ import annotations

import copy
import gzip
import hashlib
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

Shard = tuple[Tensor, Tensor, Tensor, Tensor]  # x, y, x_test, y_test


def lenet5(classes: int = 10) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, classes),
    )  # fmt: skip


def generator(*address: object) -> torch.Generator:
    """The mini-batches of a client in a round depend on nothing but (seed, round, client)."""
    digest = hashlib.sha256(repr(address).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def train(
    net: nn.Module, x: Tensor, y: Tensor, epochs: int, batch: int, lr: float, rng: torch.Generator
) -> nn.Module:
    net = copy.deepcopy(net).train()
    optimiser = torch.optim.SGD(net.parameters(), lr=lr)
    for _ in range(epochs):
        for i in torch.randperm(len(y), generator=rng).split(batch):
            optimiser.zero_grad()
            F.cross_entropy(net(x[i]), y[i]).backward()
            optimiser.step()
    return net


@torch.no_grad()
def accuracy(net: nn.Module, x: Tensor, y: Tensor) -> float:
    net.eval()
    return float((net(x).argmax(1) == y).double().mean())


def fedavg(
    net: nn.Module, shards: list[Shard], rounds: int, epochs: int, batch: int, lr: float, seed: int
) -> tuple[nn.Module, list[float]]:
    """The final model, and after each round the mean over clients of its accuracy."""
    sizes = torch.tensor([float(len(y)) for _, y, _, _ in shards], dtype=torch.float64)
    share = sizes / sizes.sum()
    curve = []
    for t in range(rounds):
        trained = [
            train(net, x, y, epochs, batch, lr, generator(seed, "train", t, 0, str(i)))
            for i, (x, y, _, _) in enumerate(shards)
        ]
        net = copy.deepcopy(net)
        with torch.no_grad():
            for name, p in net.named_parameters():
                theirs = [dict(other.named_parameters())[name] for other in trained]
                p.copy_(
                    torch.stack([s * q.double() for s, q in zip(share, theirs, strict=True)]).sum(0)
                )
        curve.append(float(np.mean([accuracy(net, x, y) for _, _, x, y in shards])))
    return net, curve


def read_idx(path: Path) -> Tensor:
    with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
        raw = file.read()
    shape = [int.from_bytes(raw[4 + 4 * d : 8 + 4 * d], "big") for d in range(raw[3])]
    return torch.from_numpy(
        np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(shape).copy()
    )


def fashion_mnist(folder: Path, clients: int = 10, each: int = 600) -> list[Shard]:
    """Equal shares at random; the test images are dealt out the same way."""

    def find(part: str) -> Path:
        return next(p for p in sorted(folder.iterdir()) if p.name.startswith(part))

    def scale(t: Tensor) -> Tensor:
        return (t[:, None].float() / 255 - 0.286) / 0.353

    x, y = read_idx(find("train-images")), read_idx(find("train-labels"))
    x_test, y_test = read_idx(find("t10k-images")), read_idx(find("t10k-labels"))
    mine = torch.randperm(len(y), generator=generator(0, "deal")).split(each)[:clients]
    test = torch.randperm(len(y_test), generator=generator(0, "deal test")).split(each // 2)
    return [
        (scale(x[i]), y[i].long(), scale(x_test[j]), y_test[j].long())
        for i, j in zip(mine, test, strict=False)
    ]


if __name__ == "__main__":
    torch.manual_seed(0)
    _, curve = fedavg(
        lenet5(), fashion_mnist(Path(sys.argv[1])), rounds=5, epochs=1, batch=32, lr=0.05, seed=0
    )
    for t, value in enumerate(curve, 1):
        print(f"round {t}: accuracy {value:.4f}")
