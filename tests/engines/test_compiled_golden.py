"""The golden cases that train, by compiled code: the same answers, within float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from coterie.core.client import Client
from coterie.core.layout import Layout
from coterie.engines.compiled.host import NotCompilableError, check_machine
from coterie.engines.compiled.planning import planned
from coterie.tasks.optimiser import SGD
from coterie.tasks.solver import Descent, Solver
from tests import golden
from tests.golden import i, t

try:
    check_machine()
except NotCompilableError as why:
    pytest.skip(str(why), allow_module_level=True)

from coterie.engines.compiled.network import Gradients, Network
from coterie.engines.compiled.objects import machine


def logistic(W: Any, b: Any) -> tuple[Layout, Network]:
    """The logistic regression of a case in float32, compiled."""
    net = nn.Linear(len(W), len(b))
    with torch.no_grad():
        net.weight.copy_(t(W).T)
        net.bias.copy_(t(b))
    layout = Layout(nn.Sequential(net))
    plan = planned(layout, (len(W),))
    return layout, Network(plan, machine(plan)[0])


def shaped(row: Tensor, b: Any, *names: str) -> dict[str, Tensor]:
    weight, bias = row[: -len(b)], row[-len(b) :]
    return dict(zip(names, (weight.view(len(b), -1).T, bias), strict=True))


def client(X: Any, y: Any) -> Client:
    return Client(t(X).float(), i(y), t(X).float(), i(y))


def gradient(W: Any, b: Any, X: Any, y: Any) -> dict[str, Tensor]:
    layout, network = logistic(W, b)
    net = Gradients(network, layout.initial, None, network.learns(None))
    net.gradient(t(X).float(), i(y))
    return shaped(net.grad[network.back], b, "gW", "gb")


def maml(
    W: Any, b: Any, batches: Any, eta: float, eps_lr: float, momentum: float
) -> dict[str, Tensor]:
    layout, network = logistic(W, b)
    net = Gradients(network, layout.initial, None, network.learns(None))
    solver = Solver(lr=eps_lr, optimiser=SGD(momentum=momentum), meta=eta)
    state = solver.optimiser.init(net.grad)
    for inner, outer in batches:
        two = [(t(X).float(), i(y)) for X, y in (outer, inner)]
        solver.step(net, state, net.w, *two)
    return shaped(net.w[network.back], b, "W", "b")


def personalise(W: Any, b: Any, X: Any, y: Any, eta: float, steps: int) -> dict[str, Tensor]:
    layout, network = logistic(W, b)
    solver = Solver(lr=eta, steps=steps, batch=0)
    how = (solver, client(X, y), layout.initial, torch.Generator())
    return shaped(network.train(Descent(*how), layout)[0], b, "W", "b")


WORDS: dict[str, Callable[..., dict[str, Tensor]]] = {
    "logreg_grad": gradient,
    "fo_maml_rounds": maml,
    "personalise_logreg": personalise,
}


@pytest.mark.parametrize("fn", sorted(WORDS))
def test_golden_cases_that_train(fn: str) -> None:
    cases = [case for case in golden.load() if case["fn"] == fn]
    assert cases
    for case in cases:
        got = WORDS[fn](**case["args"])
        assert not golden.difference(got, case["expected"], rtol=2e-5, atol=2e-6), case["id"]
