from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import subspace_angles
from scipy.spatial.distance import cdist
from torch import Tensor
from torch.nn.functional import cross_entropy

from coterie.words import distance

few = settings(max_examples=12, deadline=None, derandomize=True)
seeds = st.integers(0, 10_000)
BETWEEN_ROWS = [
    distance.squared_l2,
    distance.l2,
    distance.scaled_l2,
    distance.cosine,
    distance.cosine_distance,
]


def rows(seed: int, n: int = 6, P: int = 5, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(n, P, generator=torch.Generator().manual_seed(seed)).to(dtype)


def shuffle(seed: int, n: int) -> Tensor:
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))


def of_trajectories(x: Tensor) -> Tensor:
    return distance.trajectories(x.reshape(len(x), 2, -1))


def of_subspaces(x: Tensor) -> Tensor:
    return distance.subspaces(x.reshape(len(x), 5, 2))


PAIRWISE = [*BETWEEN_ROWS, of_trajectories, of_subspaces]


@pytest.mark.parametrize("measure", PAIRWISE)
@few
@given(seed=seeds)
def test_relabelling_clients_relabels_the_matrix(measure, seed):
    x, p = rows(seed, P=10), shuffle(seed, 6)
    torch.testing.assert_close(measure(x[p]), measure(x)[p][:, p])


@pytest.mark.parametrize("measure", PAIRWISE)
@few
@given(seed=seeds)
def test_the_matrix_is_symmetric_to_the_bit(measure, seed):
    d = measure(rows(seed, n=37, P=10, dtype=torch.float32))
    assert torch.equal(d, d.T)


@pytest.mark.parametrize("measure", PAIRWISE)
def test_the_dtype_of_the_rows_is_kept(measure):
    for dtype in (torch.float32, torch.float64):
        assert measure(rows(0, P=10, dtype=dtype)).dtype == dtype


@pytest.mark.parametrize("measure", [m for m in PAIRWISE if m is not distance.cosine])
def test_identical_rows_are_exactly_zero_apart(measure):
    one = rows(3, n=1, P=10, dtype=torch.float32)
    x = torch.cat([one.expand(5, -1), rows(4, n=9, P=10, dtype=torch.float32)])
    tolerance = 1e-4 if measure is of_subspaces else 0
    assert float(measure(x)[:5, :5].abs().max()) <= tolerance


@pytest.mark.parametrize("seed", range(4))
def test_long_identical_rows_are_exactly_zero_apart(seed):
    x = torch.cat([3 + rows(seed, 1, 301).expand(7, -1), rows(seed + 9, 30, 301)])
    assert (distance.l2(x)[:7, :7] == 0).all()
    assert (distance.cross_l2(x[:7], x)[:, :7] == 0).all()


def test_distances_of_long_rows_are_symmetric_to_the_bit():
    d = distance.l2(rows(0, 37, 5001))
    assert torch.equal(d, d.T)


@pytest.mark.parametrize("measure", PAIRWISE)
def test_a_single_client_is_a_matrix_of_one(measure):
    assert measure(rows(0, n=1, P=10)).tolist() == [[1.0 if measure is distance.cosine else 0.0]]


@pytest.mark.parametrize("measure", PAIRWISE)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_rows_that_are_not_finite_are_refused(measure, bad):
    x = rows(0, P=10)
    x[2, 3] = bad
    with pytest.raises(ValueError, match="NaN or infinite"):
        measure(x)


@pytest.mark.parametrize("measure", BETWEEN_ROWS)
@pytest.mark.parametrize("bad", [torch.zeros(3), torch.zeros(0, 4), torch.zeros(2, 2).long()])
def test_what_is_not_rows_is_refused(measure, bad):
    with pytest.raises(ValueError, match="rows must"):
        measure(bad)


@few
@given(seed=seeds, n=st.integers(1, 12), P=st.integers(1, 40))
def test_l2_is_scipys(seed, n, P):
    x = rows(seed, n, P)
    torch.testing.assert_close(distance.l2(x), torch.from_numpy(cdist(x, x)), atol=1e-7, rtol=1e-9)


@few
@given(seed=seeds, m=st.integers(1, 7), k=st.integers(1, 7))
def test_cross_l2_is_a_block_of_l2(seed, m, k):
    x = rows(seed, m + k)
    torch.testing.assert_close(distance.cross_l2(x[:m], x[m:]), distance.l2(x)[:m, m:])


def test_cross_l2_of_nobody_is_empty():
    assert distance.cross_l2(torch.zeros(0, 3), torch.zeros(2, 3)).shape == (0, 2)


