"""Compiled training against autograd in float64, with forbidden pages around every buffer."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import coterie as ct
from coterie.core.client import Client
from coterie.core.errors import ClientError
from coterie.core.layout import Layout
from coterie.core.rng import stream
from coterie.core.types import Sendable, State
from coterie.engines.choice import Choice, choose
from coterie.engines.compiled import host
from coterie.engines.compiled.host import AVX2, AVX512, NotCompilableError, Processor, check_machine
from coterie.engines.compiled.planning import planned
from coterie.engines.front import Front
from coterie.methods.fedavg import FedAvg
from coterie.tasks.optimiser import SGD
from coterie.tasks.score import Score
from coterie.tasks.solver import Descent, Solver
from coterie.tasks.train import Train

try:
    HERE = check_machine()
except NotCompilableError as why:
    pytest.skip(str(why), allow_module_level=True)

from coterie.engines.compiled import objects
from coterie.engines.compiled.backend import Compiled
from coterie.engines.compiled.network import ROOM, Gradients, Network, UnfitError, Workspace
from coterie.engines.compiled.objects import Machine, machine
from coterie.engines.compiled.plan import Plan
from tests.engines.guarded import Guard

K = 3
OURS = [processor for processor in (AVX2, AVX512) if processor.lanes <= HERE.lanes]


def seeded(net: nn.Module, seed: int = 0) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for part in net.modules():
            if hasattr(part, "reset_parameters"):
                part.reset_parameters()
    return net


def person(n: int, shape: tuple[int, ...], classes: int = K, i: int = 0) -> Client:
    rng = stream(0, "person", i)
    x = torch.randn(n, *shape, generator=rng)
    y = torch.randint(classes, (n,), generator=rng)
    return Client(x, y, x[:2], y[:2], name=str(i))


@contextmanager
def on(processor: Processor) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(objects, "check_machine", lambda: processor)
        yield


def machine_of(plan: Plan, processor: Processor) -> Machine:
    with on(processor):
        return machine(plan)[0]


def network(
    layout: Layout, shape: tuple[int, ...], processor: Processor = HERE
) -> tuple[Network, Guard]:
    guard = Guard()
    made = planned(layout, shape)
    return Network(made, machine_of(made, processor), guard), guard


def doubled(client: Client) -> Client:
    return Client(client.x.double(), client.y, client.x_test.double(), client.y_test, client.name)


def agrees(
    net: nn.Module,
    shape: tuple[int, ...],
    solver: Solver,
    n: int = 11,
    classes: int = K,
    tolerance: float = 2e-5,
    **how: Any,
) -> None:
    """As far from where it began as float64 goes, and to the same place within rounding.

    Every processor's code that runs here has the same bits.
    """
    layout = Layout(seeded(net))
    mine, guard = network(layout, shape)
    client, start = person(n, shape, classes), layout.initial
    got, taken = mine.train(Descent(solver, client, start, stream(1), **how), layout)
    exact = Layout(seeded(net).double())
    wide = {k: v.double() if isinstance(v, Tensor) else v for k, v in how.items()}
    wanted = Descent(solver, doubled(client), start.double(), stream(1), **wide)
    row, steps = wanted.run_single(exact)
    assert taken == steps
    way = float((row - start).abs().max())
    assert float((got - row).abs().max()) <= tolerance * way + 1e-7
    said = mine.read(start, [client.x])[0]
    truth = exact.predict(start.double(), client.x.double())
    torch.testing.assert_close(said.double(), truth, rtol=1e-4, atol=1e-5)
    keeps_order(mine, layout.size)
    guard.check()
    for processor in OURS[:-1]:
        other, guard = network(layout, shape, processor)
        row, _ = other.train(Descent(solver, client, start, stream(1), **how), layout)
        assert torch.equal(row, got)
        assert torch.equal(other.read(start, [client.x])[0], said)
        keeps_order(other, layout.size)
        guard.check()


def keeps_order(mine: Network, size: int) -> None:
    """A row comes into the kernels' order and back, and nothing beside it is touched."""
    outside = Guard(room=0)
    row, again = (torch.from_numpy(outside("array", size)) for _ in range(2))
    row.copy_(torch.arange(size))
    w = mine.workspace(1).row("w")
    mine.machine.arrange(row.data_ptr(), w.ctypes.data)
    assert w.tolist() == mine.plan.order.tolist()
    mine.machine.restore(w.ctypes.data, again.data_ptr())
    assert torch.equal(again, row)
    outside.check()


