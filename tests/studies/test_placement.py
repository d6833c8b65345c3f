"""Newcomers: placed where they belong, adapted, scored; and nobody else notices."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import coterie
from coterie.core.client import Client
from coterie.core.errors import DataError
from coterie.core.types import State
from coterie.data.dataset import Data, Scaler, scale
from coterie.data.population import Population, partition
from coterie.data.population_given import numbered, quarters
from coterie.methods.fedclust import FedClust
from coterie.studies.finished.placement import adaptation, arrivals, joined, place, welcomed
from coterie.studies.run.result import Result
from coterie.studies.run.training import fit
from coterie.tasks.score import Score
from coterie.tasks.solver import Solver
from tests import tiny
from tests.test_contract import ALL, method

NEW = (2, 5, 8, 11)  # one client of each angle


@cache
def people() -> Population:
    return partition("digits", "rotation", clients=12)


@cache
def finished() -> Result:
    old = [c for i, c in enumerate(people()) if i not in NEW]
    clust = FedClust(solver=Solver(lr=0.05, batch=16), fraction=1.0, warmup_epochs=2)
    return fit(clust, Population.of(old, classes=10), "mlp", rounds=1)


def newcomers() -> list[Client]:
    return [people()[i] for i in NEW]


def test_newcomers_join_those_who_are_like_them() -> None:
    placed = finished().place(newcomers())
    assert placed.names == tuple(map(str, NEW))
    assert [placed.clusters[str(i)] for i in NEW] == [finished().clusters[str(i - 1)] for i in NEW]


def test_nothing_of_the_run_changes() -> None:
    result = finished()
    before = (result.state.models.clone(), result.state.assign.clone(), dict(result.fed.memories()))
    rows = len(result.history)
    result.place(newcomers())
    assert torch.equal(result.state.models, before[0])
    assert torch.equal(result.state.assign, before[1])
    assert dict(result.fed.memories()) == before[2]
    assert (len(result.history), len(result.fed.names)) == (rows, 8)


def test_each_newcomer_is_placed_as_if_it_came_alone() -> None:
    together, alone = finished().place(newcomers()), finished().place(people()[5])
    assert alone.clusters == {"5": together.clusters["5"]}
    assert torch.equal(alone.rows["5"], together.rows["5"])


@pytest.mark.parametrize("adapted", [False, True])
def test_its_model_is_the_one_that_was_scored(adapted: bool) -> None:
    placed = finished().place(newcomers())
    client = people()[8]
    with torch.no_grad():
        right = (placed.model("8", adapted)(client.x_test).argmax(1) == client.y_test).double()
    assert (placed.after if adapted else placed.before)["8"] == float(right.mean())
    assert torch.equal(placed.layout.row(placed.model(2, adapted)), placed.rows["8"][int(adapted)])


def test_accuracies_are_those_of_the_common_score() -> None:
    result, who = finished(), torch.arange(8, 12)
    placed = result.place(newcomers(), epochs=2)
    fed = joined(result, welcomed(newcomers(), result))
    assign = torch.cat([result.state.assign, torch.tensor(list(placed.clusters.values()))])
    state = replace(result.state, assign=assign)
    adapt = replace(result.method.solver, epochs=2)  # type: ignore[attr-defined]
    told = fed.at(state.round, "evaluate").ask(who, Score(adapt), state).values[..., 0]
    assert told[:, 0].tolist() == list(placed.before.values.values())
    assert told[:, 1].tolist() == list(placed.after.values.values())


def test_bytes_are_the_initial_model_down_and_its_final_layer_up() -> None:
    placed, layout = finished().place(newcomers()), finished().fed.layout
    head = layout.initial[layout.columns("head")]
    assert set(placed.bytes_down.values()) == {layout.initial.nbytes}
    assert set(placed.bytes_up.values()) == {head.nbytes}


def test_without_epochs_nobody_adapts() -> None:
    placed = finished().place(newcomers(), epochs=0)
    assert placed.before == placed.after
    assert torch.equal(*placed.rows["2"])


def test_a_method_that_adapts_its_clients_adapts_newcomers_so() -> None:
    tuned = adaptation(coterie.FedAvgFT(tune="head"), 3)
    assert tuned is not None
    assert (tuned.epochs, tuned.steps) == (3, 0)
    old = Population.of(list(people())[:2], classes=10)
    placed = fit(coterie.FedAvgFT(tune="head"), old, "mlp", rounds=1).place(newcomers()[0])
    before, after = placed.rows[str(NEW[0])]
    moved = (before != after).nonzero().flatten()
    assert len(moved)
    assert int(moved.min()) >= placed.layout.columns("head").start


@pytest.mark.parametrize("parts", [2, 4])
def test_arrays_may_come_alone_or_in_a_list(parts: int) -> None:
    c = people()[2]
    given = (c.x, c.y, c.x_test, c.y_test)[:parts]
    for form in (given, [given], [list(given)]):
        placed = finished().place(form, epochs=1)  # type: ignore[arg-type]
        assert placed.names == ("newcomer-0",)
        assert len(placed.before) == (1 if parts == 4 else 0), "no test set, no accuracy"
        assert placed.rows.keys() == {"newcomer-0"}


def test_what_cannot_join_is_refused() -> None:
    c = people()[2]
    for bad, word in (
        ([], "no newcomers"),
        (people()[0], "this name"),
        ([c, c], "this name"),
        ((c.x[:, :, :4], c.y), "(1, 4, 8), the run's have (1, 8, 8)"),
        ((c.x, c.y + 10), "with 10 classes"),
    ):
        with pytest.raises(DataError) as caught:
            finished().place(bad)  # type: ignore[arg-type]
        assert word in str(caught.value)


def test_a_method_that_moves_others_is_refused() -> None:
    class Restless(FedClust):
        def place(self, state: State, fed: Any) -> State:
            return replace(state, assign=torch.zeros_like(state.assign))

    with pytest.raises(ValueError, match="it moved"):
        place(replace(finished(), method=Restless()), newcomers())


@ALL
def test_every_method_has_a_place_for_newcomers(name: str) -> None:
    public, group = torch.randn(12, tiny.FEATURES), [0, 0, 0, 0, 1, 1, 1]  # the oracle is told
    old = Population.of(tiny.clients(8)[:7], tiny.CLASSES, group=group, public=public)
    result = fit(method(name), old, tiny.network(), rounds=3)
    placed = result.place(tiny.clients(8)[7], epochs=1)
    assert placed.before.values.keys() == {"7"}
    assert placed.clusters.keys() == ({"7"} if placed.kind == "clustered" else set())
    assert torch.isfinite(placed.rows["7"]).all()
    assert not torch.equal(*placed.rows["7"])


KNOWN = Data("known", torch.arange(12.0)[:, None], torch.arange(12) % 3, ("ant", "bee", "cat"))


def arrived(data: Data, known: Data = KNOWN, **options: Any) -> list[Client]:
    options = {"name": "new", "test_share": 0.25, "seed": 0} | options
    return list(arrivals(data, known, Scaler.of(known), **options))


def test_newcomers_are_scaled_by_the_numbers_of_the_run() -> None:
    (client,) = arrived(replace(KNOWN, x=KNOWN.x[8:], y=KNOWN.y[8:]), test_share=0.0)
    assert torch.equal(client.x, scale(KNOWN).x[8:])


def test_classes_are_matched_by_name() -> None:
    other = Data("other", torch.zeros(3, 1), torch.tensor([0, 1, 0]), ("cat", "bee", "dog"))
    assert arrived(other, test_share=0.0)[0].y.tolist() == [2, 1, 2], "nobody holds the dog"
    with pytest.raises(DataError, match="no class 'dog'"):
        arrived(replace(other, y=torch.tensor([0, 1, 2])))


def test_a_number_is_a_position_only_where_the_run_has_words() -> None:
    other = Data("other", torch.zeros(2, 1), torch.tensor([0, 1]), ("0", "2"))
    assert arrived(other, test_share=0.0)[0].y.tolist() == [0, 2]
    with pytest.raises(DataError, match="no class '0'"):
        arrived(other, replace(KNOWN, classes=("1", "2", "3")))


def test_labels_that_start_at_1_are_the_classes_of_these_names() -> None:
    ones = replace(KNOWN, classes=("1", "2", "3"))
    other = Data("other", torch.zeros(3, 1), torch.tensor([0, 1, 0]), ("1", "3"))
    assert arrived(other, ones, test_share=0.0)[0].y.tolist() == [0, 2, 0]

    x, y = torch.zeros(3, 1), np.array([1, 3, 1])
    held, _ = numbered(quarters((x, y), "new"), ones.classes, "new")
    assert held.tolist() == [0, 2, 0]
    held, _ = numbered(quarters((x, y - 1), "new"), ("ant", "bee", "cat"), "new")
    assert held.tolist() == [0, 2, 0], "of a run that has words, a number is a place among them"


def test_each_owner_is_a_newcomer() -> None:
    owner = torch.tensor([7] * 8 + [3] * 4)
    three, seven = arrived(replace(KNOWN, owner=owner))
    assert (three.name, seven.name) == ("new-3", "new-7")
    assert (len(three), len(three.y_test), len(seven), len(seven.y_test)) == (3, 1, 6, 2)
    assert (
        sorted(torch.cat([three.x, three.x_test])[:, 0].tolist()) == scale(KNOWN).x[8:, 0].tolist()
    )


def test_a_test_set_that_is_brought_is_used() -> None:
    brought = replace(KNOWN, x_test=torch.tensor([[5.0]]), y_test=torch.tensor([2]))
    (client,) = arrived(brought)
    assert (len(client), client.y_test.tolist()) == (12, [2])
    assert torch.equal(client.x_test, scale(KNOWN).x[5:6])


def test_one_sample_is_for_training() -> None:
    (client,) = arrived(replace(KNOWN, x=KNOWN.x[:1], y=KNOWN.y[:1]), test_share=1.0)
    assert (len(client), len(client.y_test)) == (1, 0)


def test_samples_of_another_shape_are_refused_with_both_shapes() -> None:
    with pytest.raises(DataError, match=r"\(2,\), the run's \(1,\)"):
        arrived(replace(KNOWN, x=torch.zeros(12, 2)))


def test_an_epoch_of_adaptation_is_as_long_for_every_method() -> None:
    solver = Solver(batch=8, steps=20)
    methods = (coterie.FedAvg(solver), coterie.FedDSMIC(solver), coterie.PerFedAvg(solver))
    for found in (adaptation(m, 3) for m in methods):
        assert found is not None
        assert (found.batch, found.epochs, found.steps, found.meta) == (8, 3, 0, 0.0)
    assert adaptation(coterie.FedAvg(solver), 0) is None
