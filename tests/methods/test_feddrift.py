from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

import coterie
from coterie.core.loop import run
from coterie.core.types import State
from coterie.methods.fedavg import FedAvg
from coterie.methods.feddrift import FedDrift
from coterie.methods.local import Local
from coterie.tasks.solver import Solver
from tests.methods.formulas import Row, close, logistic, losses, own, trained
from tests.tiny import federation, same

SOLVER = Solver(lr=0.1, batch=8)
NEVER = 1e9


def test_within_the_first_time_step_it_is_fedavg_to_the_bit() -> None:
    ours = trained(FedDrift(SOLVER, 0.5, every=9), federation())
    plain = trained(FedAvg(SOLVER, 0.5), federation())
    assert same(replace(ours, memory={}), plain)


def test_where_nobody_can_drift_it_is_fedavg() -> None:
    whole = Solver(lr=0.1, steps=2, batch=0)  # no order, which would follow what was asked before
    ours = trained(FedDrift(whole, every=1, delta=NEVER), federation())
    torch.testing.assert_close(ours.models, trained(FedAvg(whole), federation()).models)


def test_with_a_model_for_each_it_is_local_until_they_merge() -> None:
    ours, alone = federation(), federation()
    method = FedDrift(SOLVER, every=2, delta=NEVER, start="own")
    states = list(run(method, ours, 2))
    trained(Local(SOLVER), alone, 2)
    for i, row in own(alone).items():
        assert torch.equal(states[-1].models[i], row)
    merged = method.step(states[-1], ours.at(2))
    assert len(merged.assign.unique()) == 1


def stepped(state: State, fed: Any, delta: float, limit: float) -> tuple[list[Row], list[int]]:
    """A time step by its formulas: who chooses what, which clusters merge, who leaves."""
    rows = [row.double().numpy() for row in state.models]
    n = np.array([len(who) for who in fed.population], float)
    loss = np.array([[losses(row, who).mean() for row in rows] for who in fed.population])
    left = loss.min(1) > state.memory["loss"].numpy() + delta
    choice = loss.argmin(1)
    there = [c for c in range(len(rows)) if (choice[~left] == c).any()]
    L = np.zeros((len(there), len(there)))
    for a, i in enumerate(there):
        for b, j in enumerate(there):
            members = (choice == j) & ~left
            L[a, b] = (n * loss[:, i])[members].sum() / n[members].sum()
    D = np.maximum(L - np.diag(L)[:, None], 0)
    D = np.maximum(D, D.T)
    cut = (
        [1]
        if len(there) == 1
        else hierarchy.fcluster(
            hierarchy.linkage(squareform(D, checks=False), "complete"), limit, "distance"
        )
    )
    held = {c: cut[a] for a, c in enumerate(there)}
    models, place = list[Row](), dict[int, int]()
    for c in range(len(rows)):
        with_it = [d for d in there if held[d] == held[c]] if c in held else [c]
        if with_it[0] == c:
            size = [n[(choice == d) & ~left].sum() or 1.0 for d in with_it]
            models.append(np.average([rows[d] for d in with_it], axis=0, weights=size))
        place[c] = place[with_it[0]] if with_it[0] != c else len(models) - 1
    assign = [place[int(c)] for c in choice]
    for i in np.flatnonzero(left):
        assign[i] = len(models)
        models.append(rows[choice[i]])
    return models, assign


def test_a_time_step_is_its_formulas() -> None:
    fed = logistic()
    trained(Local(Solver(lr=1.0, steps=4, batch=0)), fed, 1)
    models = torch.stack(list(own(fed).values()))  # each client's own, of two kinds
    rows = [row.double().numpy() for row in models]
    usual = torch.tensor([[losses(r, who).mean() for r in rows] for who in fed.population]).amin(1)
    usual[[2, 5]] -= 0.3  # these two have drifted
    found = set()
    for limit in np.geomspace(0.01, 5, 25):
        state = State(models, torch.arange(8), round=5)
        state = state.hold(loss=usual, held=torch.zeros(8, dtype=torch.long))
        after = FedDrift(delta=0.2, merge=limit).step(state, fed.at(5))
        meant, assign = stepped(state, fed, 0.2, limit)
        assert after.assign.tolist() == assign
        close(after.models, np.stack(meant))
        found.add(len(meant))
    assert len(found) > 3, "from no merger to all in one"


def test_unused_models_are_kept_while_there_is_room_and_the_oldest_goes_first() -> None:
    fed = logistic()
    state = State(torch.zeros(4, fed.layout.size), torch.zeros(8, dtype=torch.long), round=20)
    state = state.hold(loss=torch.zeros(8).double(), held=torch.tensor([3, 15, 5, 10]))
    models = torch.arange(4.0)[:, None].repeat(1, fed.layout.size)
    state = state.hold(models)
    assert FedDrift(most=5).forget(state, 1).k == 4
    tight = FedDrift(most=3).forget(state, 1)
    assert tight.models[:, 0].tolist() == [0.0, 1.0]
    assert tight.memory["held"].tolist() == [20, 15]


def test_who_swaps_its_data_joins_those_it_is_like_now() -> None:
    people = coterie.partition("digits", "rotation:2+drift:4", clients=6, seed=0)
    method = FedDrift(Solver(lr=0.1, epochs=2, batch=16), every=2, start="own", merge=1.0)
    result = coterie.fit(method, people, "mclr", rounds=5)
    before, after = people.at(0).group, people.at(5).group
    assert before is not None
    assert after is not None
    assert before.tolist() != after.tolist()
    held = result.state.assign
    assert torch.equal(held[:, None] == held, after[:, None] == after)