# -- shapes ---------------------------------------------------------------------------------------


BEHIND: dict[str, list[nn.Module]] = {  # a convolution
    "nothing": [],
    "relu": [nn.ReLU()],
    "max": [nn.MaxPool2d(2)],
    "max relu": [nn.MaxPool2d(2), nn.ReLU()],
    "relu max": [nn.ReLU(), nn.MaxPool2d(2)],
    "mean": [nn.AvgPool2d(2)],
    "relu mean": [nn.ReLU(), nn.AvgPool2d(2)],
    "mean relu": [nn.AvgPool2d(2), nn.ReLU()],
}


@st.composite
def networks(draw: Any) -> tuple[nn.Module, tuple[int, ...], int]:
    def whole(low: int, high: int) -> int:
        return int(draw(st.integers(low, high)))

    channels, height, width = whole(1, 4), whole(6, 14), whole(6, 14)
    shape, layers = (channels, height, width), list[nn.Module]()
    for _ in range(whole(0, 2)):
        kernel, stride = (whole(1, 5), whole(1, 5)), (whole(1, 2), whole(1, 2))
        padding = (whole(0, 2), whole(0, 2))
        behind = draw(st.sampled_from(sorted(BEHIND)))
        sides = [
            (n + 2 * p - k) // s + 1
            for n, p, k, s in zip((height, width), padding, kernel, stride, strict=True)
        ]
        by = 2 if "m" in behind else 1
        if min(height + 2 * padding[0] - kernel[0], width + 2 * padding[1] - kernel[1]) < 0:
            continue
        if min(sides) < by:
            continue
        out = whole(1, 18)
        layers.append(nn.Conv2d(channels, out, kernel, stride, padding, bias=draw(st.booleans())))
        layers += BEHIND[behind]
        channels, height, width = out, sides[0] // by, sides[1] // by
    layers.append(nn.Flatten())
    features, classes = channels * height * width, whole(2, 19)
    for _ in range(whole(0, 2)):
        hidden = whole(1, 41)
        layers += [nn.Linear(features, hidden, bias=draw(st.booleans())), nn.ReLU()]
        features = hidden
    layers.append(nn.Linear(features, classes, bias=draw(st.booleans())))
    return nn.Sequential(*layers), shape, classes


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(networks(), st.integers(1, 13), st.integers(1, 17))
def test_any_chain_trains_as_autograd_in_float64(
    made: tuple[nn.Module, tuple[int, ...], int], batch: int, n: int
) -> None:
    net, shape, classes = made
    solver = Solver(lr=0.05, optimiser=SGD(momentum=0.5), batch=batch, steps=3)
    agrees(net, shape, solver, n, classes, tolerance=2e-4)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.integers(1, 40) | st.sampled_from([784, 1023, 1024, 1025, 1036]),
    st.integers(1, 16),
    st.integers(2, 16),
    st.integers(1, 13),
)
def test_dense_layers_of_any_width_train_as_autograd_in_float64(
    features: int, hidden: int, classes: int, batch: int
) -> None:
    """Features that fill no vector, or more than the cache; outputs in groups of all sizes."""
    layers = nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, classes)
    solver = Solver(lr=0.05, optimiser=SGD(momentum=0.5), batch=batch, steps=3)
    agrees(nn.Sequential(*layers), (features,), solver, 14, classes, tolerance=2e-4)


def lenet(channels: int = 1, padding: int = 0) -> nn.Sequential:
    side = 5 + (padding > 0) * 2
    return nn.Sequential(
        *(nn.Conv2d(channels, 6, 5, padding=padding), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(16 * side * side, 20), nn.ReLU(), nn.Linear(20, K)),
    )