def test_cross_l2_refuses_rows_of_unequal_length():
    with pytest.raises(ValueError, match="unequal length: 3 and 4"):
        distance.cross_l2(torch.zeros(2, 3), torch.zeros(2, 4))


def test_nearly_identical_models_keep_their_distances_in_float32():
    x = rows(0, n=1, P=2000, dtype=torch.float32) + 1e-6 * rows(1, 8, 2000, torch.float32)
    exact = torch.from_numpy(cdist(x.double(), x.double())).float()
    torch.testing.assert_close(distance.l2(x), exact, rtol=1e-6, atol=0)


def test_a_diverged_client_does_not_spoil_the_distances_of_the_others():
    x = rows(0, 6, 50, torch.float32)
    far = torch.cat([x, torch.full((1, 50), 1e12)])
    torch.testing.assert_close(distance.l2(far)[:6, :6], distance.l2(x), rtol=1e-5, atol=1e-5)


def test_tiny_distances_do_not_underflow_in_float32():
    assert distance.l2(torch.tensor([[0.0], [1e-30]]))[0, 1] == pytest.approx(1e-30, abs=0)


def test_blocks_of_columns_add_up(monkeypatch):
    x = rows(0, 6, 50)
    whole = distance.l2(x)
    monkeypatch.setattr(distance, "_BLOCK", 30)
    torch.testing.assert_close(distance.l2(x), whole)


@few
@given(seed=seeds, scale=st.sampled_from([1e-30, 0.5, 3.0, 1e30]))
def test_cosine_does_not_depend_on_the_scale_of_a_row(seed, scale):
    x = rows(seed, dtype=torch.float32)
    y = x.clone()
    y[0] *= scale
    for measure in (distance.cosine, distance.cosine_distance):
        torch.testing.assert_close(measure(y), measure(x), rtol=1e-5, atol=1e-6)


@few
@given(seed=seeds)
def test_cosine_distance_is_one_minus_cosine(seed):
    x = rows(seed)
    torch.testing.assert_close(distance.cosine_distance(x), 1 - distance.cosine(x))


def test_small_angles_survive_in_float32():
    angle = distance.cosine_distance(torch.tensor([[1.0, 0.0], [1.0, 1e-4]]))[0, 1]
    assert angle == pytest.approx(5e-9, rel=1e-3)


@pytest.mark.row(21, counts="pairs of a method and odd data")
def test_a_row_of_zeros_is_at_cosine_distance_one_from_all_others():
    x = torch.tensor([[0.0, 0.0], [1.0, 2.0], [0.0, 0.0]])
    assert distance.cosine_distance(x).tolist() == [[0, 1, 1], [1, 0, 1], [1, 1, 0]]
    assert distance.cosine(x)[0].tolist() == [1, 0, 0]


@few
@given(seed=seeds)
def test_trajectories_do_not_care_which_axis_is_which(seed):
    T = rows(seed, 5, 8).reshape(5, 2, 4)
    torch.testing.assert_close(distance.trajectories(T.flip(1)), distance.trajectories(T))


@few
@given(seed=seeds, m=st.integers(1, 4))
def test_cross_trajectories_are_a_block_of_trajectories(seed, m):
    T = rows(seed, 6, 8).reshape(6, 2, 4)
    d = distance.cross_trajectories(T[:m], T[m:])
    torch.testing.assert_close(d, distance.trajectories(T)[:m, m:])


@few
@given(seed=seeds)
def test_trajectories_are_a_mean_over_classes(seed):
    T = rows(seed, 5, 8).reshape(5, 2, 4)
    torch.testing.assert_close(distance.trajectories(T.repeat(1, 1, 3)), distance.trajectories(T))


def test_trajectories_must_have_two_axes():
    with pytest.raises(ValueError, match=r"\(n, 2, C\)"):
        distance.trajectories(torch.zeros(3, 3, 4))


@few
@given(seed=seeds, scale=st.floats(0.1, 100))
def test_variation_does_not_depend_on_scale(seed, scale):
    T = rows(seed, 5, 8).abs().reshape(5, 2, 4)
    torch.testing.assert_close(distance.variation(scale * T), distance.variation(T))


@few
@given(seed=seeds)
def test_push_minus_pull_is_the_gradient_of_the_summed_cross_entropy(seed):
    v, y = rows(seed, 7, 5).abs(), torch.arange(7) % 3
    W = rows(seed + 1, 3, 5).requires_grad_()
    logits = v @ W.T
    cross_entropy(logits, y, reduction="sum").backward()
    pull, push = distance.forces(v, logits.softmax(1).detach(), y)
    torch.testing.assert_close(push - pull, W.grad)


