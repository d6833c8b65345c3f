"""Optimisers are data: nobody but they themselves knows how they step."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor, nn

from coterie import engines
from coterie.core.bounds import Decay, dataclass
from coterie.core.client import Client
from coterie.core.errors import ConfigError
from coterie.core.layout import Layout
from coterie.core.loop import run
from coterie.core.rng import stream
from coterie.core.types import Sendable, State
from coterie.data.population import Population
from coterie.methods.fednova import FedNova
from coterie.methods.scaffold import SCAFFOLD
from coterie.tasks.optimiser import SGD, Optimiser
from coterie.tasks.solver import Descent, Solver
from coterie.tasks.train import Train
from coterie.tasks.wire import decode, encode
from tests.tiny import federation


@dataclass(frozen=True)
class Adam(Sendable):
    """An optimiser of somebody else's, with a memory like the weights and a counter."""

    beta1: Decay = 0.9
    beta2: Decay = 0.999

    def init(self, w: Tensor) -> dict[str, Tensor]:
        return {"m": torch.zeros_like(w), "v": torch.zeros_like(w), "t": w.new_zeros(())}

    def penalise(self, w: Tensor, g: Tensor) -> None:
        pass

    def step(
        self, w: Tensor, g: Tensor, state: Mapping[str, Tensor], lr: float, *, exact: bool = True
    ) -> None:
        m, v, t = state["m"], state["v"], state["t"].add_(1)
        m.mul_(self.beta1).add_(g, alpha=1 - self.beta1)
        v.mul_(self.beta2).addcmul_(g, g, value=1 - self.beta2)
        w.sub_(lr * (m / (1 - self.beta1**t)) / ((v / (1 - self.beta2**t)).sqrt() + 1e-8))


SOLVER = Solver(lr=0.01, optimiser=Adam(), epochs=2, batch=4)


def person(n: int, i: int) -> Client:
    x = torch.randn(n, 5, generator=stream(0, "person", i))
    y = torch.randint(3, (n,), generator=stream(0, "label", i))
    return Client(x, y, x[:2], y[:2], name=str(i))


def layout() -> Layout:
    torch.manual_seed(0)
    return Layout(nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)))


def test_another_optimiser_trains_as_a_plain_loop_with_it_does() -> None:
    one, shape = person(9, 1), layout()
    net = shape.module(shape.initial).train()
    adam = torch.optim.Adam(net.parameters(), lr=0.01)
    for i, _ in Descent(SOLVER, one, shape.initial, stream(1)).plan(shape):
        adam.zero_grad()
        nn.functional.cross_entropy(net(one.x[i]), one.y[i]).backward()  # type: ignore[no-untyped-call]
        adam.step()
    row, _ = Descent(SOLVER, one, shape.initial, stream(1)).run_single(shape)
    torch.testing.assert_close(row, shape.row(net), rtol=1e-4, atol=1e-5)


def test_another_optimiser_is_stacked_though_clients_take_unequal_numbers_of_steps() -> None:
    people = Population.of([person(n, i) for i, n in enumerate((9, 3, 14))], classes=3)
    start = State.shared(layout().initial, 3)
    a, b = (
        engines.build(name, people, layout(), 0, 1).at(0).ask(start.placed, Train(SOLVER), start)
        for name in ("serial", "stacked")
    )
    torch.testing.assert_close(a.values, b.values, rtol=1e-4, atol=1e-5)


def test_another_optimiser_crosses_a_wire_inside_its_task() -> None:
    assert decode(encode(Train(SOLVER))) == Train(SOLVER)
    assert hash(decode(encode(Train(SOLVER)))) == hash(Train(SOLVER))


def test_what_cannot_step_is_no_optimiser() -> None:
    assert isinstance(SGD(), Optimiser)
    with pytest.raises(ValueError, match="optimiser"):
        Solver(optimiser=0.9)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", [FedNova, SCAFFOLD])
def test_a_method_derived_for_sgd_refuses_another_optimiser(method: type) -> None:
    with pytest.raises(ConfigError, match="derived for SGD"):
        list(run(method(SOLVER), federation(), 1))
