from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from coterie.core.layout import Layout
from coterie.core.loop import run
from coterie.core.types import State
from coterie.engines.front import Front
from coterie.methods.fedavg import FedAvg
from coterie.methods.scaffold import SCAFFOLD, Controlled
from coterie.tasks.optimiser import SGD
from coterie.tasks.solver import Solver
from coterie.tasks.train import Train
from tests.tiny import CLASSES, FEATURES, Flaky, client, clients, federation

SOLVER = Solver(lr=0.1, batch=8)


def shared(fed: Front) -> State:
    return State.shared(fed.layout.initial, len(fed.clients))


def mean_variate(fed: Front, state: State) -> Tensor:
    """The mean over all clients of the variates that the server was told of."""
    rows = []
    for i in fed.clients.tolist():
        own = fed.memory.get(i, {})
        told = own and int(own["answers"]) == int(state.memory["answers"][i])
        name = "control" if told else "before"
        rows.append(own.get(name, torch.zeros_like(state.memory["control"])))
    return torch.stack(rows).mean(0)


def test_with_zero_variates_local_training_is_sgd_to_the_bit() -> None:
    fed = federation()
    zero = torch.zeros(1, fed.layout.trainable)
    controlled = fed.at(0).ask(fed.clients, Controlled(SOLVER), shared(fed), control=zero)
    plain = fed.at(0).ask(fed.clients, Train(SOLVER), shared(fed))
    assert torch.equal(controlled.values, plain.values)


def test_the_first_round_is_fedavg_without_weights() -> None:
    fed = federation()
    fed.sizes = torch.ones(8)
    expected = list(run(FedAvg(SOLVER), fed, 1))[-1]
    got = list(run(SCAFFOLD(SOLVER, fraction=1.0), federation(), 1))[-1]
    torch.testing.assert_close(got.models, expected.models)


def test_the_server_steps_as_far_as_it_is_told() -> None:
    fed = federation()
    one, half = (
        list(run(SCAFFOLD(SOLVER, fraction=1.0, server_lr=rate), federation(), 1))[-1].models[0]
        for rate in (1.0, 0.5)
    )
    torch.testing.assert_close(half, (one + fed.layout.initial) / 2)


def test_in_the_second_round_the_variates_are_used() -> None:
    fed = federation()
    fed.sizes = torch.ones(8)
    plain = list(run(FedAvg(SOLVER), fed, 2))[-1]
    got = list(run(SCAFFOLD(SOLVER, fraction=1.0), federation(), 2))[-1]
    assert (got.models - plain.models).norm() > 0.01 * plain.models.norm()


def test_after_one_step_on_all_data_the_variate_is_the_gradient() -> None:
    fed = federation()
    task = Controlled(Solver(lr=0.1, steps=1, batch=0))
    zero = torch.zeros(1, fed.layout.trainable)
    fed.at(0).ask(fed.clients[:1], task, shared(fed), control=zero)
    net = fed.layout.flat(fed.layout.initial)
    net.gradient(fed.population[0].x, fed.population[0].y)
    torch.testing.assert_close(fed.memory[0]["control"], net.grad, rtol=1e-4, atol=1e-5)


def test_c_is_the_mean_of_all_variates_whoever_takes_part() -> None:
    for fraction in (1.0, 0.4):
        fed = federation()
        end = list(run(SCAFFOLD(SOLVER, fraction=fraction), fed, 5))[-1]
        control = end.memory["control"]
        assert control.norm() > 0.1
        torch.testing.assert_close(control, mean_variate(fed, end), rtol=1e-4, atol=1e-5)


def test_an_answer_that_is_lost_leaves_c_the_mean_of_what_arrived() -> None:
    fed = federation(kind=Flaky)
    end = list(run(SCAFFOLD(SOLVER, fraction=0.7), fed, 9))[-1]
    given = sum(int(m["answers"]) for m in fed.memory.values())
    assert given > int(end.memory["answers"].sum())  # the last answer of somebody never arrived
    torch.testing.assert_close(end.memory["control"], mean_variate(fed, end), rtol=1e-4, atol=1e-5)


def test_a_newcomer_brings_a_variate_of_zero() -> None:
    fed = federation(7)
    method = SCAFFOLD(SOLVER, fraction=1.0)
    end = list(run(method, fed, 2))[-1]
    more = federation(8)
    more.restore(fed.memories())
    joined = replace(end, assign=torch.cat([end.assign, torch.tensor([-1])]))
    joined = method.place(joined, more.at(2))
    torch.testing.assert_close(joined.memory["control"], mean_variate(more, joined))
    again = method.round(joined, more.at(2))
    assert again.memory["answers"].tolist() == [3] * 7 + [1]
    torch.testing.assert_close(
        again.memory["control"], mean_variate(more, again), rtol=1e-4, atol=1e-5
    )


def test_twice_a_model_travels_each_way() -> None:
    fed = federation()
    list(run(SCAFFOLD(SOLVER, fraction=0.5), fed, 3))
    twice = [2 * 4 * fed.layout.size] * 4
    assert [(a.down.tolist(), a.up.tolist()) for a in fed.ledger] == [(twice, twice)] * 3


def test_momentum_is_left_out() -> None:
    heavy = replace(SOLVER, optimiser=SGD(momentum=0.9))
    a, b = (list(run(SCAFFOLD(s), federation(), 2))[-1] for s in (SOLVER, heavy))
    assert torch.equal(a.models, b.models)


def test_many_local_steps_end_at_the_minimum_of_the_mean_loss_where_fedavg_drifts() -> None:
    """Logistic regression, all data in each step: the gradient of the mean loss vanishes."""

    def gradient(method: FedAvg | SCAFFOLD) -> float:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            layout = Layout(nn.Linear(FEATURES, CLASSES))
        people = [client(i, 4, groups=2, samples=40) for i in range(4)]
        fed = Front(people, layout, classes=CLASSES, seed=7)
        end = list(run(method, fed, 40))[-1]
        net = layout.flat(end.models[0])
        net.gradient(torch.cat([c.x for c in people]), torch.cat([c.y for c in people]))
        return float(net.grad.norm())

    many = Solver(lr=0.1, steps=10, batch=0)
    assert gradient(SCAFFOLD(many, fraction=1.0)) < gradient(FedAvg(many)) / 5


def test_running_statistics_are_averaged_not_stepped() -> None:
    net = nn.Sequential(nn.Linear(FEATURES, 4), nn.BatchNorm1d(4), nn.Linear(4, CLASSES))
    fed = Front(clients(), Layout(net), classes=CLASSES, seed=7)
    method = SCAFFOLD(SOLVER, fraction=1.0, server_lr=3.0)
    got = method.round(method.init(fed), fed.at(0)).models[0, fed.layout.columns("buffers")]
    w = (
        fed.at(0)
        .ask(fed.clients, Train(SOLVER), shared(fed))
        .values[:, fed.layout.columns("buffers")]
    )
    torch.testing.assert_close(got, w.mean(0))
