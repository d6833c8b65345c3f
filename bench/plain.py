"""The plain PyTorch loop on one thread, the way one would write it: the yardstick."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench.contestant import Channel, versions
from bench.studying import Records, State, clustered, named, score
from bench.workloads import Array, Study, Workload


def train(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    how: Workload,
    epochs: int,
    order: int,
    most: int = sys.maxsize,
) -> None:
    """Local SGD, in place, on samples reshuffled every epoch; of `most` mini-batches at most."""
    rng = torch.Generator().manual_seed(order)
    optimizer = torch.optim.SGD(net.parameters(), lr=how.lr, momentum=how.momentum)
    net.train()
    taken = 0
    for _ in range(epochs):
        for batch in torch.randperm(len(y), generator=rng).split(how.batch):
            if taken == most:
                return
            optimizer.zero_grad()
            F.cross_entropy(net(x[batch]), y[batch]).backward()
            optimizer.step()
            taken += 1


def averaged(states: Iterable[State], sizes: Sequence[int]) -> State:
    """The mean of some models, by how many samples each has seen."""
    mean: dict[str, Tensor] = {}
    for state, n in zip(states, sizes, strict=True):
        for name, t in state.items():
            part = t * (n / sum(sizes))
            mean[name] = mean[name].add_(part) if name in mean else part
    return mean


class Plain:
    """FedAvg, one client after another."""

    def __init__(self, workload: Workload) -> None:
        self.workload, self.done = workload, 0
        self.net = workload.network()
        self.clients = [tensors(workload.client(i)) for i in range(workload.clients)]

    def trained(self, start: State, i: int, epochs: int, most: int = sys.maxsize) -> State:
        """What becomes of a model at client i."""
        net = copy.deepcopy(self.net)
        net.load_state_dict(start)
        order = self.workload.order(self.done, i)
        train(net, *self.clients[i], self.workload, epochs, order, most)
        return net.state_dict()

    def round(self, epochs: int) -> None:
        """Copy, train, average."""
        start = self.net.state_dict()
        states = (self.trained(start, i, epochs) for i in range(self.workload.clients))
        self.net.load_state_dict(averaged(states, [len(y) for _, y in self.clients]))
        self.done += 1

    def weights(self) -> list[Array]:
        """The global model."""
        return [p.detach().numpy() for p in self.net.parameters()]


class PlainStudy(Plain):
    """FedClust, with its tests and records."""

    def __init__(self, study: Study) -> None:
        super().__init__(study)
        self.study, self.records = study, Records()
        self.tests = [tensors(study.test(i)) for i in range(study.clients)]
        self.models: list[State] = []

    def round(self, epochs: int) -> None:
        """Those drawn train what their cluster has; averages within each, tests of all."""
        if not self.models:
            self.group()
        cohort = self.study.cohort(self.done)
        states = {i: self.trained(self.models[self.labels[i]], i, epochs) for i in cohort}
        for c in range(self.study.groups):
            mine = [i for i in cohort if self.labels[i] == c]
            if mine:
                sizes = [len(self.clients[i][1]) for i in mine]
                self.models[c] = averaged([states[i] for i in mine], sizes)
        self.done += 1
        self.test()

    def group(self) -> None:
        """Round 0: everybody trains, and those whose last layers are alike share a model."""
        self.done, steps = -1, self.study.grouping_steps
        start = {name: t.clone() for name, t in self.net.state_dict().items()}
        everybody = range(self.study.clients)
        heads = [last_layer(self.trained(start, i, steps, steps)) for i in everybody]
        self.labels = clustered(torch.stack(heads).double().numpy(), self.study.groups)
        self.models = [start] * self.study.groups
        self.done = 0
        self.test()

    def test(self) -> None:
        """Every client, and what is written of it."""
        rows = []
        for i, (x, y) in enumerate(self.tests):
            self.net.load_state_dict(self.models[self.labels[i]])
            rows.append(score(self.net, x, y))
        self.records.add(self.done, rows, self.labels, self.models)

    def weights(self) -> list[Array]:
        """The models of all clusters."""
        return [t for model in self.models for t in named(model)]


def tensors(pair: tuple[Array, Array]) -> tuple[Tensor, Tensor]:
    """Samples and labels as PyTorch has them."""
    return torch.from_numpy(pair[0]), torch.from_numpy(pair[1])


def last_layer(state: State) -> Tensor:
    """Weight and bias of the last layer, as one row."""
    return torch.cat([t.flatten() for t in list(state.values())[-2:]])


def main(workload: Workload, channel: Channel) -> None:
    """Serve rounds."""
    torch.set_num_threads(1)
    plain = PlainStudy(workload) if isinstance(workload, Study) else Plain(workload)
    channel.serve(plain, versions=versions("torch"))
