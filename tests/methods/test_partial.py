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
from coterie.methods.fedbabu import FedBABU
from coterie.methods.local import Local
from coterie.methods.partial import FedBN, FedPer, FedRep, LGFedAvg
from coterie.tasks.optimiser import SGD
from coterie.tasks.solver import Descent, Solver
from tests.tiny import CLASSES, FEATURES, clients, federation, same

SOLVER = Solver(lr=0.1, batch=8, optimiser=SGD(momentum=0.5))


def trained(method: FedAvg | Local, fed: Front, rounds: int = 3) -> State:
    return list(run(method, fed, rounds))[-1]


def own_loss(method: FedPer, state: State, fed: Front, client: int) -> float:
    """How well the model that a client uses fits the data it trains on."""
    task, who = method.score.held, fed.population[client]
    (row,) = fed.at(9, "evaluate").ask(torch.tensor([client]), task, state).values
    return float(nn.functional.cross_entropy(fed.layout.predict(row, who.x), who.y))


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
    [
        LGFedAvg(SOLVER, 0.5, "all"),
        FedPer(SOLVER, 0.5, "all"),
        FedBN(SOLVER, 0.5, "all"),
        FedRep(SOLVER, 0.5, "all", head_epochs=SOLVER.epochs),
    ],
    ids=["lg-fedavg", "fedper", "fedbn", "fedrep"],
)
@pytest.mark.parametrize("make", [federation, deep])
def test_with_every_layer_private_it_is_local_to_the_bit(method: LGFedAvg, make) -> None:  # type: ignore[no-untyped-def]
    ours, alone = make(), make()
    assert same(trained(method, ours), trained(Local(SOLVER, 0.5), alone))
    a, b = kept(ours), kept(alone)
    assert a.keys() == b.keys()
    assert all(torch.equal(a[i], b[i]) for i in a)
    assert all(entry.down.sum() == entry.up.sum() == 0 for entry in ours.ledger)


@pytest.mark.parametrize("cls", [LGFedAvg, FedPer, FedRep])
def test_with_no_layer_private_it_is_fedavg_to_the_bit(cls: type[LGFedAvg]) -> None:
    ours = trained(cls(SOLVER, 0.5, "none"), federation())
    assert same(ours, trained(FedAvg(SOLVER, 0.5), federation()))


@pytest.mark.parametrize(
    "method",
    [
        LGFedAvg(SOLVER, 1.0),
        LGFedAvg(SOLVER, 1.0, "0,1"),
        FedPer(SOLVER, 1.0),
        FedBN(SOLVER, 1.0),
        FedRep(SOLVER, 1.0),
        FedRep(SOLVER, 1.0, "3,5"),
    ],
    ids=["lg", "lg two layers", "fedper", "fedbn", "fedrep", "fedrep two layers"],
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


@pytest.mark.parametrize("cls", [LGFedAvg, FedPer, FedRep])
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


@pytest.mark.parametrize(
    "method",
    [
        FedRep(SOLVER, 1.0, head_epochs=5),
        FedPer(replace(SOLVER, epochs=5), 1.0),
    ],
    ids=["fedrep", "fedper"],
)
def test_a_newcomer_fits_a_head_and_sends_nothing(method: FedPer) -> None:
    fed = deep()
    end = trained(method, fed)
    untrained = replace(end, assign=end.assign.index_fill(0, torch.tensor([5]), -1))
    del fed.memory[5]
    before = own_loss(method, end, fed, 5)
    placed = method.place(untrained, fed.at(3))
    assert same(placed, end)
    assert fed.ledger[-1].up.tolist() == [0]
    assert own_loss(method, placed, fed, 5) < before


def test_fedper_is_lg_fedavg_with_a_private_head_to_the_bit() -> None:
    a, b = deep(), deep()
    ours = trained(FedPer(SOLVER, 0.5), a)
    assert same(ours, trained(LGFedAvg(SOLVER, 0.5, "head"), b))
    assert all(torch.equal(kept(a)[i], kept(b)[i]) for i in kept(b))


def test_fedbn_without_normalisation_is_fedavg_to_the_bit() -> None:
    ours, plain = federation(), federation()
    assert same(trained(FedBN(SOLVER, 0.5), ours), trained(FedAvg(SOLVER, 0.5), plain))
    for mine, theirs in zip(ours.ledger, plain.ledger, strict=True):
        assert mine.up.tolist() == theirs.up.tolist()


def test_fedbn_keeps_scales_shifts_and_statistics() -> None:
    fed = deep()
    trained(FedBN(SOLVER, 1.0), fed)
    layer = "1.weight", "1.bias", "1.running_mean", "1.running_var"
    private = torch.arange(fed.layout.size)[fed.layout.columns("norm")]
    named = torch.cat([torch.arange(fed.layout.size)[fed.layout.columns(n)] for n in layer])
    assert private.tolist() == sorted(named.tolist())
    assert len(torch.stack(list(kept(fed).values())).unique(dim=0)) == 8


def test_a_newcomer_to_fedbn_takes_the_statistics_of_its_own_data() -> None:
    fed = deep()
    end = trained(FedBN(replace(SOLVER, epochs=9), 1.0), fed)
    del fed.memory[5]
    late = replace(end, assign=end.assign.index_fill(0, torch.tensor([5]), -1))
    FedBN(replace(SOLVER, epochs=9), 1.0).place(late, fed.at(3))
    assert fed.ledger[-1].up.tolist() == [0]
    row = end.models[0].clone()
    row[fed.layout.columns("norm")] = fed.memory[5]["private"]
    first = fed.layout.module(row)[0](fed.population[5].x)
    found = row[fed.layout.columns("1.running_mean")]
    assert (found - first.mean(0)).norm() < 0.3 * first.mean(0).norm()


def test_fedbabu_never_moves_the_head_and_its_body_is_that_of_a_frozen_head() -> None:
    fed = deep()
    end = trained(FedBABU(SOLVER, 1.0), fed)
    head, body = fed.layout.columns("head"), fed.layout.columns("~head")
    assert torch.equal(end.models[0, head], fed.layout.initial[head])

    other, state = deep(), FedAvg().init(deep())
    for t in range(3):  # FedAvg by hand, with the head frozen
        rows, sizes = [], []
        for who in other.population:
            rng = stream(other.seed, "train", t, 0, who.name)
            start = state.models[0]
            w, _ = Descent(SOLVER, who, start, rng, train="~head").run_single(other.layout)
            rows.append(w)
            sizes.append(len(who))
        share = torch.tensor(sizes).float() / sum(sizes)
        state = replace(state, models=(share[:, None] * torch.stack(rows)).sum(0, keepdim=True))
    assert torch.allclose(end.models[0, body], state.models[0, body], atol=1e-5)
    assert not torch.allclose(end.models[0, body], fed.layout.initial[body], atol=1e-2)


def test_fedbabu_sends_bodies_alone_and_is_judged_after_tuning() -> None:
    fed = deep()
    method = FedBABU(SOLVER, 1.0, tune_epochs=5)
    end = trained(method, fed)
    size = 4 * (fed.layout.size - fed.layout.form("head")[1][0])
    assert all(entry.up.tolist() == entry.down.tolist() == [size] * 8 for entry in fed.ledger)
    scores = evaluate(method, end, fed)
    assert scores.stages == ("before", "after")
    assert scores.loss[1].mean() < scores.loss[0].mean()