def test_each_processor_has_code_of_its_own() -> None:
    """Or the comparisons above were of code with itself."""
    layout = Layout(lenet())
    made = {p: network(layout, (1, 24, 24), p)[0].machine for p in (AVX2, AVX512)}
    assert {p: code.processor for p, code in made.items()} == {AVX2: AVX2, AVX512: AVX512}
    assert made[AVX2].code != made[AVX512].code
    assert HERE in OURS


def test_a_network_from_where_vectors_are_longer_is_compiled_anew() -> None:
    layout, client = Layout(seeded(lenet())), person(11, (1, 24, 24))
    away = pickle.dumps(Network(plan := planned(layout, (1, 24, 24)), machine_of(plan, AVX512)))
    with on(AVX2):
        arrived = pickle.loads(away)
    assert arrived.machine.processor == AVX2
    with on(AVX512):
        assert pickle.loads(away).machine.processor == AVX512
    solver = Solver(lr=0.1, batch=4, optimiser=SGD(momentum=0.5))
    work = Descent(solver, client, layout.initial, stream(1))
    mine = network(layout, (1, 24, 24))[0].train(replace(work, rng=stream(1)), layout)[0]
    assert torch.equal(arrived.train(work, layout)[0], mine)


# -- terms ----------------------------------------------------------------------------------------

TERMS: dict[str, tuple[Solver, dict[str, Any]]] = {
    "plain": (Solver(lr=0.1, batch=4), {}),
    "all data": (Solver(lr=0.1, batch=0, epochs=3), {}),
    "steps": (Solver(lr=0.1, batch=4, steps=5), {}),
    "own epochs": (Solver(lr=0.1, batch=4, steps=5), {"epochs": 2}),
    "no epochs": (Solver(lr=0.1, batch=4), {"epochs": 0}),
    "decay": (Solver(lr=0.1, batch=4, optimiser=SGD(momentum=0.9, weight_decay=0.1)), {}),
    "pulled to the start": (Solver(lr=0.1, batch=4, epochs=2, prox=0.3), {}),
    "pulled": (Solver(lr=0.1, batch=4, epochs=2, prox=0.3), {"anchor": 0.2}),
    "shifted": (Solver(lr=0.1, batch=4, optimiser=SGD(momentum=0.5)), {"shift": 0.1}),
    "head": (Solver(lr=0.1, batch=4, optimiser=SGD(0.5, 0.1), prox=0.2), {"train": "head"}),
    "head, again and again": (
        Solver(lr=0.1, batch=4, epochs=3, optimiser=SGD(0.5, 0.1), prox=0.2),
        {"train": "head", "anchor": 0.2, "shift": 0.1},
    ),
    "one layer of the body": (Solver(lr=0.1, batch=4, optimiser=SGD(0.5)), {"train": "4"}),
    "first layer": (Solver(lr=0.1, batch=4, optimiser=SGD(0.5)), {"train": "0"}),
    "a bias": (Solver(lr=0.1, batch=4, epochs=2), {"train": "0.bias"}),
    "body": (Solver(lr=0.1, batch=4, optimiser=SGD(0.5, 0.1)), {"train": "body", "shift": 0.1}),
    "meta": (Solver(lr=0.1, batch=4, epochs=2, meta=0.05, optimiser=SGD(momentum=0.5)), {}),
    "meta, head": (Solver(lr=0.1, batch=4, meta=0.05), {"train": "head"}),
    "meta, head, again": (Solver(lr=0.1, batch=4, epochs=3, meta=0.05), {"train": "head"}),
    "everything": (
        Solver(lr=0.1, batch=3, epochs=2, prox=0.1, meta=0.05, optimiser=SGD(0.5, 0.01)),
        {"anchor": 0.1, "shift": 0.05},
    ),
}


def small() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(27, 9), nn.ReLU(), nn.Linear(9, K)),
    )


@pytest.mark.parametrize("case", TERMS)
def test_every_term_of_a_solver(case: str) -> None:
    solver, told = TERMS[case]
    size = Layout(small()).size
    rng = stream(2)
    how = {
        k: v * torch.randn(size, generator=rng) if isinstance(v, float) else v
        for k, v in told.items()
    }
    agrees(small(), (2, 6, 6), solver, **how)


