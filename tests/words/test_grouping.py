from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from sklearn.metrics import silhouette_score
from torch import Tensor

from coterie.words import grouping
from coterie.words.distance import cosine, l2

few = settings(max_examples=12, deadline=None, derandomize=True)
seeds = st.integers(0, 10_000)
LINKAGES = ["average", "single", "complete"]


def rng(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def rows(seed: int, n: int, P: int = 6) -> Tensor:
    return torch.randn(n, P, generator=rng(seed)).double()


def planted(seed: int, n: int = 20, k: int = 3, apart: float = 20.0) -> tuple[Tensor, Tensor]:
    """Rows around k far centres, and whose is which."""
    truth = torch.arange(n) % k
    return apart * torch.eye(k, 6).double()[truth] + rows(seed, n), truth


def same(a: Tensor, b: Tensor) -> bool:
    """The same groups, whatever they are called."""
    return torch.equal(grouping.canonical(a), grouping.canonical(b))


LABELLERS = {
    "cut": lambda D: grouping.cut(D, float(D.median())),
    "cut_k": lambda D: grouping.cut_k(D, 3),
    "auto_cut": lambda D: grouping.auto_cut(D).labels,
    "exemplars": lambda D: grouping.exemplars(D).labels,
    "bipartition": lambda D: grouping.bipartition(-D)[0],
}
labellers = pytest.mark.parametrize("label", LABELLERS.values(), ids=LABELLERS)


@labellers
@few
@given(seed=seeds)
def test_relabelling_clients_relabels_the_groups(label, seed):
    D = l2(planted(seed)[0])
    p = torch.randperm(20, generator=rng(seed))
    assert same(label(D[p][:, p]), label(D)[p])


@labellers
@few
@given(seed=seeds, scale=st.sampled_from([1e-6, 0.5, 1e6]))
def test_the_unit_of_distance_does_not_matter(label, seed, scale):
    D = l2(planted(seed)[0])
    assert torch.equal(label(scale * D), label(D))


@labellers
@few
@given(seed=seeds)
def test_labels_are_canonical(label, seed):
    labels = label(l2(rows(seed, 9)))
    assert torch.equal(grouping.canonical(labels), labels)


@labellers
@pytest.mark.row(22, counts="odd clusterings")
def test_one_client_is_one_group(label):
    assert label(torch.zeros(1, 1)).tolist() == [0]


@labellers
@pytest.mark.row(22, counts="odd clusterings")
def test_identical_clients_can_be_grouped(label):
    labels = label(torch.zeros(5, 5))
    assert labels.shape == (5,)
    assert int(labels.min()) == 0


@labellers
@pytest.mark.row(22, counts="odd clusterings")
def test_two_clients_can_be_grouped(label):
    assert label(torch.tensor([[0.0, 7.0], [7.0, 0.0]])).tolist() in ([0, 0], [0, 1])


@labellers
@pytest.mark.parametrize(
    "bad", [torch.full((3, 3), torch.nan), torch.zeros(2, 3), torch.zeros(0, 0), torch.zeros(3)]
)
@pytest.mark.row(22, counts="odd clusterings")
def test_what_is_no_matrix_of_distances_is_refused(label, bad):
    with pytest.raises(ValueError, match=r"must|NaN"):
        label(bad)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (torch.ones(3, 3), "similarity"),
        (torch.tensor([[0.0, 1.0], [2.0, 0.0]]), "symmetric"),
        (torch.tensor([[0.0, -1.0], [-1.0, 0.0]]), "negative"),
    ],
)
def test_a_matrix_that_holds_no_distances_is_told_so(bad, said):
    with pytest.raises(ValueError, match=said):
        grouping.tree(bad)


# labels


@few
@given(st.lists(st.integers(-1, 5), max_size=20))
def test_canonical_is_idempotent_and_counts_in_order_of_appearance(values):
    labels = grouping.canonical(torch.tensor(values, dtype=torch.long))
    assert torch.equal(grouping.canonical(labels), labels)
    seen = list(dict.fromkeys(labels[labels >= 0].tolist()))
    assert seen == list(range(len(seen)))
    for a, b in itertools.combinations(range(len(values)), 2):
        assert (values[a] == values[b]) == (labels[a] == labels[b])


@few
@given(seed=seeds, n=st.integers(1, 12))
def test_everybody_is_with_whom_they_point_at(seed, n):
    parent = torch.randint(0, n, (n,), generator=rng(seed))
    labels = grouping.components(parent)
    assert torch.equal(labels, labels[parent])


