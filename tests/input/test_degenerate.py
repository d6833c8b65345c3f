"""Clients without samples, and clusters of what can hardly be clustered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import coterie as ct
from coterie.core.client import Client
from coterie.core.errors import NotFiniteError
from coterie.words import grouping
from tests.tiny import clients, network

SOLVER = ct.Solver(lr=0.1, batch=8)


@pytest.mark.row(20, counts="partitions and clients looked at")
def test_an_extreme_partition_of_a_hundred_leaves_nobody_without_samples(
    figure: Callable[..., None],
) -> None:
    people = ct.partition("digits", "dirichlet:0.01", clients=100)
    assert int(people.sizes.min()) >= 1
    assert any("fewer than" in note or "samples" in note for note in people.notes), people.notes
    figure("clients of the extreme partition", len(people))


@pytest.mark.row(20, counts="partitions and clients looked at")
def test_a_client_without_samples_is_named_before_anything_runs() -> None:
    them = clients(3)
    them[1] = Client(them[1].x[:0], them[1].y[:0], them[1].x_test, them[1].y_test, name="empty")
    with pytest.raises(ct.DataError, match="empty") as error:
        ct.Population.of(them, classes=4)
    assert error.value.exit == 3


@pytest.mark.row(20, counts="partitions and clients looked at")
def test_who_cannot_be_tested_has_no_accuracy_and_the_mean_is_of_the_others() -> None:
    them = clients(3)
    them[1] = Client(them[1].x, them[1].y, them[1].x_test[:0], them[1].y_test[:0], name="1")
    people = ct.Population.of(them, classes=4)
    told: list[dict[str, Any]] = []
    result = ct.fit(ct.FedAvg(SOLVER), people, network(), rounds=1, on_event=told.append)
    rows = [r for r in result.history if r.metric == "accuracy" and r.round == 1]
    assert {r.client for r in rows} == {"0", "2"}
    mean = result.history.whole(1, "before")["accuracy_mean"]
    assert mean == pytest.approx(sum(r.value for r in rows) / 2)
    assert [e["clients"] for e in told if e["event"] == "untested"] == [["1"]]


def made(n: int, seed: int, kind: str) -> torch.Tensor:
    """(n, 4) rows that are hard to tell apart, or to put together."""
    rows = torch.randn(n, 4, generator=torch.Generator().manual_seed(seed)).double()
    if kind == "identical":
        return rows[:1].repeat(n, 1)
    if kind == "pairs":
        return rows[torch.arange(n) // 2]
    if kind == "zero":
        return rows * 0
    return rows * {"tiny": 1e-150, "huge": 1e150, "plain": 1.0}[kind]


KINDS = ["identical", "pairs", "zero", "tiny", "huge", "plain"]
LABELLED: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "agglomerate": lambda D, k: grouping.agglomerate(D, clusters=k),
    "auto_cut": lambda D, k: grouping.auto_cut(D).labels,
    "cut": lambda D, k: grouping.cut(D, 1.0),
    "exemplars": lambda D, k: grouping.exemplars(D).labels,
    "bipartition": lambda D, k: grouping.bipartition(-D)[0],
}


@pytest.mark.row(22, counts="odd clusterings")
@pytest.mark.parametrize("way", LABELLED)
@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 7), k=st.integers(1, 12), seed=st.integers(0, 99), kind=st.sampled_from(KINDS)
)
def test_any_distances_have_defined_groups(way: str, n: int, k: int, seed: int, kind: str) -> None:
    rows = made(n, seed, kind)
    D = torch.cdist(rows, rows)
    D = (D + D.T) / 2
    D.fill_diagonal_(0)
    labels = LABELLED[way](D, k)
    assert labels.shape == (n,)
    assert 0 <= int(labels.min()) <= int(labels.max()) < max(n, 1)
    assert torch.equal(grouping.canonical(labels), labels)


@pytest.mark.row(22, counts="odd clusterings")
@pytest.mark.parametrize("way", LABELLED)
@pytest.mark.parametrize("n", [1, 2, 5])
def test_distances_that_are_no_numbers_are_refused_and_not_grouped(way: str, n: int) -> None:
    with pytest.raises(NotFiniteError) as error:
        LABELLED[way](torch.full((n, n), torch.nan), 2)
    assert error.value.exit == 6


METHODS = {
    "fedclust": ct.FedClust(SOLVER, clusters=9, warmup_epochs=1),
    "ifca": ct.IFCA(SOLVER, clusters=9),
    "autocfl": ct.AutoCFL(SOLVER),
    "kin": ct.Kin(SOLVER),
}


@pytest.mark.row(22, counts="odd clusterings")
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("name", METHODS)
def test_one_and_two_clients_are_clustered_into_more_groups_than_there_are(
    name: str, n: int
) -> None:
    told: list[dict[str, Any]] = []
    people = ct.Population.of(clients(n), classes=4)
    result = ct.fit(METHODS[name], people, network(), rounds=2, on_event=told.append)
    assert int(result.state.assign.min()) >= 0
    assert len(result.state.assign.unique()) <= n
    warned = [e["text"] for e in told if e["event"] == "warning"]
    assert any("more than there are clients" in text for text in warned) is (
        name in ("fedclust", "ifca")
    )
