from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from coterie.core.client import Client
from coterie.core.errors import ClientError
from coterie.core.layout import Layout
from coterie.core.loop import run
from coterie.core.rng import stream
from coterie.core.types import State
from coterie.engines.chain import NotStackableError, Pool, Rectify, chain
from coterie.engines.choice import Choice, choose
from coterie.engines.front import Front
from coterie.engines.stacked import batched, descent
from coterie.engines.stacked.descent import descend
from coterie.engines.stacked.stack import Stack
from coterie.methods.fedavg import FedAvg
from coterie.tasks.optimiser import SGD
from coterie.tasks.score import Score
from coterie.tasks.solver import Descent, Solver
from coterie.tasks.train import Train
from tests.tiny import stacked

K = 3


class Lenet(nn.Module):
    """Written as most people do: functions, and a view."""

    def __init__(self, bias: bool = True) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(2, 4, 3, bias=bias)
        self.conv2 = nn.Conv2d(4, 5, 3, padding=1)
        self.fc1 = nn.Linear(5 * 2 * 2, 7)
        self.fc2 = nn.Linear(7, K, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        x = x.view(x.size(0), -1)
        return self.fc2(self.fc1(x).relu())


def double(net: nn.Module) -> Layout:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for part in net.modules():
            if hasattr(part, "reset_parameters"):
                part.reset_parameters()
    return Layout(net.double())


def person(n: int, shape: tuple[int, ...], i: int = 0) -> Client:
    rng = stream(0, "person", i)
    x = torch.randn(n, *shape, generator=rng, dtype=torch.float64)
    y = torch.randint(K, (n,), generator=rng)
    return Client(x, y, x[:2], y[:2], name=str(i))


def both(
    layout: Layout, solver: Solver, sizes: list[int], shape: tuple[int, ...], **how: Any
) -> Any:
    """Trained side by side, and one after another."""

    def work() -> list[Descent]:
        return [
            Descent(
                solver,
                person(n, shape, i),
                layout.initial + 0.1 * i,
                stream(1, i),
                **{k: v(i) for k, v in how.items()},
            )
            for i, n in enumerate(sizes)
        ]

    alone = [d.run_single(layout) for d in work()]
    return work(), alone


def agree(
    layout: Layout, solver: Solver, sizes: list[int], shape: tuple[int, ...], **how: Any
) -> None:
    work, expected = both(layout, solver, sizes, shape, **how)
    ways = [(work, False)] + [([d], True) for d in both(layout, solver, sizes, shape, **how)[0]]
    got = {False: [], True: []}
    for descents, last in ways:
        got[last] += descend(descents, chain(layout), layout, K, channels_last=last)
    for results in got.values():
        for (w, steps), (row, taken) in zip(results, expected, strict=True):
            assert steps == taken
            torch.testing.assert_close(w, row, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("bias", [True, False])
def test_a_network_written_with_functions_trains_as_alone(bias: bool) -> None:
    agree(
        double(Lenet(bias)),
        Solver(lr=0.1, optimiser=SGD(momentum=0.5), batch=4, epochs=2),
        [9, 4, 11],
        (2, 10, 10),
    )


TERMS = {
    "plain": (Solver(lr=0.1, batch=4), {}),
    "all data": (Solver(lr=0.1, batch=0, epochs=3), {}),
    "steps": (Solver(lr=0.1, batch=4, steps=5), {}),
    "decay and momentum": (
        Solver(lr=0.1, batch=4, optimiser=SGD(momentum=0.9, weight_decay=0.1)),
        {},
    ),
    "proximal": (Solver(lr=0.1, batch=4, epochs=2, prox=0.5), {}),
    "anchor": (
        Solver(lr=0.1, batch=4, prox=0.5),
        {"anchor": lambda i: torch.full((26,), 0.1 * i).double()},
    ),
    "meta": (Solver(lr=0.1, batch=4, epochs=2, meta=0.2), {}),
    "control variates": (
        Solver(lr=0.1, batch=4),
        {"shift": lambda i: torch.full((26,), 0.1 * i).double()},
    ),
    "own epochs": (Solver(lr=0.1, batch=4, optimiser=SGD(momentum=0.5)), {"epochs": lambda i: i}),
    "head alone": (
        Solver(lr=0.1, batch=4, optimiser=SGD(weight_decay=0.1)),
        {"train": lambda i: "head"},
    ),
    "meta, head alone": (Solver(lr=0.1, batch=4, meta=0.2), {"train": lambda i: "head"}),
}


@pytest.mark.parametrize("terms", list(TERMS))
def test_every_term_of_the_solver_is_each_clients_own(terms: str) -> None:
    solver, how = TERMS[terms]
    layout = double(nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, K), nn.Identity()))
    if "anchor" in how or "shift" in how:
        how = {k: (lambda i, v=v: v(i)[:1].expand(layout.size)) for k, v in how.items()}
    agree(layout, solver, [9, 4, 1, 12], (2,), **how)


