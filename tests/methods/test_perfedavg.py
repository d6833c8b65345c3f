from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from coterie.core.client import Client
from coterie.core.layout import Layout
from coterie.core.loop import evaluate, run
from coterie.core.rng import stream
from coterie.methods.fedavg import FedAvg
from coterie.methods.perfedavg import HessianFree, PerFedAvg
from coterie.tasks.optimiser import SGD
from coterie.tasks.score import accuracy_and_loss
from coterie.tasks.solver import Solver
from coterie.tasks.train import Train
from tests.tiny import CLASSES, FEATURES, client, federation, same

SOLVER = Solver(lr=0.05, batch=8, optimiser=SGD(momentum=0.5))


@pytest.mark.parametrize("order", ["first", "hessian-free"])
def test_without_an_inner_step_it_is_fedavg_with_the_outer_rate_to_the_bit(order: str) -> None:
    meta = PerFedAvg(SOLVER, 0.5, alpha=0, order=order)  # type: ignore[arg-type]
    a, b = (list(run(m, federation(), 3))[-1] for m in (meta, FedAvg(SOLVER, 0.5)))
    assert same(a, b)


def exact(layout: Layout, who: Client, alpha: float) -> Tensor:
    """The gradient of f(w - alpha grad f(w)) by differentiating through the inner step."""
    module = layout.module(layout.initial)
    w = {n: p.detach().requires_grad_() for n, p in module.named_parameters()}

    def loss(at: dict[str, Tensor]) -> Tensor:
        return cross_entropy(functional_call(module, at, (who.x,)), who.y)

    inner = torch.autograd.grad(loss(w), list(w.values()), create_graph=True)
    moved = {n: p - alpha * g for (n, p), g in zip(w.items(), inner, strict=True)}
    outer = torch.autograd.grad(loss(moved), list(w.values()))
    return torch.cat([g.flatten() for g in outer])


def test_hessian_free_steps_along_the_exact_meta_gradient_and_first_order_does_not() -> None:
    net = nn.Sequential(nn.Linear(FEATURES, 5), nn.Tanh(), nn.Linear(5, CLASSES)).double()
    layout, who = Layout(net), client(3, 8)
    who = replace(who, x=who.x.double())
    step = Solver(lr=1.0, steps=1, batch=0)
    expected = exact(layout, who, alpha=0.5)

    def direction(task: HessianFree | Train) -> Tensor:
        return layout.initial - task(who, layout.initial, {}, layout, stream(0, "test")).value

    torch.testing.assert_close(
        direction(HessianFree(step, 0.5, 1e-4)), expected, rtol=1e-5, atol=1e-7
    )
    assert (direction(Train(replace(step, meta=0.5))) - expected).norm() > 0.01 * expected.norm()


def test_hessian_free_keeps_the_terms_of_the_solver() -> None:
    layout, who = federation().layout, client(3, 8)
    plain, heavy = (
        HessianFree(replace(SOLVER, **terms))(who, layout.initial, {}, layout, stream(0, "t")).value
        for terms in ({}, {"optimiser": SGD(momentum=0.5, weight_decay=0.1)})
    )
    assert heavy.norm() < plain.norm()


def test_a_client_is_tested_before_and_after_one_step_on_all_its_data() -> None:
    fed = federation()
    method = PerFedAvg(SOLVER, alpha=0.3)
    state = list(run(method, fed, 1))[-1]
    scores = evaluate(method, state, fed)
    assert scores.stages == ("before", "after")
    who = fed.population[2]
    net = fed.layout.flat(state.models[0])
    net.gradient(who.x, who.y)
    said = fed.layout.predict(state.models[0] - 0.3 * net.grad, who.x_test)
    assert scores.loss[1, 2] == pytest.approx(float(accuracy_and_loss(said, who.y_test)[1]))
    assert scores.loss[1].mean() < scores.loss[0].mean()
