from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from coterie.core.layout import Layout
from coterie.core.loop import evaluate, run
from coterie.core.rng import stream
from coterie.core.types import State
from coterie.engines.front import Front
from coterie.methods.fedavg import FedAvg
from coterie.methods.local import Local
from coterie.methods.partial import FedRep, LGFedAvg
from coterie.tasks.optimiser import SGD
from coterie.tasks.solver import Descent, Solver
from tests.tiny import CLASSES, FEATURES, clients, federation, same

SOLVER = Solver(lr=0.1, batch=8, optimiser=SGD(momentum=0.5))


def trained(method: FedAvg | Local, fed: Front, rounds: int = 3) -> State:
    return list(run(method, fed, rounds))[-1]


def kept(fed: Front) -> dict[int, Tensor]:
    return {i: own["private"] for i, own in fed.memory.items()}


def deep() -> Front:
    """A federation whose network has three layers with running statistics."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = nn.Sequential(
            nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 5), nn.ReLU(),
            nn.Linear(5, CLASSES),
        )  # fmt: skip
    return Front(clients(), Layout(net), classes=CLASSES, seed=7)


@pytest.mark.parametrize(
    "method",
    [LGFedAvg(SOLVER, 0.5, "all"), FedRep(SOLVER, 0.5, "all", head_epochs=SOLVER.epochs)],
    ids=["lg-fedavg", "fedrep"],
)
@pytest.mark.parametrize("make", [federation, deep])
def test_with_every_layer_private_it_is_local_to_the_bit(method: LGFedAvg, make) -> None:  # type: ignore[no-untyped-def]
    ours, alone = make(), make()
    assert same(trained(method, ours), trained(Local(SOLVER, 0.5), alone))
    a, b = kept(ours), kept(alone)
    assert a.keys() == b.keys()
    assert all(torch.equal(a[i], b[i]) for i in a)
    assert all(entry.down.sum() == entry.up.sum() == 0 for entry in ours.ledger)


@pytest.mark.parametrize("cls", [LGFedAvg, FedRep])
def test_with_no_layer_private_it_is_fedavg_to_the_bit(cls: type[LGFedAvg]) -> None:
    ours = trained(cls(SOLVER, 0.5, "none"), federation())
    assert same(ours, trained(FedAvg(SOLVER, 0.5), federation()))


@pytest.mark.parametrize(
    "method",
    [
        LGFedAvg(SOLVER, 1.0),
        LGFedAvg(SOLVER, 1.0, "0,1"),
        FedRep(SOLVER, 1.0),
        FedRep(SOLVER, 1.0, "3,5"),
    ],
    ids=["lg", "lg two layers", "fedrep", "fedrep two layers"],
)
def test_private_layers_never_travel_and_the_others_do(method: LGFedAvg) -> None:
    fed = deep()
    end = trained(method, fed)
    mine = fed.layout.columns(method.private)
    common = fed.layout.columns(f"~{method.private}")
    assert torch.equal(end.models[0, mine], fed.layout.initial[mine])
    assert not torch.isclose(end.models[0, common], fed.layout.initial[common]).all()
    size = 4 * len(end.models[0, common])
    assert 0 < size < 4 * fed.layout.size
    for entry in fed.ledger:
        assert entry.down.tolist() == entry.up.tolist() == [size] * 8


@pytest.mark.parametrize("cls", [LGFedAvg, FedRep])
def test_a_client_is_tested_with_its_own_layers(cls: type[LGFedAvg]) -> None:
    fed = federation()
    method = cls(SOLVER, 1.0)
    end = trained(method, fed)
    own = end.models[0].clone()
    own[fed.layout.columns(method.private)] = fed.memory[2]["private"]
    whole = evaluate(FedAvg(), State.shared(own, 8), fed)
    assert evaluate(method, end, fed).loss[0, 2] == whole.loss[0, 2]


def test_fedrep_fits_the_head_to_the_body_it_received_and_then_the_body_to_that_head() -> None:
    fed = deep()
    method = FedRep(SOLVER, 1.0, head_epochs=3)
    reply = fed.at(0).ask(fed.clients[:1], method.local, method.init(fed))
    head, who = fed.layout.columns("head"), fed.population[0]
    rng = stream(fed.seed, "train", 0, 0, who.name)
    first = replace(SOLVER, epochs=3)
    w, _ = Descent(first, who, fed.layout.initial, rng, train="head").run_single(fed.layout)
    assert torch.equal(
        w[fed.layout.columns("~head")], fed.layout.initial[fed.layout.columns("~head")]
    )
    assert torch.equal(fed.memory[0]["private"], w[head])
    w, _ = Descent(SOLVER, who, w, rng, train="~head").run_single(fed.layout)
    assert torch.equal(reply.values[0], w[fed.layout.columns("~head")])


def test_a_newcomer_to_fedrep_fits_a_head_and_sends_nothing() -> None:
    fed = federation()
    method = FedRep(SOLVER, 1.0, head_epochs=5)
    end = trained(method, fed)
    untrained = replace(end, assign=end.assign.index_fill(0, torch.tensor([5]), -1))
    del fed.memory[5]
    before = evaluate(method, end, fed).loss[0, 5]
    placed = method.place(untrained, fed.at(3))
    assert same(placed, end)
    assert fed.ledger[-1].up.tolist() == [0]
    assert evaluate(method, placed, fed).loss[0, 5] < before