@settings(max_examples=50)
@given(
    st.booleans(),
    st.integers(1, 3),
    st.integers(1, 4),
    st.tuples(st.integers(1, 3), st.integers(1, 4)),
    st.tuples(st.integers(1, 2), st.integers(1, 3)),
    st.integers(0, 2),
    st.booleans(),
    st.sampled_from(["max", "mean", None]),
    st.integers(2, 3),
    st.integers(7, 11),
)
@example(True, 2, 3, (3, 2), (1, 2), 1, True, "max", 2, 10)
@example(True, 1, 2, (2, 4), (2, 3), 0, True, "max", 2, 11)
def test_any_convolution_and_pooling(
    first: bool,
    inputs: int,
    outputs: int,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: int,
    bias: bool,
    pool: str | None,
    size: int,
    side: int,
) -> None:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, (padding, 1), bias=bias)
    pools = {"max": [nn.MaxPool2d(size)], "mean": [nn.AvgPool2d(size)], None: []}[pool]
    before = [] if first else [nn.Conv2d(inputs, inputs, 2)]
    body = nn.Sequential(*before, conv, nn.ReLU(), *pools, nn.Flatten())
    features = body(torch.zeros(1, inputs, side, side)).shape[1]
    if not features:
        return
    layout = double(nn.Sequential(body, nn.Linear(features, K)))
    agree(layout, Solver(lr=0.05, batch=3), [4, 3], (inputs, side, side))


def test_what_does_not_fit_the_cache_is_done_by_and_by(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fields of one client, and the samples of one step, at a time."""
    monkeypatch.setattr(batched, "GATHERED", 1)
    monkeypatch.setattr(descent, "AHEAD", 1)
    solver = Solver(lr=0.1, optimiser=SGD(momentum=0.5), batch=4, epochs=2)
    agree(double(Lenet()), solver, [9, 4, 11], (2, 10, 10))


@pytest.mark.parametrize("first", [True, False])
def test_a_maximum_among_equals_learns_where_pytorch_does(first: bool) -> None:
    before = [] if first else [nn.Conv2d(1, 1, 1)]
    tail = nn.Sequential(nn.Conv2d(1, 2, 1), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, K))
    layout = double(nn.Sequential(*before, *tail))
    x = torch.tensor([0.0, 1.0]).double()[torch.randint(2, (6, 1, 4, 4), generator=stream(0))]
    net, y = layout.flat(layout.initial), torch.tensor([0, 1, 2, 0, 1, 2])
    net.gradient(x, y)
    share = x.new_zeros(1, K, 6).scatter_(1, y[None, None], 1 / 6)
    for last in (False, True):
        stack = Stack(
            chain(layout), list(layout.slices.values()), layout.initial[None], channels_last=last
        )
        stack.gradient(x[None], share)
        torch.testing.assert_close(stack.grad, net.grad, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "front",
    [
        [nn.Flatten(), nn.ReLU()],
        [nn.ReLU(), nn.Flatten()],
        [nn.ReLU(), nn.Conv2d(1, 1, 1), nn.Flatten()],
        [nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()],
    ],
)
def test_samples_are_read_and_never_written(front: list[nn.Module]) -> None:
    """A ReLU works in place, but not on what belongs to a client."""
    net = nn.Sequential(*front, nn.LazyLinear(K + 2))
    net(torch.zeros(1, 1, 4, 4))
    x, y = torch.randn(5, 1, 4, 4, generator=stream(0)), torch.arange(5) % K
    before = x.clone()
    fed = stacked([Client(x, y, x, y, "a")], Layout(net), classes=K, seed=0)
    assert not fed.notes
    assert fed.classes == K
    list(run(FedAvg(Solver(lr=0.1, batch=2, epochs=2)), fed, 2))
    assert torch.equal(x, before)


def test_a_network_is_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout(Lenet())
    layers = chain(layout)
    monkeypatch.setattr("torch.fx.symbolic_trace", lambda _: pytest.fail("again"))
    again = chain(layout)
    assert again == layers
    again.clear()
    assert chain(layout) == layers


def test_the_maximum_moves_before_the_relu() -> None:
    layers = chain(Layout(Lenet()))
    assert layers[1:3] == [Pool(2), Rectify()]
    assert layers[4:6] == [Pool(2), Rectify()]


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, K)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(x + self.a(x))


class Sly(nn.Linear):
    """A layer that is not what it is called."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * 2


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.a(self.a(x))


CROOKED = {
    "batch norm": nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, K)),
    "dropout": nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, K)),
    "residual": Residual(),
    "tanh": nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, K)),
    "sly": nn.Sequential(Sly(4, 4), nn.Linear(4, K)),
    "twice": nn.Sequential(Twice(), nn.Linear(4, K)),
    "groups": nn.Sequential(
        nn.Unflatten(1, (4, 1, 1)), nn.Conv2d(4, 4, 1, groups=2), nn.Flatten(), nn.Linear(4, K)
    ),
}


