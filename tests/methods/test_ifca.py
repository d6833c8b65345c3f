"""IFCA: the identity with FedAvg, who chooses by what, and what travels."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from coterie.core.client import Client
from coterie.core.loop import evaluate
from coterie.core.rng import stream
from coterie.core.types import State
from coterie.methods.fedavg import FedAvg
from coterie.methods.ifca import IFCA
from coterie.tasks.signature import Losses
from coterie.tasks.solver import Solver
from coterie.tasks.train import Train
from coterie.tasks.variants import Choose
from coterie.words.mixing import average
from tests.methods.planted import groups_of, states
from tests.tiny import Flaky, clients, federation, same

SOLVER = Solver(lr=0.1, batch=8, epochs=2)
TRUTH = [0, 0, 0, 0, 1, 1, 1, 1]
HEAD = 8 * 4 + 4  # numbers in the head of the tiny network


@pytest.mark.parametrize("share", ["none", "body"])
@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_one_cluster_is_fedavg_to_the_bit(share: str, fraction: float) -> None:
    fed = federation()
    ifca = states(IFCA(SOLVER, fraction, clusters=1, share=share), fed, 3)  # type: ignore[arg-type]
    for a, b in zip(ifca, states(FedAvg(SOLVER, fraction), fed, 3), strict=True):
        assert torch.equal(a.models, b.models)


@pytest.mark.parametrize("start", ["random", "kmeans"])
def test_planted_groups_are_found(start: str) -> None:
    end = states(IFCA(SOLVER, clusters=2, start=start), federation(), 6)[-1]  # type: ignore[arg-type]
    assert groups_of(end) == TRUTH


def test_kmeans_tells_the_groups_apart_before_the_first_choice() -> None:
    first = states(IFCA(SOLVER, clusters=2, start="kmeans"), federation(), 1)[1]
    assert groups_of(first) == TRUTH


def test_the_first_models_are_different_networks_and_follow_from_the_seed() -> None:
    a, b, c = (IFCA(clusters=3).init(federation(seed=s).at(-1)).models for s in (1, 1, 2))
    assert torch.equal(a, b)
    assert torch.equal(a[0], c[0])
    assert not torch.isclose(a[1], c[1]).any()
    assert not torch.isclose(a[1], a[2]).any()


def test_test_data_chooses_nothing() -> None:
    fed, blind = federation(), federation()
    blind.population = [
        replace(c, x_test=c.x_test.flip(0) * 9, y_test=c.y_test * 0) for c in clients()
    ]
    m = IFCA(SOLVER, clusters=2)
    assert same(states(m, fed, 3)[-1], states(m, blind, 3)[-1])


def test_a_client_trains_the_model_with_the_least_training_loss() -> None:
    fed = federation()
    state = IFCA(clusters=3).init(fed.at(-1))
    f = fed.at(0).ask(fed.clients, Losses(), state)
    w = fed.at(0).ask(fed.clients, Choose(SOLVER), state)
    assert torch.equal(w.extra["choice"], f.values.argmin(1))
    plain = fed.at(0).ask(fed.clients, Train(SOLVER), replace(state, assign=w.extra["choice"]))
    assert torch.equal(w.values, plain.values)


def test_nobody_chooses_a_model_without_numbers() -> None:
    fed = federation()
    bad = torch.stack([torch.full_like(fed.layout.initial, 1e38), fed.layout.initial])
    w = fed.at(0).ask(fed.clients, Choose(SOLVER), State(bad, torch.full((8,), -1)))
    assert w.extra["choice"].tolist() == [1] * 8


def test_all_models_come_down_and_one_goes_up() -> None:
    fed = federation()
    states(IFCA(SOLVER, clusters=3), fed, 1)
    (asked,) = fed.ledger
    d = fed.layout.size * 4
    assert asked.down.tolist() == [3 * d] * 8
    assert asked.up.tolist() == [d + 8] * 8  # and which one it was


def test_a_shared_body_comes_down_once() -> None:
    fed = federation()
    states(IFCA(SOLVER, clusters=3, share="body"), fed, 1)
    (asked,) = fed.ledger
    assert asked.down.tolist() == [(fed.layout.size + 2 * HEAD) * 4] * 8


def test_a_shared_body_is_everybodys_average_and_heads_are_the_clusters() -> None:
    fed = federation()
    before, after = states(IFCA(SOLVER, clusters=2, share="body"), fed, 1)
    body, head = fed.layout.columns("~head"), fed.layout.columns("head")
    w = fed.at(0).ask(fed.clients, Train(SOLVER), replace(before, assign=after.assign))
    torch.testing.assert_close(
        after.models[0, body], (average(w.sizes).float() @ w.values)[0, body]
    )
    assert torch.equal(after.models[0, body], after.models[1, body])
    assert not torch.isclose(after.models[0, head], after.models[1, head]).all()


def test_of_several_starts_the_one_with_the_least_loss_is_taken() -> None:
    fed = federation(seed=1)
    chosen = IFCA(SOLVER, clusters=2, starts=4).init(fed.at(-1)).models
    rows = IFCA(clusters=2).drawn(fed, 4).view(4, 2, -1)
    loss = [
        float(
            sum(
                n
                * min(
                    float(torch.nn.functional.cross_entropy(fed.layout.predict(r, c.x), c.y))
                    for r in s
                )
                for n, c in zip(fed.sizes, fed.population, strict=True)
            )
        )
        for s in rows
    ]
    assert torch.equal(chosen, rows[loss.index(min(loss))])


def test_a_fixed_assignment_stays_and_costs_one_model() -> None:
    fed = federation()
    found = states(IFCA(SOLVER, clusters=3, fix_after=1), fed, 3)
    assert torch.equal(found[1].assign, found[3].assign)
    assert fed.ledger[-1].down.tolist() == [fed.layout.size * 4] * 8


def test_an_undrawn_client_has_no_cluster_and_is_not_tested() -> None:
    fed, m = federation(), IFCA(SOLVER, fraction=0.25, clusters=2)
    one = states(m, fed, 1)[-1]
    assert len(one.unplaced) == 6
    assert torch.equal(evaluate(m, one, fed).clients, one.placed)


def test_lost_answers_leave_a_k_means_start_whole() -> None:
    m = IFCA(SOLVER, clusters=4, start="kmeans")
    assert torch.isfinite(states(m, federation(kind=Flaky), 2)[-1].models).all()


def test_more_clusters_than_clients_keep_networks_of_their_own() -> None:
    fed = federation(2)
    rows = IFCA(SOLVER, clusters=4, start="kmeans").init(fed.at(-1)).models
    assert len(rows.unique(dim=0)) == 4


def test_a_newcomer_chooses_by_its_training_loss() -> None:
    fed, m = federation(), IFCA(SOLVER, clusters=2)
    end = states(m, fed, 6)[-1]
    again: Client = fed.population[5]
    fed.population = [*fed.population, replace(again, name="new")]
    fed.clients, fed.sizes = torch.arange(9), torch.cat([fed.sizes, fed.sizes[5:6]])
    fed.names = [*fed.names, "new"]
    joined = m.place(replace(end, assign=torch.cat([end.assign, torch.tensor([-1])])), fed.at(6))
    assert joined.assign[8] == end.assign[5]


def test_draws_do_not_depend_on_how_many_there_are() -> None:
    fed, m = federation(), IFCA(clusters=3)
    assert torch.equal(m.drawn(fed, 1), m.drawn(fed, 2)[:3])
    assert torch.equal(m.drawn(fed, 1)[1], fed.layout.fresh(stream(fed.seed, "start", 1)))


@pytest.mark.parametrize("start", ["random", "kmeans"])
def test_a_shared_body_is_shared_from_the_start(start: str) -> None:
    fed = federation()
    rows = IFCA(SOLVER, clusters=3, share="body", start=start).init(fed.at(-1)).models  # type: ignore[arg-type]
    assert len(rows[:, fed.layout.columns("~head")].unique(dim=0)) == 1
    assert len(rows.unique(dim=0)) == 3
