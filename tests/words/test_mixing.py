from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from coterie.words.mixing import average, control, mix, move, normalised, step_norm, uniform, within

few = settings(max_examples=15, deadline=None, derandomize=True)
seeds = st.integers(0, 10_000)
counts = st.integers(1, 9)


def rng(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def rows(seed: int, m: int, P: int = 5, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(m, P, generator=rng(seed)).to(dtype)


def sizes(seed: int, m: int) -> Tensor:
    return torch.randint(1, 500, (m,), generator=rng(seed + 1)).double()


def labels(seed: int, m: int, k: int) -> Tensor:
    return torch.randint(0, k, (m,), generator=rng(seed + 2))


@few
@given(seed=seeds, m=st.integers(0, 9), k=counts)
@pytest.mark.row(10, counts="clusters that fell asleep")
def test_rows_of_within_sum_to_one_where_somebody_came_and_to_zero_elsewhere(seed, m, k):
    y = labels(seed, m, k)
    W = within(y, sizes(seed, m), k)
    came = torch.zeros(k).index_add_(0, y, torch.ones(m)) > 0
    torch.testing.assert_close(W.sum(1), came.double())


@few
@given(seed=seeds, m=counts, scale=st.floats(0.01, 1000))
def test_within_does_not_depend_on_the_unit_of_sizes(seed, m, scale):
    y, n = labels(seed, m, 3), sizes(seed, m)
    torch.testing.assert_close(within(y, scale * n, 3), within(y, n, 3))


@few
@given(seed=seeds, m=counts)
def test_average_is_within_one_group(seed, m):
    assert torch.equal(average(sizes(seed, m)), within(torch.zeros(m).long(), sizes(seed, m), 1))


def test_uniform_is_the_average_of_equals():
    assert torch.equal(uniform(3), average(torch.full((3,), 7)))


def test_nobody_holding_samples_weighs_nothing():
    assert average(torch.zeros(3)).tolist() == [[0, 0, 0]]


@few
@given(seed=seeds, m=counts, k=counts)
def test_mixing_within_groups_is_each_groups_weighted_mean(seed, m, k):
    x, n, y = rows(seed, m, dtype=torch.float64), sizes(seed, m), labels(seed, m, k)
    keep = rows(seed + 3, k, dtype=torch.float64)
    new = mix(within(y, n, k), x, keep)
    for c in range(k):
        own = y == c
        mean = (n[own, None] * x[own]).sum(0) / n[own].sum() if own.any() else keep[c]
        torch.testing.assert_close(new[c], mean)


@few
@given(seed=seeds, m=counts)
def test_permuting_the_answers_changes_nothing_but_rounding(seed, m):
    x, n, y = rows(seed, m), sizes(seed, m), labels(seed, m, 3)
    p = torch.randperm(m, generator=rng(seed))
    keep = rows(seed + 3, 3)
    torch.testing.assert_close(
        mix(within(y[p], n[p], 3), x[p], keep), mix(within(y, n, 3), x, keep)
    )


@few
@given(seed=seeds, m=counts)
def test_a_client_alone_gets_its_model_back_bit_for_bit(seed, m):
    x = rows(seed, m)
    x[:, 0] = -0.0
    new = mix(within(torch.arange(m), sizes(seed, m), m), x)
    assert torch.equal(new.view(torch.int32), x.view(torch.int32))


@pytest.mark.row(10, counts="clusters that fell asleep")
def test_a_group_nobody_came_for_keeps_its_bits():
    keep = torch.tensor([[-0.0, 0.1], [0.3, -0.0]])
    new = mix(within(torch.tensor([0]), torch.tensor([2.0]), 2), torch.ones(1, 2), keep)
    assert torch.equal(new[1].view(torch.int32), keep[1].view(torch.int32))


def test_when_nobody_answers_everything_is_kept():
    keep = rows(0, 3)
    new = mix(within(torch.zeros(0).long(), torch.zeros(0), 3), torch.zeros(0, 5), keep)
    assert torch.equal(new, keep)


@few
@given(seed=seeds, m=counts)
def test_only_the_named_columns_are_replaced(seed, m):
    keep, n, y = rows(seed + 3, 3), sizes(seed, m), labels(seed, m, 3)
    W = within(y, n, 3)
    whole = rows(seed, m)
    body = torch.tensor([0, 3])
    new = mix(W, whole[:, body], keep, columns=body)
    assert torch.equal(new[:, [1, 2, 4]], keep[:, [1, 2, 4]])
    torch.testing.assert_close(new[:, body], mix(W, whole, keep)[:, body])


def test_columns_may_be_a_slice():
    keep = rows(0, 2)
    x = rows(1, 2, 2)
    W = torch.eye(2).double()
    by_slice = mix(W, x, keep, columns=slice(1, 3))
    assert torch.equal(by_slice, mix(W, x, keep, columns=torch.tensor([1, 2])))


def test_mixing_does_not_write_into_what_it_was_given():
    x, keep = rows(0, 3), rows(1, 3)
    before = x.clone(), keep.clone()
    mix(torch.eye(3).double(), x, keep).zero_()
    mix(torch.eye(3).double(), x[:, :2], keep, columns=slice(0, 2)).zero_()
    mix(torch.zeros(3, 3).double(), x, keep).zero_()
    assert torch.equal(x, before[0])
    assert torch.equal(keep, before[1])


def test_a_float64_matrix_mixes_float32_rows_into_float32():
    assert mix(average(torch.ones(2)), rows(0, 2)).dtype == torch.float32


@pytest.mark.parametrize(
    ("W", "x", "keep", "columns", "said"),
    [
        (torch.ones(1, 2), torch.ones(3, 4), None, None, "mixes 2 rows, but 3 came"),
        (torch.zeros(1, 2), torch.ones(2, 4), None, None, "keep"),
        (torch.ones(1, 2), torch.ones(2, 4), torch.ones(2, 4), None, "must hold 1 models"),
        (torch.ones(1, 2), torch.ones(2, 4), torch.ones(1, 5), None, "there are 5 to fill"),
        (torch.ones(1, 2), torch.ones(2, 4), torch.ones(1, 5), slice(3), "there are 3 to fill"),
        (torch.ones(1, 2), torch.ones(2, 4), None, slice(4), "keep"),
        (torch.ones(1, 2), torch.full((2, 4), torch.nan), None, None, "rows holds NaN"),
        (torch.full((1, 2), torch.nan), torch.ones(2, 4), None, None, "W holds NaN"),
    ],
)
def test_what_cannot_be_mixed_is_refused(W, x, keep, columns, said):
    with pytest.raises(ValueError, match=said):
        mix(W, x, keep, columns)


@pytest.mark.parametrize(
    ("y", "n", "said"),
    [
        ([0, 3], [1.0, 1.0], "below 3"),
        ([0, -1], [1.0, 1.0], "place everybody"),
        ([0, 1], [1.0, -1.0], "sizes must not be negative"),
        ([0, 1], [1.0, float("nan")], "sizes holds NaN"),
        ([0, 1], [1.0], "sizes must be"),
    ],
)
def test_labels_and_sizes_that_make_no_sense_are_refused(y, n, said):
    with pytest.raises(ValueError, match=said):
        within(torch.tensor(y), torch.tensor(n), 3)


@few
@given(seed=seeds, m=counts)
def test_a_full_step_along_the_average_is_the_average(seed, m):
    x, W = rows(seed, m, dtype=torch.float64), average(sizes(seed, m))
    torch.testing.assert_close(move(W, x, rows(seed + 3, 1)[0].double()), mix(W, x)[0])


def test_no_rate_and_no_answers_do_not_move():
    start = rows(0, 1)[0]
    assert torch.equal(move(uniform(2), rows(1, 2), start, rate=0.0), start)
    assert torch.equal(move(uniform(0), torch.zeros(0, 5), start), start)


@few
@given(tau=st.integers(0, 60), rho=st.sampled_from([0.0, 0.5, 0.9]))
def test_step_norm_is_the_sum_it_stands_for(tau, rho):
    expected = sum((1 - rho**k) / (1 - rho) for k in range(1, tau + 1))
    assert float(step_norm(torch.tensor([tau]), rho)[0]) == pytest.approx(expected)


@few
@given(seed=seeds, m=counts, tau=st.integers(1, 40))
def test_equal_numbers_of_steps_make_fednova_fedavg(seed, m, tau):
    n = sizes(seed, m)
    torch.testing.assert_close(normalised(n, torch.full((m,), float(tau))), average(n))


def test_a_client_that_made_no_step_counts_for_nothing_in_fednova():
    W = normalised(torch.tensor([1.0, 1.0]), torch.tensor([0.0, 4.0]))
    assert W[0, 0] == 0
    assert W.isfinite().all()


@few
@given(seed=seeds, m=counts)
def test_with_everybody_drawn_the_control_variate_moves_by_the_mean_change(seed, m):
    c, changes = rows(seed, 1)[0], rows(seed + 1, m)
    torch.testing.assert_close(control(c, changes, m), c + changes.mean(0))


def test_more_changes_than_clients_are_refused():
    with pytest.raises(ValueError, match="3 changes from 2 clients"):
        control(torch.zeros(5), torch.zeros(3, 5), 2)
