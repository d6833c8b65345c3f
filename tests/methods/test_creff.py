from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

from coterie.core.layout import Layout
from coterie.core.loop import run
from coterie.core.rng import stream
from coterie.core.types import State
from coterie.engines.front import Front
from coterie.methods.creff import (
    CReFF,
    TrainAndGradients,
    classifier,
    gradients,
    held,
    match,
    mean_of_owners,
    mismatch,
    retrain,
)
from coterie.methods.fedavg import FedAvg
from coterie.tasks.solver import Solver
from tests.tiny import CLASSES, FEATURES, clients, federation

SOLVER = Solver(lr=0.1, batch=8)
QUICK = CReFF(SOLVER, 1.0, features=10, match_steps=30, retrain_steps=50)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=stream(seed, "creff test"))


def asked(fed: Front) -> Tensor:
    """What the clients reveal of the initial model: (8, C, C, width)."""
    head = fed.layout.initial[fed.layout.columns("head")]
    task = TrainAndGradients(SOLVER, CLASSES)
    start = State.shared(fed.layout.initial, 8)
    return fed.at(0).ask(fed.clients, task, start, head=head[None]).extra["gradients"]


def test_but_for_the_classifier_it_is_fedavg_to_the_bit() -> None:
    fed = federation()
    ours = list(run(replace(QUICK, fraction=0.5), fed, 3))[-1]
    plain = list(run(FedAvg(SOLVER, 0.5), federation(), 3))[-1].models[0]
    body, head = fed.layout.columns("body"), fed.layout.columns("head")
    assert torch.equal(ours.models[0, body], plain[body])
    assert torch.equal(ours.memory["head"], plain[head])
    assert not torch.isclose(ours.models[0, head], plain[head]).any()


def test_gradients_are_those_of_the_mean_cross_entropy() -> None:
    z, W, b = draw(7, 5), draw(CLASSES, 5, seed=1), draw(CLASSES, seed=2)
    W.requires_grad_()
    b.requires_grad_()
    y = torch.full((7,), 2)
    gW, gb = torch.autograd.grad(cross_entropy(linear(z, W, b), y), (W, b))
    got = gradients(z, torch.cat([W, b[:, None]], 1).detach(), 2)
    torch.testing.assert_close(got, torch.cat([gW, gb[:, None]], 1))


def test_what_a_client_reveals_is_the_gradient_of_its_head_class_by_class() -> None:
    fed = federation()
    who = fed.population[4]
    G = asked(fed)[4]
    net = fed.layout.flat(fed.layout.initial, train="head")
    for c in range(CLASSES):
        net.gradient(who.x[who.y == c], who.y[who.y == c])
        torch.testing.assert_close(
            G[c], classifier(net.grad, fed.layout, CLASSES), rtol=1e-4, atol=1e-6
        )


def test_a_class_that_a_client_does_not_hold_is_zero_and_does_not_count() -> None:
    fed = federation()
    people = list(fed.population)
    people[0] = replace(people[0], x=people[0].x[people[0].y == 1], y=people[0].y[people[0].y == 1])
    fed.population = people
    G = asked(fed)
    assert held(G)[0].tolist() == [False, True, False, False]
    assert held(G)[1:].all()
    torch.testing.assert_close(mean_of_owners(G)[0], G[1:, 0].mean(0))
    torch.testing.assert_close(mean_of_owners(G)[1], G[:, 1].mean(0))


def test_matching_brings_the_gradients_nearer_and_leaves_absent_classes_alone() -> None:
    fed = federation()
    phi = classifier(fed.layout.initial, fed.layout, CLASSES)
    real = mean_of_owners(asked(fed))
    real[3] = 0
    V = draw(CLASSES, 10, 8)
    new = match(V, phi, real, steps=50, lr=0.1)
    labels = torch.arange(CLASSES)
    before, after = (mismatch(gradients(v, phi, labels), real, 8)[:3] for v in (V, new))
    assert (after < before / 2).all()
    assert torch.equal(new[3], V[3])


def test_the_mismatch_counts_rows_from_0_for_equal_ones_to_2_for_opposite_ones() -> None:
    G = draw(CLASSES, CLASSES, 6)
    torch.testing.assert_close(mismatch(G, G, 5), torch.zeros(CLASSES), rtol=0, atol=1e-5)
    torch.testing.assert_close(mismatch(G, -G, 5), torch.full((CLASSES,), 2.0 * (CLASSES + 1)))


def test_retraining_lowers_the_loss_on_known_features_alone() -> None:
    V, phi = draw(CLASSES, 10, 5), draw(CLASSES, 6, seed=1)
    known = torch.tensor([True, True, False, True])

    def loss(p: Tensor, of: Tensor) -> float:
        y = torch.arange(CLASSES)[of].repeat_interleave(10)
        return float(cross_entropy(linear(V[of].flatten(0, 1), p[:, :5], p[:, 5]), y))

    after = retrain(phi, V, known, steps=100, lr=0.1)
    assert loss(after, known) < loss(phi, known) / 2
    other = V.clone()
    other[2] += 1
    assert torch.equal(retrain(phi, other, known, steps=100, lr=0.1), after)


def test_features_of_a_class_that_nobody_ever_held_are_not_used() -> None:
    fed = federation(groups=1)
    fed.population = [
        replace(who, x=who.x[who.y != 3], y=who.y[who.y != 3]) for who in fed.population
    ]
    state = QUICK.init(fed)
    V = state.memory["features"].clone()
    V[3] += 5
    a, b = (QUICK.round(s, fed.at(0)).models for s in (state, state.hold(features=V)))
    assert torch.equal(a, b)


@pytest.mark.parametrize("bias", [True, False])
def test_the_classifier_goes_back_where_it_came_from(bias: bool) -> None:
    net = nn.Sequential(nn.Linear(FEATURES, 8), nn.ReLU(), nn.Linear(8, CLASSES, bias=bias))
    fed = Front(clients(), Layout(net), classes=CLASSES, seed=7)
    still = replace(QUICK, retrain_steps=1, retrain_lr=1e-12)
    end = list(run(still, fed, 1))[-1]
    head = fed.layout.columns("head")
    torch.testing.assert_close(end.models[0, head], fed.layout.initial[head])


def test_features_are_drawn_by_the_seed() -> None:
    a, b, c = (QUICK.init(federation(seed=s)).memory["features"] for s in (7, 7, 8))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


@pytest.mark.slow
def test_rare_classes_gain() -> None:
    """One class is sixteen times as frequent as the next: FedAvg forgets the last ones."""
    fed = federation(groups=1)
    rng = stream(0, "tail")
    people = []
    for who in fed.population:
        keep = torch.rand(len(who), generator=rng) < 0.25**who.y
        keep[:1] = True
        people.append(replace(who, x=who.x[keep], y=who.y[keep]))
    fed.population, fed.sizes = people, torch.tensor([float(len(p)) for p in people])
    x = torch.cat([p.x_test for p in people])
    y = torch.cat([p.y_test for p in people])

    def accuracy(method: FedAvg) -> float:
        row = list(run(method, fed, 10))[-1].models[0]
        return float((fed.layout.predict(row, x).argmax(1) == y).double().mean())

    solver = Solver(lr=0.05, batch=8)
    assert accuracy(CReFF(solver, 1.0)) > accuracy(FedAvg(solver)) + 0.1