@pytest.mark.parametrize("kind", list(CROOKED))
def test_what_cannot_be_stacked_is_said_and_trained_as_serial_does(kind: str) -> None:
    layout = double(copy.deepcopy(CROOKED[kind]))
    people = [person(n, (4,), i) for i, n in enumerate([5, 7, 9])]
    truth, fed = (k(people, layout, classes=K) for k in (Front, stacked))
    assert "not stacked" in fed.notes[0]
    solver, everybody = Solver(lr=0.1, batch=3), State.shared(layout.initial, 3)
    a, b = (f.at(0).ask(f.clients, Train(solver), everybody) for f in (truth, fed))
    assert torch.equal(a.values, b.values)


def test_clients_of_one_model_are_read_in_one_go() -> None:
    layout = double(nn.Sequential(nn.Linear(4, K)))
    people = [person(9, (4,), i) for i in range(5)]
    truth, fed = (k(people, layout, classes=K) for k in (Front, stacked))
    state = State(torch.stack([layout.initial, -layout.initial]), torch.tensor([0, 1, 0, 1, 1]))
    seen: list[int] = []
    predict = layout.predict
    a = truth.at(0, "evaluate").ask(truth.clients, Score(), state).values
    layout.predict = lambda row, x, *more: (seen.append(len(x)), predict(row, x, *more))[1]  # type: ignore[method-assign]
    b = fed.at(0, "evaluate").ask(fed.clients, Score(), state).values
    assert seen == [4, 6]
    torch.testing.assert_close(a, b)


def test_whose_data_does_not_fit_is_named() -> None:
    layout = double(nn.Sequential(nn.Linear(4, K)))
    people = [person(9, (4,), i) for i in range(3)]
    people[1].y[0] = 7  # no such class
    fed = stacked(people, layout, classes=K)
    with pytest.raises(ClientError, match="client 1"):
        fed.at(0).ask(fed.clients, Train(Solver(batch=3)), State.shared(layout.initial, 3))


def test_workers_get_even_shares_of_a_cohort() -> None:
    layout = double(nn.Sequential(nn.Linear(4, K)))
    people = [person(2 + i, (4,), i) for i in range(10)]
    fed = stacked(people, layout, classes=K, workers=2)
    question = fed.question(fed.clients, Train(Solver()), State.shared(layout.initial, 10), {})
    portions = fed.backend.portions(question)
    loads = [sum(2 + j for j in p) for p in portions]
    assert sorted(j for p in portions for j in p) == list(range(10))
    assert len(portions) == 2
    assert max(loads) - min(loads) <= 5


def test_the_choice_follows_from_shapes_and_cores() -> None:
    def chosen(net: nn.Module, sizes: float, cores: int, shape: tuple[int, ...]) -> Choice:
        method = FedAvg(Solver(batch=10, epochs=10))
        return choose(Layout(net), method, torch.full((20,), float(sizes)), shape, cores)

    small, big = (
        nn.Sequential(nn.Linear(4, K)),
        nn.Sequential(nn.Linear(784, 200), nn.Linear(200, K)),
    )
    normed = nn.Sequential(nn.Linear(784, 200), nn.BatchNorm1d(200), nn.Linear(200, K))
    assert chosen(small, 10, 8, (4,)).name == "serial"
    assert chosen(big, 500, 2, (784,)).name in ("compiled", "stacked")
    assert chosen(big, 500, 2, (784,)).why.startswith("a straight line of layers")
    assert chosen(big, 500, 1, (784,)).workers == 1
    assert (chosen(normed, 500, 2, (784,)).name, chosen(normed, 500, 1, (784,)).name) == (
        "pool",
        "serial",
    )
    assert "running statistics" in str(chosen(normed, 500, 2, (784,)))
    assert chosen(big, 500, 64, (784,)).workers == 20


def test_a_view_that_mixes_samples_is_crooked() -> None:
    class Mixed(Lenet):
        def forward(self, x: Tensor) -> Tensor:
            x = F.max_pool2d(self.conv1(x), 2)
            return self.fc2(self.fc1(F.max_pool2d(self.conv2(x), 2).view(-1, 20)))

    with pytest.raises(NotStackableError, match="view"):
        chain(Layout(Mixed()))
