"""PACFL: true principal angles, found before any model travels."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from coterie.core.rng import stream
from coterie.methods.fedavg import FedAvg
from coterie.methods.pacfl import PACFL
from coterie.tasks.signature import Basis
from coterie.tasks.solver import Solver
from coterie.words.distance import basis, subspaces
from coterie.words.grouping import auto_cut, neighbour_cut
from tests.methods.planted import groups_of, states
from tests.methods.planted import subspaces as planted
from tests.tiny import FEATURES, federation

SOLVER = Solver(lr=0.1, batch=8)


def test_one_subspace_in_two_bases_is_at_no_angle() -> None:
    U = basis(torch.randn(9, 40, generator=stream(0, "data")).double(), 3)
    turn, _ = torch.linalg.qr(torch.randn(3, 3, generator=stream(0, "turn")).double())
    signs = U * torch.tensor([-1.0, 1.0, -1.0])
    A = subspaces(torch.stack([U, signs, U @ turn]))
    assert A.max() < 1e-5


def test_the_order_and_sign_of_samples_do_not_matter() -> None:
    fed, _ = planted(2)
    one = fed.population[0]
    fed.population = [one, replace(one, x=-one.x.flip(0), y=one.y.flip(0), name="1")]
    U = fed.at(0).ask(fed.clients, Basis(3), FedAvg().init(fed))
    assert subspaces(U.values.double()).max() < 0.1  # float32 vectors: degrees, not exactly 0


@pytest.mark.parametrize("how", [{}, {"clusters": 2}, {"threshold": 30.0}, {"angle": "trace"}])
def test_groups_are_found_before_training(how: dict[str, object]) -> None:
    fed, truth = planted()
    m = PACFL(SOLVER, **how)  # type: ignore[arg-type]
    first = m.init(fed.at(-1))
    assert groups_of(first) == truth
    assert torch.equal(first.models, fed.layout.initial.repeat(2, 1))


def test_what_is_sent_is_p_vectors_and_no_model() -> None:
    fed, _ = planted()
    PACFL(SOLVER, p=2).init(fed.at(-1))
    (asked,) = fed.ledger
    assert asked.down.tolist() == [0] * 8
    assert asked.up.tolist() == [2 * FEATURES * 4] * 8


def test_a_newcomer_sends_its_basis_and_nothing_else() -> None:
    m = PACFL(SOLVER, fraction=1.0)
    fed, truth = planted()
    end = states(m, fed, 2)[-1]
    bigger, _ = planted(8, newcomers=2)
    joined = replace(end, assign=torch.cat([end.assign, torch.tensor([-1, -1])]))
    joined = m.place(joined, bigger.at(2))
    assert groups_of(joined) == [*truth, 0, 1]
    assert [a.task for a in bigger.ledger] == ["Basis"]
    assert bigger.ledger[0].clients.tolist() == [8, 9]


def test_one_cluster_is_fedavg_to_the_bit() -> None:
    pairs = (
        states(m, federation(), 3) for m in (PACFL(SOLVER, 0.5, clusters=1), FedAvg(SOLVER, 0.5))
    )
    for a, b in zip(*pairs, strict=True):
        assert torch.equal(a.models, b.models)


def nested() -> tuple[torch.Tensor, list[int]]:
    """Angles of four groups of five of which two and two are nearer, as turned images have them."""
    group = torch.arange(20) // 5
    apart = torch.where(group[:, None] // 2 == group // 2, 14.0, 60.0)
    D = torch.where(group[:, None] == group, 5.5, apart)
    noise = torch.rand(20, 20, generator=stream(0, "noise"))
    return (D + noise + noise.T).fill_diagonal_(0), group.tolist()


def test_the_automatic_cut_stops_where_clients_are_no_longer_as_near_as_neighbours() -> None:
    D, truth = nested()
    assert neighbour_cut(D).labels.tolist() == truth
    assert auto_cut(D).k == 2, "the widest gap is between the pairs"
    assert PACFL(SOLVER).groups(D).tolist() == truth


def test_the_automatic_cut_leaves_alike_clients_together_whatever_their_noise() -> None:
    noise = torch.rand(20, 20, generator=stream(1, "noise"))
    D = (5 + noise + noise.T).fill_diagonal_(0)
    assert neighbour_cut(D).k == 1
    assert neighbour_cut(torch.zeros(1, 1)).labels.tolist() == [0]