class Fenced(Network):
    """What a last layer is given lies between forbidden pages."""

    def given(self, space: Workspace, x: Tensor, features: int = 0) -> Tensor:
        self.fence = Guard(room=0)
        said = super().given(space, x, features)
        y, order = torch.from_numpy(self.fence("array", said.numel())), torch.arange(len(x))
        places = (x.data_ptr(), order.data_ptr(), len(x), y.data_ptr(), bool(features))
        self.machine.read(space.buffers, space.row("w").ctypes.data, *places)
        assert torch.equal(y.view_as(said), said)
        return y.view_as(said)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(networks(), st.integers(1, 13), st.integers(1, 70), st.sampled_from([0.0, 0.05]))
def test_a_head_that_learns_from_what_it_is_given_once_has_the_bits_of_one_that_does_not(
    made: tuple[nn.Module, tuple[int, ...], int], batch: int, n: int, meta: float
) -> None:
    net, shape, classes = made
    layout = Layout(seeded(net))
    plan = planned(layout, shape)
    mine = Fenced(plan, machine(plan)[0], guard := Guard())
    solver = Solver(lr=0.05, optimiser=SGD(0.5, 0.01), batch=batch, epochs=3, meta=meta)
    work = Descent(solver, person(n, shape, classes), layout.initial, stream(1), train="head")
    found = []
    for room in (ROOM, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("coterie.engines.compiled.network.ROOM", room)
            found.append(mine.train(replace(work, rng=stream(1)), layout))
    (once, steps), (always, taken) = found
    assert steps == taken
    assert torch.equal(once, always)
    assert not torch.equal(once, layout.initial)
    assert hasattr(mine, "fence") == (len(plan.stages) > 1)
    if len(plan.stages) > 1:
        mine.fence.check()
    guard.check()


@dataclass(frozen=True)
class Signs(Sendable):
    """An optimiser that nobody compiled: it looks at signs alone."""

    def init(self, w: Tensor) -> dict[str, Tensor]:
        return {}

    def penalise(self, w: Tensor, g: Tensor) -> None:
        pass

    def step(self, w: Tensor, g: Tensor, state: Any, lr: float, *, exact: bool = True) -> None:
        w.add_(g.sign(), alpha=-lr)


@pytest.mark.parametrize("train", ["all", "head"])
def test_an_optimiser_of_ones_own_steps_on_compiled_gradients(train: str) -> None:
    solver = Solver(lr=0.01, batch=4, optimiser=Signs(), meta=0.1)
    agrees(small(), (2, 6, 6), solver, train=train)
    large = Solver(lr=0.01, batch=0, optimiser=Signs())  # more than there was room for
    agrees(small(), (2, 6, 6), large, n=90)


@pytest.mark.parametrize(("channels", "padding"), [(1, 0), (3, 2)])
@pytest.mark.parametrize(("steps", "smooth"), [(50, False), (500, True), (500, False)])
def test_long_training_stays_as_near_to_float64_as_serial(
    channels: int, padding: int, steps: int, smooth: bool
) -> None:
    """To the last steps where nothing has a kink. With ReLU and maxima, until a unit is nearer to
    zero than float32 can tell: from there on either goes another way, and must still arrive near.
    """
    shape = (channels, 28, 28) if padding else (channels, 24, 24)
    net = lenet(channels, padding)
    net = without_kinks(net) if smooth else net
    layout = Layout(seeded(net))
    solver = Solver(lr=0.01, optimiser=SGD(momentum=0.5), batch=10, steps=steps)
    client, start = person(47, shape), layout.initial
    mine, guard = network(layout, shape)
    got, _ = mine.train(Descent(solver, client, start, stream(1)), layout)
    serial, _ = Descent(solver, client, start, stream(1)).run_single(layout)
    exact = Layout(seeded(net).double())
    truth, _ = Descent(solver, doubled(client), start.double(), stream(1)).run_single(exact)
    way = (truth - start).norm()
    mine_off, serial_off = (float((row - truth).norm() / way) for row in (got, serial))
    parted = 0.05 if steps == 500 and not smooth else 1e-5
    assert mine_off < max(parted, 5 * serial_off)
    guard.check()


def without_kinks(net: nn.Sequential) -> nn.Sequential:
    """The same layers, means instead of maxima, and nothing in place of ReLU."""
    kept = [layer for layer in net if not isinstance(layer, nn.ReLU)]
    return nn.Sequential(*(nn.AvgPool2d(2) if isinstance(x, nn.MaxPool2d) else x for x in kept))


# -- odd numbers ----------------------------------------------------------------------------------


def gradients(net: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Of PyTorch, and compiled."""
    layout = Layout(seeded(net))
    flat = layout.flat(layout.initial)
    flat.gradient(x, y)
    mine, _ = network(layout, tuple(x.shape[1:]))
    got = Gradients(mine, layout.initial, None, mine.learns(None))
    got.gradient(x, y)
    return flat.grad.clone(), got.grad[mine.back]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("behind", ["max relu", "relu", "mean"])
def test_what_is_no_number_is_passed_on_as_pytorch_does(behind: str, value: float) -> None:
    net = nn.Sequential(nn.Conv2d(1, 9, 3), *BEHIND[behind], nn.Flatten(), nn.LazyLinear(K))
    x = torch.randn(4, 1, 8, 8, generator=stream(0))
    net(x)
    x[1, 0, 3, 3] = value
    want, got = gradients(net, x, torch.tensor([0, 1, 2, 0]))
    assert torch.equal(got.isfinite(), want.isfinite())
    assert not got.isfinite().all()


def test_nan_of_one_client_does_not_reach_the_next() -> None:
    layout = Layout(seeded(small()))
    mine, _ = network(layout, (2, 6, 6))
    solver = Solver(lr=0.1, batch=4, optimiser=SGD(0.5), prox=0.1, meta=0.1)

    def trained(client: Client) -> Tensor:
        return mine.train(Descent(solver, client, layout.initial, stream(1)), layout)[0]

    before, ill = trained(person(9, (2, 6, 6))), person(9, (2, 6, 6), i=1)
    ill.x[:] = float("nan")
    assert trained(ill).isnan().any()
    assert torch.equal(trained(person(9, (2, 6, 6))), before)


def test_of_equal_maxima_the_first_gets_the_gradient_as_in_pytorch() -> None:
    net = nn.Sequential(nn.Conv2d(1, 10, 1), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(90, K))
    x = torch.randint(2, (6, 1, 6, 6), generator=stream(0)).float()  # many are equal
    second = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), *net[:1], *net[1:])
    second[2] = nn.Conv2d(4, 10, 1)
    for each in (net, second):
        want, got = gradients(each, x, torch.tensor([0, 1, 2, 0, 1, 2]))
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-7)


def test_the_exponential_is_right_to_the_last_bits() -> None:
    x = torch.linspace(-60, 0, 400)[:, None] * torch.tensor([[1.0, 0.0]])
    layout = Layout(nn.Sequential(nn.Linear(2, 2, bias=False)))
    row = torch.eye(2).flatten()
    mine, _ = network(layout, (2,))
    net = Gradients(mine, row, None, mine.learns(None))
    for one in x[::20]:
        net.gradient(one[None], torch.tensor([1]))
        share = torch.softmax(one.double(), 0)
        got = net.grad[mine.back].double().view(2, 2)[0]  # of the other class: no cancellation
        torch.testing.assert_close(got, share[0] * one.double(), rtol=3e-7, atol=1e-30)


# -- safety ---------------------------------------------------------------------------------------


def spoiled(client: Client, case: str) -> Client:
    x, y = client.x, client.y.clone()
    match case:
        case "label too large":
            y[3] = K
        case "label below zero":
            y[3] = -100
        case "labels of another type":
            y = y.int()
        case "fewer labels":
            y = y[:-1]
        case "samples of another shape":
            x = x[..., :-1]
        case "samples of another type":
            x = x.double()
        case "no samples":
            x, y = x[:0], y[:0]
    return replace(client, x=x, y=y)


BAD = (
    *("label too large", "label below zero", "labels of another type", "fewer labels"),
    *("samples of another shape", "samples of another type", "no samples"),
)


@pytest.mark.parametrize("case", BAD)
def test_what_the_code_must_not_see_never_reaches_it(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout(seeded(small()))
    mine, _ = network(layout, (2, 6, 6))
    monkeypatch.setattr(mine.machine, "train", lambda *_: pytest.fail("it was called"))
    client = spoiled(person(9, (2, 6, 6)), case)
    with pytest.raises(UnfitError):
        mine.train(Descent(Solver(batch=4), client, layout.initial, stream(1)), layout)


def test_orders_and_rows_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout(seeded(small()))
    mine, _ = network(layout, (2, 6, 6))
    client = person(9, (2, 6, 6))
    monkeypatch.setattr(mine.machine, "train", lambda *_: pytest.fail("it was called"))
    for order, sizes in ([0, 9], [2]), ([0, -1], [2]), ([0, 1], [3]), ([0, 1], [2, 0]):
        one = (torch.tensor(order), sizes)
        monkeypatch.setattr(Descent, "passes", lambda *_, one=one: iter([(one, None)]))
        with pytest.raises(UnfitError):
            mine.train(Descent(Solver(), client, layout.initial, stream(1)), layout)
    monkeypatch.undo()
    for row in (layout.initial[:-1], layout.initial.double()):
        with pytest.raises(UnfitError):
            mine.train(Descent(Solver(), client, row, stream(1)), layout)
        with pytest.raises(UnfitError):
            mine.read(row, [client.x])


def test_samples_are_not_read_beyond_their_end() -> None:
    guard = Guard(room=0)
    for shape in ((1, 7, 7), (2, 6, 6), (13,)):
        flat = len(shape) == 1
        net = (
            nn.Sequential(nn.Linear(13, K))
            if flat
            else nn.Sequential(
                nn.Conv2d(shape[0], 3, 3, padding=int(shape[0] == 2)),
                nn.Flatten(),
                nn.LazyLinear(K),
            )
        )
        net(torch.zeros(1, *shape))
        layout = Layout(seeded(net))
        mine, _ = network(layout, shape)
        given = person(5, shape)
        place = guard("array", given.x.numel())
        place[:] = given.x.flatten().numpy()
        x = torch.from_numpy(place).view(given.x.shape)
        client = replace(given, x=x)
        solver = Solver(batch=3)
        a, _ = mine.train(Descent(solver, client, layout.initial, stream(1)), layout)
        b, _ = mine.train(Descent(solver, given, layout.initial, stream(1)), layout)
        assert torch.equal(a, b)
        assert torch.equal(*(mine.read(layout.initial, [c.x])[0] for c in (client, given)))


@pytest.mark.parametrize(("n", "batch", "meta"), [(9, 4, 0.0), (9, 2, 0.1), (1, 4, 0.0)])
def test_orders_are_not_read_beyond_their_end(
    n: int, batch: int, meta: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The samples of the next mini-batch are fetched ahead: behind the last one there are none."""
    guard, joined = Guard(room=0), torch.cat

    def guarded(parts: Sequence[Tensor]) -> Tensor:
        order = joined(list(parts))
        place = guard("ints", len(order))
        place[:] = order.numpy()
        return torch.from_numpy(place)

    layout = Layout(seeded(nn.Sequential(nn.Linear(13, K))))
    mine, _ = network(layout, (13,))
    solver, client = Solver(batch=batch, epochs=2, meta=meta), person(n, (13,))
    wanted, _ = mine.train(Descent(solver, client, layout.initial, stream(1)), layout)
    monkeypatch.setattr(torch, "cat", guarded)
    got, _ = mine.train(Descent(solver, client, layout.initial, stream(1)), layout)
    assert torch.equal(got, wanted)
    guard.check()


def test_threads_do_not_meet() -> None:
    layout = Layout(seeded(lenet()))
    mine, guard = network(layout, (1, 24, 24))
    solver = Solver(lr=0.01, batch=7, steps=40)

    def trained(i: int) -> Tensor:
        client = person(20 + 9 * i, (1, 24, 24), i=i)
        return mine.train(Descent(solver, client, layout.initial, stream(i)), layout)[0]

    alone, beside = [trained(i) for i in range(4)], dict[int, Tensor]()
    threads = [
        threading.Thread(target=lambda i=i: beside.update({i: trained(i)})) for i in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(beside[i], row) for i, row in enumerate(alone))
    guard.check()


def test_a_fork_has_the_code() -> None:
    layout = Layout(seeded(small()))
    mine, _ = network(layout, (2, 6, 6))
    descent = Descent(Solver(batch=4), person(9, (2, 6, 6)), layout.initial, stream(1))
    child = os.fork()
    if not child:
        os._exit(int(mine.train(descent, layout)[0].isnan().any()))
    assert os.waitpid(child, 0)[1] == 0
    assert not mine.train(descent, layout)[0].isnan().any()


def test_the_code_travels() -> None:
    layout = Layout(seeded(small()))
    backend = Compiled(layout, person(4, (2, 6, 6)).x)
    there = pickle.loads(pickle.dumps(backend))
    rows = [
        b.network.train(
            Descent(Solver(batch=4), person(9, (2, 6, 6)), layout.initial, stream(1)), layout
        )[0]
        for b in (backend, there)
    ]
    assert torch.equal(*rows)


# -- the engine -----------------------------------------------------------------------------------


def world(people: list[Client], layout: Layout) -> Front:
    return Front(people, layout, classes=K, backend=Compiled(layout, people[0].x[:4]))


def test_many_clients_share_portions_and_get_what_they_get_alone() -> None:
    layout = Layout(seeded(nn.Sequential(nn.Linear(4, K))))
    people = [person(3 + i % 5, (4,), i=i) for i in range(70)]
    fed = world(people, layout)
    task, state = Train(Solver(batch=2)), State.shared(layout.initial, 70)
    question = fed.at(0).question(fed.clients, task, state, {})
    portions = fed.backend.portions(question)  # type: ignore[attr-defined]
    assert sorted(j for portion in portions for j in portion) == list(range(70))
    assert [len(portion) for portion in portions] == [4] * 17 + [2]
    assert all(question.sizes[p].max() - question.sizes[p].min() <= 1 for p in portions)
    alone = world(people, layout)
    alone.backend.workers = 8  # type: ignore[attr-defined]
    assert len(alone.backend.portions(question)) == 70  # type: ignore[attr-defined]
    rows = [f.at(0).ask(f.clients, task, state).values for f in (fed, alone)]
    assert torch.equal(*rows)


def test_whose_data_does_not_fit_is_named() -> None:
    layout = Layout(seeded(small()))
    people = [person(9, (2, 6, 6), i=i) for i in range(3)]
    people[1].y[0] = 7  # no such class
    fed = world(people, layout)
    with pytest.raises(ClientError, match="client 1"):
        fed.at(0).ask(fed.clients, Train(Solver(batch=3)), State.shared(layout.initial, 3))


def test_a_test_reads_compiled_and_a_set_once(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout(seeded(small()))
    people = [person(9, (2, 6, 6), i=i) for i in range(4)]
    people[1] = replace(people[1], x_test=people[0].x_test)
    people[2] = replace(people[2], x_test=people[2].x_test[:0], y_test=people[2].y_test[:0])
    fed, truth = world(people, layout), Front(people, layout, classes=K)
    calls = []
    network: Any = fed.backend.network  # type: ignore[attr-defined]
    monkeypatch.setattr(layout, "predict", lambda *_: pytest.fail("not compiled"))
    read = network.machine.read
    monkeypatch.setattr(network.machine, "read", lambda *a: calls.append(a) or read(*a))
    state = State.shared(layout.initial, 4)
    said = fed.at(0).ask(fed.clients, Score(), state).values
    monkeypatch.undo()
    assert len(calls) == 2
    want = truth.at(0).ask(truth.clients, Score(), state).values
    torch.testing.assert_close(said, want, rtol=1e-5, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize(
    ("net", "why"),
    [
        (nn.Sequential(nn.Flatten(), nn.Linear(72, 8), nn.BatchNorm1d(8), nn.Linear(8, K)), "runn"),
        (
            nn.Sequential(nn.Conv2d(2, 3, 3), nn.MaxPool2d(3), nn.Flatten(), nn.Linear(3, K)),
            "2 x 2",
        ),
        (nn.Sequential(nn.Conv2d(2, 3, 3, stride=3), nn.Flatten(), nn.Linear(12, K)), "stride"),
        (nn.Sequential(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(18, K)), "stands"),
        (nn.Sequential(nn.Conv2d(2, K, 6), nn.Flatten()), "fully connected"),
        (nn.Sequential(nn.Flatten(), nn.Linear(72, K)).double(), "float64"),
    ],
)
def test_what_is_not_compiled_is_said_and_trained_all_the_same(net: nn.Module, why: str) -> None:
    layout = Layout(net)
    people = [person(9, (2, 6, 6), i=i) for i in range(2)]
    if layout.dtype == torch.float64:
        people = list(map(doubled, people))
    fed, truth = world(people, layout), Front(people, layout, classes=K)
    assert why in fed.notes[0]
    state = State.shared(layout.initial, 2)
    a, b = (f.at(0).ask(f.clients, Train(Solver(batch=3)), state) for f in (fed, truth))
    assert torch.equal(a.values, b.values)


def test_a_unit_at_its_kink_is_no_other_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """One draw of weights may disagree; what is not its layers disagrees with all of them."""
    layout, tried, passes = Layout(seeded(nn.Sequential(nn.Linear(13, K)))), list[int](), {2}

    def agree(network: Network, layout: Layout, x: Tensor, draw: int) -> None:
        tried.append(draw)
        if draw not in passes:
            raise NotCompilableError("its gradient is not that of its layers")

    monkeypatch.setattr("coterie.engines.compiled.backend.agree", agree)
    x = person(4, (13,)).x
    assert Compiled(layout, x).known
    assert tried == [0, 1, 2]
    passes.clear()
    assert not Compiled(layout, x).known


@pytest.mark.parametrize("recorded", ["compiled", "stacked"])
def test_a_run_is_resumed_on_the_engine_it_was_started_on(recorded: str, tmp_path: Path) -> None:
    """Also one from before there was a compiled engine: to the bit, whatever auto would take."""
    clients = ct.partition("digits", "rotation", clients=4, seed=3)

    def fit(out: Path, engine: str, rounds: int, **how: Any) -> ct.Result:
        return ct.fit(
            *(ct.FedAvg(Solver(batch=5, epochs=4)), clients, "cnn-s"),
            **{"rounds": rounds, "seed": 3, "engine": engine, "workers": 2, "out": out, **how},
        )

    whole = fit(tmp_path / "whole", recorded, 3)
    half = fit(tmp_path / "half", recorded, 2)
    assert str(choose(half.fed.layout, half.method, clients.sizes, clients.shape, 2)).startswith(
        "compiled"
    )
    resumed = fit(tmp_path / "half", "auto", 3, resume=True)
    assert torch.equal(resumed.state.models, whole.state.models)
    other = fit(tmp_path / "other", "stacked" if recorded == "compiled" else "compiled", 3)
    assert not torch.equal(other.state.models, whole.state.models)


def test_auto_leaves_large_products_to_libraries() -> None:
    wide = Layout(nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, K)))

    def chosen(batch: int) -> Choice:
        method = FedAvg(Solver(batch=batch, epochs=10))
        return choose(wide, method, torch.full((20,), 500.0), (784,), 2)

    assert chosen(10).name == "compiled"
    assert [chosen(b).name for b in (64, 0)] == ["stacked", "stacked"]
    assert "products" in chosen(64).why


def test_auto_takes_it_where_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    layout, method = Layout(lenet()), FedAvg(Solver(batch=10, epochs=10))

    def chosen() -> str:
        return str(choose(layout, method, torch.full((20,), 500.0), (1, 24, 24), 2))

    assert chosen() == "compiled in 2 processes: a straight line of layers"
    host.check_machine.cache_clear()
    monkeypatch.setattr(host, "find_spec", lambda _: None)
    try:
        assert "stacked" in chosen()
        assert "pip install 'coterie[fast]'" in chosen()
    finally:
        monkeypatch.undo()
        host.check_machine.cache_clear()