@few
@given(seed=seeds)
def test_a_trajectory_does_not_depend_on_the_number_of_copies(seed):
    v, p, y = rows(seed, 7, 5).abs(), rows(seed, 7, 3).softmax(1), torch.arange(7) % 3
    once = distance.trajectory(v, p, y)
    twice = distance.trajectory(v.repeat(2, 1), p.repeat(2, 1), y.repeat(2))
    torch.testing.assert_close(twice, once)


@pytest.mark.row(21, counts="pairs of a method and odd data")
def test_a_client_without_samples_has_a_trajectory_of_zeros():
    nothing = distance.trajectory(torch.zeros(0, 5), torch.zeros(0, 3), torch.zeros(0).long())
    assert nothing.tolist() == [[0, 0, 0], [0, 0, 0]]


@few
@given(seed=seeds)
def test_kl_from_logits_is_kl_of_probabilities(seed):
    a, b = rows(seed, 4, 6).reshape(4, 2, 3), rows(seed + 1, 3, 6).reshape(3, 2, 3)
    from_probs = distance.kl(a.softmax(-1), b.softmax(-1))
    torch.testing.assert_close(distance.kl_logits(a, b), from_probs)


@few
@given(seed=seeds)
def test_kl_is_zero_to_itself_and_positive_to_others(seed):
    a = rows(seed, 4, 6, torch.float32).reshape(4, 2, 3)
    d = distance.kl_logits(a, a)
    assert (d.diagonal() == 0).all()
    assert (d + torch.eye(4) > 0).all()


@few
@given(seed=seeds, shift=st.floats(-50, 50))
def test_kl_from_logits_ignores_a_shift_of_the_logits(seed, shift):
    a, b = rows(seed, 4, 6).reshape(4, 2, 3), rows(seed + 1, 3, 6).reshape(3, 2, 3)
    torch.testing.assert_close(distance.kl_logits(a + shift, b), distance.kl_logits(a, b))


def test_kl_refuses_logits_and_predictions_that_do_not_match():
    with pytest.raises(ValueError, match="kl_logits"):
        distance.kl(torch.tensor([[[-1.0, 2.0]]]), torch.tensor([[[0.5, 0.5]]]))
    with pytest.raises(ValueError, match="do not match"):
        distance.kl(torch.zeros(1, 2, 3), torch.zeros(1, 3, 3))


@few
@given(seed=seeds)
def test_a_basis_is_orthonormal_and_free_of_the_sign_and_order_of_samples(seed):
    x = rows(seed, 6, 9)
    U = distance.basis(x, 3)
    torch.testing.assert_close(U.T @ U, torch.eye(3).double())
    assert torch.equal(U.amax(0), U.abs().amax(0))
    torch.testing.assert_close(distance.basis(-x[:, shuffle(seed, 9)], 3), U)


def test_a_basis_has_zero_columns_where_directions_are_missing():
    x = rows(0, 6, 1)
    U = distance.basis(torch.cat([x, 2 * x], 1), 3)
    assert U.shape == (6, 3)
    assert (U[:, 1:] == 0).all()
    assert float(U[:, 0].norm()) == pytest.approx(1)


@few
@given(seed=seeds)
def test_principal_angles_are_scipys(seed):
    a, b = rows(seed, 6, 3), rows(seed + 1, 6, 2)
    expected = torch.from_numpy(subspace_angles(a, b)).rad2deg().flip(0)
    torch.testing.assert_close(distance.principal_angles(a, b), expected, rtol=1e-6, atol=1e-5)


@few
@given(seed=seeds)
def test_the_smallest_angle_does_not_depend_on_the_basis_of_a_subspace(seed):
    bases = rows(seed, 4, 18).reshape(4, 6, 3)
    turned = bases @ torch.linalg.qr(rows(seed + 1, 3, 3)).Q
    torch.testing.assert_close(distance.subspaces(turned), distance.subspaces(bases))


def test_matched_angles_are_between_lines_and_never_obtuse():
    lines = torch.tensor([[[1.0], [10.0]], [[1.0], [-10.0]]]).double()
    expected = 2 * math.degrees(math.atan(0.1))
    for sign in (1, -1):
        lines[1] *= sign
        assert float(distance.subspaces(lines, "trace")[0, 1]) == pytest.approx(expected)


def test_the_smallest_angle_is_the_first_principal_angle():
    bases = rows(0, 3, 18).reshape(3, 6, 3)
    first = distance.principal_angles(bases[0], bases[2])[0]
    torch.testing.assert_close(distance.subspaces(bases)[0, 2], first)
