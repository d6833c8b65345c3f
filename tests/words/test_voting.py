from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from coterie.words import voting
from coterie.words.distance import l2
from coterie.words.grouping import canonical

few = settings(max_examples=15, deadline=None, derandomize=True)
seeds = st.integers(0, 10_000)


def rng(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def matrix(seed: int, n: int = 9) -> Tensor:
    return l2(torch.randn(n, 4, generator=rng(seed)).double())


def sizes(seed: int, n: int = 9) -> Tensor:
    """All different, so that no tie is broken by index."""
    return 10 * torch.randperm(n, generator=rng(seed)) + 7


@few
@given(seed=seeds, alpha=st.floats(0.1, 2))
def test_epochs_never_fall_and_the_largest_client_never_gains(seed, alpha):
    E = 1 + 9 * torch.rand(9, generator=rng(seed))
    total, loss = torch.rand(2, 9, generator=rng(seed + 1))
    n = sizes(seed)
    new = voting.adjust_epochs(E, total, loss, n, alpha)
    assert (new >= E).all()
    assert new[n.argmax()] == E[n.argmax()]


@few
@given(seed=seeds)
def test_only_clients_with_more_loss_than_the_largest_gain(seed):
    total, loss = torch.rand(2, 9, generator=rng(seed))
    n = sizes(seed)
    gained = voting.adjust_epochs(torch.zeros(9), total, loss, n) > 0
    assert torch.equal(gained, total > total[n.argmax()])


def test_clients_as_large_as_the_largest_can_be_left_alone():
    lost, n = torch.tensor([1.0, 2.0, 2.0]), torch.tensor([9, 9, 3])
    both = voting.adjust_epochs(torch.zeros(3), lost, lost, n)
    smaller = voting.adjust_epochs(torch.zeros(3), lost, lost, n, only_smaller=True)
    assert (both > 0).tolist() == [False, True, True]
    assert (smaller > 0).tolist() == [False, False, True]


def test_a_largest_client_without_loss_divides_nothing_by_zero():
    lost = torch.tensor([0.0, 1.0])
    new = voting.adjust_epochs(torch.zeros(2), lost, lost, torch.tensor([8, 2]), alpha=0.5)
    assert new.tolist() == [0, 2]


def test_clients_without_samples_have_no_epochs_to_adjust():
    ones = torch.ones(2)
    with pytest.raises(ValueError, match="sizes must be positive"):
        voting.adjust_epochs(ones, ones, ones, torch.tensor([0, 3]))


@few
@given(st.floats(0, 100))
def test_whole_epochs_are_the_nearest_and_at_least_one(e):
    (whole,) = voting.whole_epochs(torch.tensor([e], dtype=torch.float64)).tolist()
    assert whole == 1 or abs(whole - e) <= 0.5


@few
@given(seed=seeds)
def test_the_last_cumulative_loss_is_the_sum(seed):
    history = torch.rand(4, 6, generator=rng(seed))
    torch.testing.assert_close(voting.cumulative(history)[-1], history.sum(0))


@few
@given(seed=seeds, shift=st.floats(-10, 10))
def test_the_variance_does_not_see_a_common_loss(seed, shift):
    losses = torch.rand(6, generator=rng(seed)).double()
    assert voting.variance(losses + shift) == pytest.approx(voting.variance(losses))


@few
@given(seed=seeds, t=st.integers(1, 12), scale=st.floats(0.1, 10))
def test_stopping_does_not_depend_on_the_unit_of_loss(seed, t, scale):
    V = torch.rand(t, generator=rng(seed)).double()
    assert voting.should_stop(scale * V) == voting.should_stop(V)


def test_it_stops_in_the_latest_round_at_last():
    falling = torch.arange(10.0, 0.0, -1)
    assert [voting.should_stop(falling[:t]) for t in (1, 4, 9, 10)] == [False, False, False, True]
    assert voting.should_stop(falling[:4], latest=4)


@few
@given(seed=seeds, include_self=st.booleans())
def test_everybody_is_in_its_own_group(seed, include_self):
    assert voting.demarcate(matrix(seed), include_self).diagonal().all()


@few
@given(seed=seeds)
def test_those_inside_a_group_are_nearer_than_those_outside(seed):
    D = matrix(seed)
    inside = voting.demarcate(D)
    assert (D.masked_fill(~inside, -1).amax(1) < D.masked_fill(inside, torch.inf).amin(1)).all()


@few
@given(seed=seeds)
def test_a_groups_votes_add_up_to_one(seed):
    inside = voting.demarcate(matrix(seed))
    S = voting.scores(inside, sizes(seed))
    assert float(S.sum()) == pytest.approx(len(inside))
    assert (S.sum(1) > 0).all()


@few
@given(seed=seeds)
def test_unweighted_votes_count_memberships(seed):
    inside = voting.demarcate(matrix(seed))
    S = voting.scores(inside, sizes(seed), weighted=False)
    assert torch.equal(S.sum(1), inside.sum(0).double())


OPTIONS = pytest.mark.parametrize(
    "options", [{}, {"weighted": False}, {"chain": False}, {"include_self": True}]
)


# unweighted votes tie, and ties go to the lowest index
@pytest.mark.parametrize("options", [{}, {"chain": False}, {"include_self": True}])
@few
@given(seed=seeds)
def test_relabelling_clients_relabels_the_vote(options, seed):
    D, n = matrix(seed), sizes(seed)
    p = torch.randperm(9, generator=rng(seed))
    permuted = voting.vote(D[p][:, p], n[p], **options).labels
    assert torch.equal(permuted, canonical(voting.vote(D, n, **options).labels[p]))


@OPTIONS
@few
@given(seed=seeds, scale=st.sampled_from([1e-3, 2.0, 1e3]))
def test_scaling_distances_or_sizes_changes_no_vote(options, seed, scale):
    D, n = matrix(seed), sizes(seed).double()
    expected = voting.vote(D, n, **options).labels
    assert torch.equal(voting.vote(scale * D, scale * n, **options).labels, expected)


@OPTIONS
def test_identical_clients_are_one_group(options):
    assert voting.vote(torch.zeros(5, 5), sizes(0, 5), **options).labels.tolist() == [0] * 5


@OPTIONS
def test_one_client_votes_for_itself(options):
    found = voting.vote(torch.zeros(1, 1), torch.tensor([3]), **options)
    assert (found.labels.tolist(), found.representatives.tolist()) == ([0], [0])


@few
@given(seed=seeds)
def test_far_groups_are_found(seed):
    x = torch.randn(12, 3, generator=rng(seed)) + 100 * (torch.arange(12) % 2)[:, None]
    found = voting.vote(l2(x), torch.randint(5, 50, (12,), generator=rng(seed)))
    assert found.labels.tolist() == [0, 1] * 6


def test_distances_and_sizes_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="NaN"):
        voting.vote(torch.full((3, 3), torch.nan), torch.ones(3))
    with pytest.raises(ValueError, match="sizes must be positive"):
        voting.vote(torch.zeros(3, 3), torch.tensor([1, 0, 2]))
    with pytest.raises(ValueError, match="sizes must be"):
        voting.vote(torch.zeros(3, 3), torch.ones(2))
