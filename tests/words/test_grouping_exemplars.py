from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from coterie.words import grouping
from coterie.words.distance import l2
from coterie.words.grouping import propagation
from tests.words.test_grouping import planted, rng, rows, same

few = settings(max_examples=12, deadline=None, derandomize=True)
seeds = st.integers(0, 10_000)


@few
@given(seed=seeds, k=st.integers(2, 5))
def test_each_exemplar_stands_for_its_own_group(seed, k):
    found = grouping.affinity_propagation(-l2(planted(seed, k=k)[0]), damping=0.7)
    assert found.labels[found.exemplars].tolist() == list(range(len(found.exemplars)))


@few
@given(seed=seeds)
def test_a_reluctant_preference_makes_one_group_and_an_eager_one_makes_many(seed):
    S = -l2(rows(seed, 8))
    assert len(grouping.affinity_propagation(S, 0.7, preference=-1e6).exemplars) == 1
    assert len(grouping.affinity_propagation(S, 0.7, preference=0.0).exemplars) == 8


def test_a_run_cut_short_has_no_labels():
    found = grouping.affinity_propagation(-l2(rows(0, 8)), max_iter=3)
    assert not found.converged
    assert (found.labels == -1).all()
    assert len(found.exemplars) == 0


def test_senseless_damping_is_refused():
    with pytest.raises(ValueError, match="damping"):
        grouping.affinity_propagation(torch.zeros(3, 3), damping=1.0)


@few
@given(seed=seeds, k=st.integers(2, 5))
def test_the_preference_with_the_best_silhouette_finds_planted_groups(seed, k):
    x, truth = planted(seed, k=k)
    assert same(grouping.exemplars(l2(x), "silhouette").labels, truth)


def test_an_unknown_preference_is_refused():
    with pytest.raises(ValueError, match="preference"):
        grouping.exemplars(torch.zeros(3, 3), "mean")


def test_damping_grows_until_a_run_converges(monkeypatch):
    tried = []
    real = propagation.affinity_propagation

    def stubborn(S: Tensor, damping: float, *rest: object) -> propagation.Exemplars:
        tried.append(damping)
        return real(S, damping, *rest[:1], 1000 if damping > 0.9 else 1)

    monkeypatch.setattr(propagation, "affinity_propagation", stubborn)
    found = grouping.exemplars(l2(planted(0)[0]))
    assert tried == [0.7, 0.9, 0.95]
    assert found.converged


@pytest.mark.row(22, counts="odd clusterings")
def test_without_convergence_everybody_is_in_one_group_around_the_medoid():
    x = torch.tensor([0.0, 1.0, 2.0, 3.0, 9.0]).double()
    found = grouping.exemplars((x[:, None] - x).abs(), max_iter=2)
    assert (found.labels.tolist(), found.exemplars.tolist()) == ([0, 0, 0, 0, 0], [2])
    assert not found.converged


@few
@given(seed=seeds, scale=st.floats(0.01, 100), power=st.sampled_from([1.0, 2.0]))
def test_hopkins_does_not_depend_on_scale_and_lies_in_the_unit_interval(seed, scale, power):
    X, even, sample = rows(seed, 12, 2), rows(seed + 1, 4, 2), torch.tensor([0, 5, 3, 9])
    h = grouping.hopkins(X, sample, even, power)
    assert 0 <= h <= 1
    assert grouping.hopkins(scale * X, sample, scale * even, power) == pytest.approx(h)


def test_one_point_or_one_place_tells_nothing():
    assert grouping.mean_hopkins(torch.zeros(1, 2), rng(0)) == 0.5
    assert grouping.mean_hopkins(torch.ones(30, 2), rng(0)) == 0.5


def test_clusters_have_a_higher_hopkins_than_even_points():
    even = torch.rand(100, 2, generator=rng(0))
    tight = planted(0, n=100, k=4, apart=200.0)[0]
    assert grouping.mean_hopkins(even, rng(1)) < 0.65
    assert grouping.mean_hopkins(tight, rng(1)) > 0.9


def test_equal_generators_draw_equal_hopkins():
    X = rows(0, 40)
    assert grouping.mean_hopkins(X, rng(3)) == grouping.mean_hopkins(X, rng(3))
    assert grouping.mean_hopkins(X, rng(3)) != grouping.mean_hopkins(X, rng(4))


SEEDERS = pytest.mark.parametrize("seeder", [grouping.farthest_first, grouping.kmeanspp])


@SEEDERS
@few
@given(seed=seeds, k=st.integers(1, 14))
def test_no_client_is_chosen_twice_before_all_are_chosen(seeder, seed, k):
    chosen = seeder(l2(rows(seed, 9)), k, rng(seed))
    assert len(chosen) == k
    assert len(set(chosen.tolist())) == min(k, 9)


@SEEDERS
@few
@given(seed=seeds)
def test_far_groups_each_get_a_centre(seeder, seed):
    x, truth = planted(seed, k=4, apart=1e6)
    assert sorted(truth[seeder(l2(x), 4, rng(seed))].tolist()) == [0, 1, 2, 3]


@SEEDERS
@pytest.mark.row(22, counts="odd clusterings")
def test_identical_clients_still_give_different_seeds(seeder):
    assert sorted(seeder(torch.zeros(4, 4), 4, rng(0)).tolist()) == [0, 1, 2, 3]


@SEEDERS
def test_the_generator_decides_the_first_seed(seeder):
    firsts = {int(seeder(l2(rows(0, 9)), 1, rng(s))[0]) for s in range(30)}
    assert len(firsts) > 3


def test_farthest_first_reads_distances_from_clients_to_centres():
    D = torch.zeros(3, 3)
    D[2, :2] = 5.0  # only client 2 is far from the others, not they from it
    assert 2 in grouping.farthest_first(D, 2, rng(0)).tolist()


@few
@given(seed=seeds, k=st.integers(1, 4))
def test_kmeans_finds_far_groups(seed, k):
    x, truth = planted(seed, k=k, apart=1e4)
    assert same(grouping.kmeans(x, k, rng(seed)), truth)


@few
@given(seed=seeds)
def test_kmeans_ends_where_nobody_is_nearer_to_another_mean(seed):
    x = rows(seed, 40, 2)
    labels = grouping.kmeans(x, 3, rng(seed))
    means = torch.stack([x[labels == c].mean(0) for c in range(3)])
    assert torch.equal(grouping.nearest(x, means), labels)
