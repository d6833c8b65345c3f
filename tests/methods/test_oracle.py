from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import coterie
from coterie.core.errors import DataError
from coterie.core.loop import run
from coterie.core.types import State
from coterie.engines.front import Front
from coterie.methods.fedavg import FedAvg
from coterie.methods.local import Local
from coterie.methods.oracle import Oracle
from coterie.tasks.solver import Solver
from tests.tiny import federation, same

SOLVER = Solver(lr=0.1, batch=8)


def trained(method: object, fed: Front, rounds: int = 3) -> State:
    return list(run(method, fed, rounds))[-1]  # type: ignore[arg-type]


def test_with_one_group_it_is_fedavg_to_the_bit() -> None:
    one, plain = federation(groups=1), federation(groups=1)
    assert same(trained(Oracle(SOLVER, 0.5), one), trained(FedAvg(SOLVER, 0.5), plain))


def test_with_a_group_for_each_client_it_is_local_to_the_bit() -> None:
    fed, alone = federation(groups=8), federation(groups=8)
    end = trained(Oracle(SOLVER), fed)
    trained(Local(SOLVER), alone)
    assert end.assign.tolist() == list(range(8))
    for i, row in enumerate(end.models):
        assert torch.equal(row, alone.memory[i]["private"])


def test_groups_are_those_that_were_planted() -> None:
    end = trained(Oracle(SOLVER), federation(groups=2))
    assert end.assign.tolist() == [0] * 4 + [1] * 4
    assert end.k == 2


def test_without_planted_groups_there_is_nothing_to_tell() -> None:
    fed = federation()
    fed.groups = None
    with pytest.raises(DataError, match="nothing to tell") as caught:
        Oracle(SOLVER).init(fed)
    assert caught.value.code == "D047"


def test_a_newcomer_takes_the_model_that_fits_its_data() -> None:
    fed = federation(groups=2)
    end = trained(Oracle(replace(SOLVER, epochs=10)), fed, 5)
    fed.groups = None  # as after a run
    late = replace(end, assign=end.assign.index_fill(0, torch.tensor([6]), -1))
    assert Oracle(SOLVER).place(late, fed.at(9)).assign.tolist() == end.assign.tolist()


def test_it_follows_drift() -> None:
    people = coterie.partition("digits", "rotation+drift", clients=8, seed=0)
    result = coterie.fit(Oracle(SOLVER), people, "mclr", rounds=12)
    assert result.state.assign.tolist() == people.at(12).group.tolist()
    assert result.state.assign.tolist() != people.at(0).group.tolist()