def test_pointing_at_oneself_is_being_alone():
    assert grouping.components(torch.arange(4)).tolist() == [0, 1, 2, 3]


@pytest.mark.row(22, counts="odd clusterings")
def test_infinite_costs_lose_and_nan_is_refused():
    assert grouping.closest(torch.tensor([[torch.inf, 5.0]])).tolist() == [1]
    with pytest.raises(ValueError, match="NaN"):
        grouping.closest(torch.tensor([[torch.nan, 5.0]]))


@few
@given(seed=seeds, k=st.integers(1, 6))
def test_each_centre_is_nearest_to_itself(seed, k):
    centres = rows(seed, k)
    assert grouping.nearest(centres, centres).tolist() == list(range(k))


@few
@given(seed=seeds)
def test_a_member_at_no_distance_from_its_far_group_is_nearest_to_it(seed):
    x, truth = planted(seed)
    assert torch.equal(grouping.nearest_group(l2(x), truth), truth)


@few
@given(seed=seeds)
def test_the_nearest_group_does_not_depend_on_the_order_of_members_nor_skips_a_label(seed):
    cost, labels = rows(seed, 5, 8).abs(), 2 * (torch.arange(8) % 3)
    p = torch.randperm(8, generator=rng(seed))
    found = grouping.nearest_group(cost, labels)
    assert torch.equal(grouping.nearest_group(cost[:, p], labels[p]), found)
    means = torch.stack([cost[:, labels == c].mean(1) for c in (0, 2, 4)], 1)
    assert torch.equal(found, 2 * means.argmin(1))


@few
@given(seed=seeds, k=st.integers(2, 5))
def test_the_silhouette_is_scikit_learns(seed, k):
    D = l2(rows(seed, 12))
    labels = torch.cat([torch.arange(k), torch.randint(0, k, (12 - k,), generator=rng(seed))])
    expected = silhouette_score(D.numpy(), labels.numpy(), metric="precomputed")
    assert grouping.silhouette(D, labels) == pytest.approx(expected)


def test_everybody_alone_or_all_together_has_no_silhouette():
    D = l2(rows(0, 5))
    assert grouping.silhouette(D, torch.arange(5)) == 0
    assert grouping.silhouette(D, torch.full((5,), 3)) == 0
    assert grouping.silhouette(torch.zeros(4, 4), torch.tensor([0, 0, 1, 1])) == 0


@few
@given(seed=seeds)
def test_the_guard_keeps_clear_groups_and_gives_up_drawn_ones(seed):
    x, truth = planted(seed)
    assert torch.equal(grouping.guard(l2(x), truth).labels, truth)
    drawn = grouping.guard(l2(rows(seed, 20)), torch.arange(20) % 4)
    assert (drawn.labels == 0).all()
    assert not drawn.kept


# trees


@pytest.mark.parametrize("linkage", LINKAGES)
@few
@given(seed=seeds, quantile=st.floats(0, 1))
def test_a_cut_is_scipys(linkage, seed, quantile):
    D = l2(rows(seed, 12))
    threshold = float(D.flatten().quantile(quantile))
    expected = fcluster(grouping.tree(D, linkage).numpy(), threshold, "distance")
    assert same(grouping.cut(D, threshold, linkage), torch.from_numpy(expected).long())


@pytest.mark.parametrize("linkage", LINKAGES)
@few
@given(seed=seeds, k=st.integers(1, 15))
@pytest.mark.row(22, counts="odd clusterings")
def test_a_cut_into_k_has_k_groups_even_with_ties(linkage, seed, k):
    D = l2(torch.randint(0, 2, (10, 3), generator=rng(seed)).double())
    assert int(grouping.cut_k(D, k, linkage).max()) + 1 == min(k, 10)


def test_an_unknown_linkage_and_a_senseless_threshold_are_refused():
    with pytest.raises(ValueError, match="linkage must be one of"):
        grouping.tree(torch.zeros(2, 2), "ward")
    with pytest.raises(ValueError, match="threshold"):
        grouping.cut(torch.zeros(2, 2), float("nan"))
    with pytest.raises(ValueError, match="at least 1"):
        grouping.cut_k(torch.zeros(2, 2), 0)


