"""FedSEM: k-means on models, and how its literal start collapses."""

from __future__ import annotations

import pytest
import torch

from coterie.methods.fedavg import FedAvg
from coterie.methods.fedsem import FedSEM
from coterie.tasks.solver import Solver
from tests.methods.planted import groups_of, states
from tests.tiny import federation

SOLVER = Solver(lr=0.1, batch=8, epochs=3)


def test_a_k_means_start_finds_the_planted_groups() -> None:
    end = states(FedSEM(SOLVER, clusters=2), federation(), 6)[-1]
    assert groups_of(end) == [0, 0, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_random_start_that_collapses_is_fedavg(seed: int) -> None:
    # A round of training moves a model less than random networks lie apart.
    gentle = Solver(lr=0.02, batch=8, epochs=1)
    collapsed = states(FedSEM(gentle, clusters=3, start="random"), federation(seed=seed), 4)
    fedavg = states(FedAvg(gentle), federation(seed=seed), 4)
    for a, b in zip(collapsed[1:], fedavg[1:], strict=True):
        assert len(a.assign.unique()) == 1
        # Within rounding: some processors sum one row of three otherwise than the only one.
        torch.testing.assert_close(a.of(a.placed), b.of(b.placed), rtol=1e-5, atol=1e-6)


def test_one_centre_is_fedavg_to_the_bit() -> None:
    pairs = (states(m, federation(), 3) for m in (FedSEM(SOLVER, clusters=1), FedAvg(SOLVER)))
    for a, b in zip(*pairs, strict=True):
        assert torch.equal(a.models, b.models)


def test_a_client_never_drawn_starts_from_the_mean_of_the_centres_in_use() -> None:
    fed = federation()
    m = FedSEM(SOLVER, fraction=0.25, clusters=2)
    one = states(m, fed, 1)[-1]
    lodged = m.lodged(one, fed)
    members = torch.zeros(2, dtype=torch.float64).index_add_(
        0, one.assign[one.placed], fed.sizes[one.placed]
    )
    mean = (members / members.sum()).float() @ one.models
    torch.testing.assert_close(lodged.of(one.unplaced)[0], mean)
    assert torch.equal(lodged.of(one.placed), one.of(one.placed))


def test_nobody_changes_its_centre_once_they_are_fixed() -> None:
    seen = states(FedSEM(SOLVER, clusters=3, fix_after=1), federation(groups=4), 4)
    assert all(torch.equal(s.assign, seen[1].assign) for s in seen[1:])
    assert not torch.equal(seen[1].models, seen[-1].models), "they go on learning"
