"""CFL: FedAvg until it splits; splits keep client ids; newcomers walk down the tree."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from coterie.core.types import Replies, State, Task
from coterie.engines.front import Front
from coterie.methods.cfl import CFL
from coterie.methods.fedavg import FedAvg
from coterie.tasks.solver import Solver
from coterie.words.grouping import canonical
from tests.methods.planted import groups_of, interleaved, states
from tests.tiny import federation

SOLVER = Solver(lr=0.1, batch=0, epochs=5)
TWICE = CFL(SOLVER, eps1=0.4, eps2=0.5, min_round=3, min_size=2)  # splits in rounds 4 and 5


@pytest.mark.parametrize(
    "unsplit",
    [
        replace(TWICE, min_round=100),
        replace(TWICE, min_size=13),
        replace(TWICE, eps1=1e-6),
        replace(TWICE, eps2=1e6),
        replace(TWICE, gamma=0.95),
    ],
    ids=["round", "size", "eps1", "eps2", "gamma"],
)
def test_before_its_first_split_it_is_fedavg_to_the_bit(unsplit: CFL) -> None:
    fed, _ = interleaved()
    for a, b in zip(states(unsplit, fed, 5), states(FedAvg(SOLVER), fed, 5), strict=True):
        assert torch.equal(a.models, b.models)


def test_each_criterion_above_is_what_prevents_the_split() -> None:
    assert states(TWICE, interleaved()[0], 4)[-1].k == 2


def test_the_second_split_keeps_client_ids() -> None:
    fed, truth = interleaved()
    found = states(TWICE, fed, 8)
    assert [s.k for s in found] == [1, 1, 1, 1, 2, 3, 3, 3, 3]
    # The second split divides a cluster that does not hold the clients 0, 1, 2, ...
    assert sorted(found[4].assign.bincount().tolist()) == [4, 8]
    assert groups_of(found[5]) == groups_of(found[8]) == canonical(torch.tensor(truth)).tolist()


def test_a_split_divides_one_cluster_and_leaves_the_others_alone() -> None:
    fed, _ = interleaved()
    one, two = states(TWICE, fed, 5)[4:]
    c = int(two.memory["splits"][1, 0])
    others = one.assign != c
    assert torch.equal(one.assign[others], two.assign[others])
    assert set(two.assign[~others].tolist()) == {c, 2}


def test_children_inherit_the_parents_model() -> None:
    fed, _ = interleaved()
    split = states(TWICE, fed, 4)[-1]
    whole = states(FedAvg(SOLVER), fed, 4)[-1]
    assert torch.equal(split.models, whole.models.repeat(2, 1))


class Late(Front):
    """Client 7 is away in the round of the first split."""

    def ask(self, cohort: Tensor, task: Task, state: State, **send: Tensor) -> Replies:
        r = super().ask(cohort, task, state, **send)
        here = r.clients != 7 if self.round == 3 else torch.ones(len(r.clients), dtype=torch.bool)
        return Replies(r.clients[here], r.values[here], r.sizes[here])


def late() -> tuple[Front, list[int]]:
    fed, truth = interleaved()
    return Late(fed.population, fed.layout, classes=4, seed=7), truth


def test_who_misses_a_split_waits_and_is_placed_in_its_group() -> None:
    fed, truth = late()
    found = states(TWICE, fed, 6)
    assert found[4].unplaced.tolist() == [7]
    assert groups_of(found[6]) == canonical(torch.tensor(truth)).tolist()


@pytest.mark.parametrize("group", [0, 1, 2])
def test_a_newcomer_walks_down_the_tree_to_its_group(group: int) -> None:
    fed, truth = interleaved()
    end = states(TWICE, fed, 6)[-1]
    like = truth.index(group)
    new: Any = replace(fed.population[like + 6], name="new")  # of the same group, another stream
    fed.population, fed.names = [*fed.population, new], [*fed.names, "new"]
    fed.clients, fed.sizes = torch.arange(13), torch.cat([fed.sizes, torch.tensor([len(new)])])
    fed.ledger.clear()
    joined = TWICE.place(
        replace(end, assign=torch.cat([end.assign, torch.tensor([-1])])), fed.at(6)
    )
    assert joined.assign[12] == end.assign[like]
    assert all(asked.clients.tolist() == [12] for asked in fed.ledger)


def test_two_clients_are_split_by_who_they_are_not_by_position() -> None:
    fed = federation(2)
    m = CFL(SOLVER, eps1=100.0, eps2=1e-6, min_round=0, min_size=2)
    assert sorted(states(m, fed, 1)[-1].assign.tolist()) == [0, 1]
    assert states(replace(m, min_size=3), fed, 1)[-1].assign.tolist() == [0, 0]


def test_with_a_fraction_those_drawn_split_and_the_others_join_a_side() -> None:
    fed, truth = interleaved()
    found = states(replace(TWICE, fraction=0.5), fed, 12)
    first = next(s for s in found if s.k > 1)
    waiting = first.unplaced
    assert len(waiting), "half of the clients were not drawn"
    after = found[first.round + 1]
    assert not len(after.unplaced)
    pure = {tuple({truth[i] for i in (after.assign == c).nonzero().flatten()}) for c in range(2)}
    assert len(pure) == 2, "the two sides have groups of their own"
