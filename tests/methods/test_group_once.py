"""Among very many clients some are grouped, and the others join them as newcomers would."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from coterie.core.errors import ConfigError
from coterie.core.layout import Layout
from coterie.core.types import Replies, State
from coterie.engines.front import Front
from coterie.methods import find
from coterie.methods.fedclust import FedClust
from coterie.methods.group_once import kept, landmarks
from coterie.runs.measure import distinct, fit
from coterie.tasks.solver import Solver
from tests.methods.planted import groups_of, interleaved, states, subspaces
from tests.tiny import CLASSES, client, federation, network

SOLVER = Solver(lr=0.1, batch=8, epochs=3)
METHODS: dict[str, tuple[dict[str, Any], int]] = {  # settings, rounds until there are clusters
    "fedclust": ({}, 0),
    "kin": ({}, 0),
    "autocfl": ({"latest": 1}, 1),
    "flhc": ({"rounds_before": 0, "clusters": 3}, 1),
    "cflgt": ({"pretrain": 0, "preference": "silhouette"}, 1),
    "fedsem": ({"clusters": 3}, 1),
    "feddsmic": ({"clusters": 3}, 1),
}


def method(name: str, **settings: Any) -> Any:
    cls: Any = find(name)
    return cls(solver=SOLVER, **METHODS[name][0], **settings)


def replies(m: int) -> Replies:
    values = torch.arange(float(m))[:, None]
    return Replies(2 * torch.arange(m), values, torch.ones(m), {"loss": values[:, 0]})


def skewed(n: int) -> tuple[Front, list[int]]:
    """Clients of two groups, in turns, that hold two of the four labels each."""
    truth = [i % 2 for i in range(n)]
    people = []
    for i, group in enumerate(truth):
        c = client(i, n, groups=1, samples=200)
        mine = c.y // 2 == group
        people.append(replace(c, x=c.x[mine], y=c.y[mine]))
    return Front(people, Layout(network()), classes=CLASSES, seed=7), truth


@pytest.mark.parametrize("name", METHODS)
def test_landmarks_find_the_same_planted_groups(name: str) -> None:
    plant = skewed if name == "cflgt" else interleaved
    fed, truth = plant(36)
    rounds = METHODS[name][1]
    every = states(method(name, landmarks=0), fed, rounds)[-1]
    assert groups_of(every) == truth  # or there is nothing to compare with
    for most in (12, 18):
        some = states(method(name, landmarks=most), plant(36)[0], rounds)[-1]
        assert groups_of(some) == truth


def test_landmarks_find_the_same_subspaces() -> None:
    fed, truth = subspaces(16)
    cls: Any = find("pacfl")
    assert groups_of(cls(SOLVER, landmarks=6).init(fed.at(-1))) == truth


@pytest.mark.parametrize("name", ["fedclust", "kin"])
def test_a_limit_that_nobody_reaches_changes_nothing(name: str) -> None:
    fed = federation()
    a, b, c = (method(name, landmarks=most).init(fed.at(-1)) for most in (0, 8, 2000))
    assert torch.equal(a.assign, b.assign)
    assert torch.equal(a.models, c.models)


def test_landmarks_are_drawn_once_for_an_address_and_everybody_is_on_one_side() -> None:
    fed = federation(8)
    r = replies(8)
    some, others = landmarks(r, 3, fed.at(-1))
    assert len(some.clients) == 3
    assert sorted([*some.clients.tolist(), *others.clients.tolist()]) == r.clients.tolist()
    for part in (some, others):
        assert torch.equal(2 * part.values[:, 0].long(), part.clients)
        assert torch.equal(part.extra["loss"], part.values[:, 0])
    again, _ = landmarks(r, 3, fed.at(-1))
    assert torch.equal(again.clients, some.clients)
    draws = {tuple(landmarks(r, 3, fed.at(t))[0].clients.tolist()) for t in range(9)}
    assert len(draws) > 1


@pytest.mark.parametrize("most", [0, 8, 9])
def test_everybody_is_a_landmark_within_the_limit(most: int) -> None:
    some, others = landmarks(replies(8), most, federation().at(-1))
    assert len(some.clients) == 8
    assert not len(others.clients)


def test_a_state_keeps_the_distances_of_a_thousand_clients_at_most() -> None:
    n = 1200
    x = torch.arange(float(n))
    memory = kept((x[:, None] - x).abs(), torch.arange(n), n)
    who = memory["compared"]
    assert len(who) == len(memory["distance"]) == 1000
    assert torch.equal(memory["distance"], (x[who][:, None] - x[who]).abs())


def test_the_silhouette_of_many_is_that_of_those_who_were_compared() -> None:
    truth = torch.arange(1200) % 2
    x = 100.0 * truth + torch.rand(1200, generator=torch.Generator().manual_seed(0))
    memory = kept((x[:, None] - x).abs(), torch.arange(1200), 1200)
    state = State(torch.zeros(2, 1), truth, memory=memory)
    assert (distinct(state) or 0) > 0.98
    assert (distinct(replace(state, assign=torch.arange(1200) // 600)) or 0) < 0.1


def test_measures_of_a_clustering_follow_whoever_moves_and_what_was_kept() -> None:
    truth = torch.tensor([0, 0, 1, 1])
    x = torch.tensor([0.0, 1.0, 50.0, 51.0])
    memory = kept((x[:, None] - x).abs(), torch.arange(4), 4)
    state = State(torch.zeros(2, 1), truth, memory=memory)
    moved = replace(state, assign=torch.tensor([0, 0, 0, 1]))
    other = replace(state, memory=kept((x[:, None] - x).abs().sqrt(), torch.arange(4), 4))
    right, worse, again = (fit(s, truth) for s in (state, moved, state))
    assert right == again
    assert right["ari"] == 1.0 > worse["ari"]
    assert fit(other, truth)["silhouette"] < right["silhouette"]
    assert fit(state, truth.flip(0) * 0)["ari"] < 1.0
    assert "ari" not in fit(state, None)


def test_a_newcomer_of_fedclust_is_placed_by_the_distance_that_made_the_clusters() -> None:
    fed = federation()
    first = fed.layout.initial[fed.layout.columns("head")]
    one, other = torch.zeros(2, len(first))
    one[0], other[1] = 1.0, 1.0
    # Along `other` but near `one` in the plane: the angle says 1, the distance says 0.
    centres = first + torch.stack([one, 50 * other])
    theta = Replies(torch.tensor([0]), (first + 2 * other)[None], torch.ones(1))
    state = State.nobody(fed.layout.initial.repeat(2, 1), 8).hold(centres=centres)
    assert FedClust().join(state, theta, fed).assign[0] == 1
    assert FedClust.paper(clusters=2).join(state, theta, fed).assign[0] == 0


def test_the_papers_fedclust_wants_a_cut() -> None:
    with pytest.raises(ConfigError, match="for you to choose"):
        FedClust.paper()
    assert FedClust.paper(threshold=2.0) == FedClust(threshold=2.0, distance="l2", warmup="epochs")
