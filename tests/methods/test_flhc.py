"""FL+HC: FedAvg, one clustering, FedAvg inside; and AutoCFL's epochs before it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from coterie.core.types import State
from coterie.methods.autocfl import AutoCFL
from coterie.methods.fedavg import FedAvg
from coterie.methods.flhc import FLHC
from coterie.tasks.solver import Solver
from coterie.tasks.train import Train
from tests.methods.planted import groups_of, states
from tests.tiny import clients, federation

SOLVER = Solver(lr=0.1, batch=8, epochs=2)
TRUTH = [0, 0, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize(
    "one", [{"clusters": 1}, {"threshold": 1e6}], ids=["clusters", "threshold"]
)
def test_one_cluster_is_fedavg_to_the_bit(one: dict[str, float]) -> None:
    m = FLHC(SOLVER, rounds_before=2, **one)  # type: ignore[arg-type]
    pairs = (states(x, federation(), 5) for x in (m, FedAvg(SOLVER)))
    for a, b in zip(*pairs, strict=True):
        assert torch.equal(a.models, b.models)


def test_before_the_clustering_it_is_fedavg_with_partial_participation() -> None:
    m = FLHC(SOLVER, fraction=0.5, rounds_before=3)
    pairs = (states(x, federation(), 3) for x in (m, FedAvg(SOLVER, fraction=0.5)))
    for a, b in zip(*pairs, strict=True):
        assert torch.equal(a.models, b.models)


@pytest.mark.parametrize("how", [{}, {"clusters": 2}, {"threshold": 1.0}])
def test_planted_groups_are_found_in_the_round_after_n(how: dict[str, float]) -> None:
    m = FLHC(SOLVER, fraction=0.5, rounds_before=2, **how)  # type: ignore[arg-type]
    found = states(m, federation(), 3)
    assert [s.k for s in found] == [1, 1, 1, 2]
    assert groups_of(found[-1]) == TRUTH


def test_a_cluster_starts_from_its_members_average() -> None:
    fed = federation()
    before, after = states(FLHC(SOLVER, rounds_before=1, clusters=2), fed, 2)[1:]
    w = fed.at(1).ask(fed.clients, Train(SOLVER), before)
    mean = fed.sizes[:4] / fed.sizes[:4].sum() @ w.values[:4].double()
    torch.testing.assert_close(after.of(torch.tensor([0]))[0].double(), mean, rtol=1e-5, atol=1e-6)


def test_adjusted_rounds_are_those_of_autocfl_to_the_bit() -> None:
    flhc = states(FLHC(SOLVER, rounds_before=3, clusters=2, adjust="all"), federation(), 3)
    auto = states(AutoCFL(SOLVER, latest=9), federation(), 3)
    for a, b in zip(flhc[1:], auto[1:], strict=True):
        assert torch.equal(a.models, b.models)
        assert torch.equal(a.memory["epochs"], b.memory["epochs"])
    assert flhc[-1].memory["epochs"].max() > SOLVER.epochs


def test_the_clustering_round_trains_for_the_adjusted_epochs() -> None:
    fed = federation()
    m = FLHC(SOLVER, rounds_before=2, clusters=2, adjust="all")
    states(m, fed, 4)
    d = fed.layout.size * 4
    assert [a.down[0].item() - d for a in fed.ledger] == [8, 8, 8, 0]  # the epochs, and no more


def test_a_newcomer_before_the_clustering_has_epochs_of_its_own() -> None:
    m = FLHC(SOLVER, rounds_before=3, clusters=2, adjust="all")
    start: State = states(m, federation(7), 2)[-1]
    bigger = federation(8)
    bigger.population = [*federation(7).population, clients(8)[7]]
    joined = replace(start, assign=torch.cat([start.assign, torch.tensor([-1])]))
    after = m.round(joined, bigger.at(2))
    assert len(after.memory["epochs"]) == 8
    assert after.memory["losses"].shape == (3, 8)


def test_a_newcomer_joins_the_cluster_its_training_leads_to() -> None:
    m = FLHC(SOLVER, rounds_before=1, clusters=2)
    end = states(m, federation(), 3)[-1]
    fed = federation()
    away = replace(end, assign=end.assign.index_fill(0, torch.tensor([2, 6]), -1))
    assert torch.equal(m.place(away, fed.at(3)).assign, end.assign)
