"""The plain PyTorch loop on one thread, the way one would write it: the yardstick."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench.contestant import Channel, versions
from bench.workloads import Array, Workload


def train(net: nn.Module, x: Tensor, y: Tensor, how: Workload, epochs: int, order: int) -> None:
    """Local SGD, in place, on samples reshuffled every epoch."""
    rng = torch.Generator().manual_seed(order)
    optimizer = torch.optim.SGD(net.parameters(), lr=how.lr, momentum=how.momentum)
    net.train()
    for _ in range(epochs):
        for batch in torch.randperm(len(y), generator=rng).split(how.batch):
            optimizer.zero_grad()
            F.cross_entropy(net(x[batch]), y[batch]).backward()
            optimizer.step()


class Plain:
    """One client after another."""

    def __init__(self, workload: Workload) -> None:
        self.workload, self.done = workload, 0
        self.net = workload.network()
        self.clients = [
            (torch.from_numpy(x), torch.from_numpy(y))
            for x, y in map(workload.client, range(workload.clients))
        ]

    def round(self, epochs: int) -> None:
        """Copy, train, average."""
        total = sum(len(y) for _, y in self.clients)
        mean = {name: torch.zeros_like(t) for name, t in self.net.state_dict().items()}
        for i, (x, y) in enumerate(self.clients):
            net = copy.deepcopy(self.net)
            train(net, x, y, self.workload, epochs, self.workload.order(self.done, i))
            for name, t in net.state_dict().items():
                mean[name] += t * (len(y) / total)
        self.net.load_state_dict(mean)
        self.done += 1

    def weights(self) -> list[Array]:
        """The global model."""
        return [p.detach().numpy() for p in self.net.parameters()]


def main(workload: Workload, channel: Channel) -> None:
    """Serve rounds."""
    torch.set_num_threads(1)
    channel.serve(Plain(workload), versions=versions("torch"))
