"""k-means, groups by whatever is known, and the group nearest in the mean."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.core.rng import stream
from coterie.words.distance import l2
from coterie.words.grouping import (
    agglomerate,
    auto_cut,
    canonical,
    cut,
    cut_k,
    kmeans,
    nearest,
    nearest_group,
)
from coterie.words.mixing import mix, within


def blobs(seed: int, groups: int, each: int = 5, apart: float = 20.0) -> torch.Tensor:
    rng = stream(seed, "blobs")
    centres = apart * torch.eye(groups, 6)
    return (centres[:, None] + torch.randn(groups, each, 6, generator=rng)).flatten(0, 1)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), groups=st.integers(2, 4))
def test_k_means_finds_well_separated_groups(seed: int, groups: int) -> None:
    labels = kmeans(blobs(seed, groups), groups, stream(seed, "k"))
    truth = torch.arange(groups).repeat_interleave(5)
    assert torch.equal(canonical(labels), truth)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), k=st.integers(1, 12))
def test_k_means_ends_where_nobody_would_move(seed: int, k: int) -> None:
    rows = torch.randn(10, 3, generator=stream(seed, "rows"))
    labels = kmeans(rows, k, stream(seed, "k"))
    used = canonical(labels)
    means = mix(within(used, torch.ones(10), int(used.max()) + 1), rows)
    assert torch.equal(canonical(nearest(rows, means)), used)


def test_equal_rows_are_one_group() -> None:
    labels = kmeans(torch.ones(4, 2), 3, stream(0, "k"))
    assert len(labels.unique()) == 1


def test_a_number_of_clusters_comes_before_a_threshold_before_the_distances() -> None:
    D = l2(blobs(0, 3))
    assert torch.equal(agglomerate(D, 1.0, 2), cut_k(D, 2))
    assert torch.equal(agglomerate(D, 1.0), cut(D, 1.0))
    assert torch.equal(agglomerate(D), auto_cut(D).labels)


def test_the_nearest_group_is_by_the_mean_and_not_by_the_nearest_member() -> None:
    cost = torch.tensor([[0.0, 10.0, 4.0, 4.0]])
    assert nearest_group(cost, torch.tensor([0, 0, 1, 1])).tolist() == [1]


def test_a_group_without_members_is_nobodys_nearest() -> None:
    assert nearest_group(torch.tensor([[5.0, 6.0]]), torch.tensor([1, 3])).tolist() == [1]
