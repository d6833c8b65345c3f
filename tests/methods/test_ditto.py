from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from coterie.core.loop import evaluate, run
from coterie.core.types import State
from coterie.engines.front import Front
from coterie.methods.ditto import Ditto
from coterie.methods.fedavg import FedAvg
from coterie.methods.local import Local
from coterie.tasks.optimiser import SGD
from coterie.tasks.solver import Solver
from tests.tiny import federation, same

SOLVER = Solver(lr=0.1, batch=8, optimiser=SGD(momentum=0.5))


def trained(method: Ditto | FedAvg | Local, rounds: int = 3) -> tuple[State, Front]:
    fed = federation()
    return list(run(method, fed, rounds))[-1], fed


def personal(fed: Front) -> Tensor:
    return torch.stack([fed.memory[i]["private"] for i in sorted(fed.memory)])


def test_its_global_model_is_fedavgs_to_the_bit() -> None:
    assert same(trained(Ditto(SOLVER, 0.5))[0], trained(FedAvg(SOLVER, 0.5))[0])


def test_without_a_pull_the_personal_models_are_locals_to_the_bit() -> None:
    (_, ours), (_, alone) = trained(Ditto(SOLVER, 0.5, lam=0)), trained(Local(SOLVER, 0.5))
    assert ours.memory.keys() == alone.memory.keys()
    assert torch.equal(personal(ours), personal(alone))


def test_a_stronger_pull_keeps_personal_models_nearer_the_global_one() -> None:
    apart = []
    for lam in (0.0, 0.3, 3.0):
        state, fed = trained(Ditto(SOLVER, lam=lam))
        apart.append(float((personal(fed) - state.models[0]).norm()))
    assert apart[0] > apart[1] > apart[2]


def test_a_step_pulls_to_the_model_received() -> None:
    fed = federation()
    once = Ditto(Solver(lr=0.1, steps=1, batch=0), lam=0.7)
    states = list(run(once, fed, 1))
    v, w = fed.memory[3]["private"], states[-1].models[0]
    net = fed.layout.flat(v)
    net.gradient(fed.population[3].x, fed.population[3].y)
    expected = v - 0.1 * (net.grad + 0.7 * (v - w))
    once.round(states[-1], fed.at(1))
    torch.testing.assert_close(fed.memory[3]["private"], expected)


def test_the_personal_model_is_what_is_tested() -> None:
    state, fed = trained(Ditto(SOLVER))
    as_global = evaluate(FedAvg(SOLVER), state, fed)
    as_personal = evaluate(Ditto(SOLVER), state, fed)
    as_local = evaluate(Local(SOLVER), state, fed)
    assert not torch.equal(as_personal.loss, as_global.loss)
    assert torch.equal(as_personal.loss, as_local.loss)  # both test what the client keeps


def test_only_the_global_model_travels() -> None:
    (_, ours), (_, plain) = trained(Ditto(SOLVER)), trained(FedAvg(SOLVER))
    for a, b in zip(ours.ledger, plain.ledger, strict=True):
        assert (a.down.tolist(), a.up.tolist()) == (b.down.tolist(), b.up.tolist())


def test_a_newcomer_makes_its_model_out_of_the_global_one_and_sends_nothing() -> None:
    state, fed = trained(Ditto(SOLVER))
    state = replace(state, assign=state.assign.index_fill(0, torch.tensor([5]), -1))
    del fed.memory[5]
    placed = Ditto(replace(SOLVER, lr=1e-4)).place(state, fed.at(3))
    assert placed.assign.tolist() == [0] * 8
    v = fed.memory[5]["private"]
    assert (v - state.models[0]).norm() < 0.01 * (v - fed.layout.initial).norm()
    assert (fed.ledger[-1].down.tolist(), fed.ledger[-1].up.tolist()) == ([4 * len(v)], [0])