@few
@given(seed=seeds, k=st.integers(2, 5))
def test_the_automatic_cut_finds_planted_groups(seed, k):
    x, truth = planted(seed, k=k)
    found = grouping.auto_cut(l2(x))
    assert (found.labels.tolist(), found.k) == (truth.tolist(), k)
    assert torch.equal(grouping.cut(l2(x), found.threshold), found.labels)


@few
@given(seed=seeds)
def test_the_automatic_cut_leaves_one_cloud_whole(seed):
    found = grouping.auto_cut(l2(rows(seed, 20, P=200)))
    assert (found.k, found.labels.sum()) == (1, 0)


def test_lone_clients_are_attached_only_if_asked():
    x = torch.tensor([0.0, 1, 2, 100, 101, 102, 160]).double()
    D = (x[:, None] - x).abs()
    assert grouping.auto_cut(D).labels.tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert grouping.auto_cut(D, attach=False).labels.tolist() == [0, 0, 0, 1, 1, 1, 2]


def test_groups_of_identical_clients_have_an_infinitely_clear_cut():
    x = torch.tensor([0.0, 0, 0, 5, 5, 5]).double()
    found = grouping.auto_cut((x[:, None] - x).abs())
    assert (found.labels.tolist(), found.ratio) == ([0, 0, 0, 1, 1, 1], float("inf"))


@pytest.mark.parametrize("linkage", LINKAGES)
@few
@given(seed=seeds)
def test_agglomeration_prefers_a_count_to_a_threshold_to_the_gap(linkage, seed):
    D = l2(planted(seed)[0])
    t = float(D.median())
    by_count = grouping.agglomerate(D, t, 7, linkage)
    assert torch.equal(by_count, grouping.cut_k(D, 7, linkage))
    by_threshold = grouping.agglomerate(D, t, linkage=linkage)
    assert torch.equal(by_threshold, grouping.cut(D, t, linkage))
    by_gap = grouping.agglomerate(D, linkage=linkage)
    assert torch.equal(by_gap, grouping.auto_cut(D, linkage).labels)


@pytest.mark.parametrize("linkage", LINKAGES)
@few
@given(seed=seeds)
def test_the_curve_says_what_each_cut_gives(linkage, seed):
    D = l2(torch.randint(0, 3, (9, 2), generator=rng(seed)).double())
    found = grouping.curve(D, linkage)
    for threshold, k, score in zip(*(vars(found).values()), strict=True):
        labels = grouping.cut(D, float(threshold), linkage)
        assert int(labels.max()) + 1 == int(k)
        assert grouping.silhouette(D, labels) == pytest.approx(float(score))


def test_the_curve_stops_at_the_most_groups_asked_for():
    assert grouping.curve(l2(rows(0, 9)), most=4).k.tolist() == [4, 3, 2, 1]


# splitting


@few
@given(seed=seeds, n=st.integers(2, 7))
def test_no_bipartition_has_a_less_similar_closest_pair(seed, n):
    S = cosine(rows(seed, n, P=3))
    labels, cross = grouping.bipartition(S)
    assert set(labels.tolist()) == {0, 1}
    worst = [
        float(S[mask][:, ~mask].max())
        for bits in range(1, 2 ** (n - 1))
        for mask in [torch.tensor([bool(bits >> i & 1) for i in range(n)])]
    ]
    assert cross == pytest.approx(min(worst))


@few
@given(seed=seeds)
def test_a_group_that_moves_together_is_congruent(seed):
    together = rows(seed, 1).expand(5, -1)
    found = grouping.incongruence(together, torch.ones(5), eps1=0.4, eps2=0.6)
    assert found.mean_norm == pytest.approx(found.max_norm)
    assert not found.split


@few
@given(st.floats(-1, 1), st.floats(0, 1))
def test_more_similar_groups_are_not_easier_to_separate(cross, gamma):
    assert grouping.separable(cross, gamma) <= grouping.separable(-1.0, gamma)
    assert not grouping.separable(1.0, gamma)


@few
@given(seed=seeds, n=st.integers(2, 30), values=st.sampled_from([3, 10, 10**6]))
@pytest.mark.parametrize("kind", LINKAGES)
def test_few_are_merged_as_scipy_merges_them_to_the_bit_also_with_ties(kind, seed, n, values):
    square = torch.randint(values, (n, n), generator=rng(seed)).double() / 7
    square = square.triu(1) + square.triu(1).T
    expected = linkage(squareform(square.numpy(), checks=False), kind)
    assert torch.equal(grouping.tree(square, kind), torch.from_numpy(expected))
