from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from coterie.words import affinity
from coterie.words.distance import cosine, squared_l2
from coterie.words.mixing import within

few = settings(max_examples=15, deadline=None, derandomize=True)
seeds = st.integers(0, 10_000)


def rng(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def counts(seed: int, n: int = 7, C: int = 5) -> Tensor:
    held = torch.rand(n, C, generator=rng(seed)) < 0.6
    return torch.randint(1, 90, (n, C), generator=rng(seed + 1)) * held


def rows(seed: int, m: int = 7) -> Tensor:
    return torch.randn(m, 4, generator=rng(seed)).double()


@few
@given(seed=seeds)
def test_complementarity_is_symmetric_and_bounded_by_the_common_classes(seed):
    S = counts(seed)
    c = affinity.complementarity(S)
    torch.testing.assert_close(c, c.T, equal_nan=True)
    L = ((S[:, None] > 0) & (S > 0)).sum(2) / 5
    known = ~c.isnan()
    assert (c[known] >= L[known] - 1e-9).all()
    assert (c[known] <= 3 * L[known] + 1e-9).all()
    off = ~torch.eye(7, dtype=torch.bool)
    assert torch.equal(known & off, (L > 0) & off)


@few
@given(seed=seeds)
def test_complementarity_is_the_formula_pair_by_pair(seed):
    S = counts(seed).double()
    c = affinity.complementarity(S)
    for i in range(7):
        for j in range(i):
            common = (S[i] > 0) & (S[j] > 0)
            L = int(common.sum())
            if not L:
                continue
            a, b = S[i, common], S[j, common]
            s = (a.sum() + b.sum()) / (2 * L)
            norm = (a - s).norm() * (b - s).norm()
            cos = float((a - s) @ (b - s) / norm) if norm > 0 else 0.0
            assert float(c[i, j]) == pytest.approx(L / 5 * (2 - cos))


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [([5, 5], [5, 5], 2.0), ([7, 0], [7, 0], 1.0), ([7, 0], [3, 0], 1.5), ([9, 3], [3, 9], 3.0)],
)
def test_pairs_without_deviation_or_with_one_class_follow_the_rules(a, b, expected):
    assert float(affinity.complementarity(torch.tensor([a, b]))[0, 1]) == expected


@pytest.mark.parametrize("norm", ["minmax", "max"])
@few
@given(seed=seeds)
def test_affinity_lies_in_the_unit_interval_and_reaches_one(norm, seed):
    c = affinity.affinity(counts(seed), norm)
    assert torch.equal(c, c.T)
    assert (c.diagonal() == 0).all()
    assert (float(c.min()), float(c.max())) == (0, 1)


@pytest.mark.parametrize("norm", ["minmax", "max"])
@few
@given(seed=seeds)
def test_relabelling_clients_relabels_affinity(norm, seed):
    S, p = counts(seed), torch.randperm(7, generator=rng(seed))
    torch.testing.assert_close(affinity.affinity(S[p], norm), affinity.affinity(S, norm)[p][:, p])


def test_one_client_has_no_affinity():
    assert affinity.affinity(torch.tensor([[3, 4]])).tolist() == [[0]]


@pytest.mark.parametrize(
    "bad", [torch.zeros(3), torch.tensor([[-1.0]]), torch.tensor([[torch.nan]])]
)
def test_what_is_no_count_is_refused(bad):
    with pytest.raises(ValueError, match="counts"):
        affinity.affinity(bad)


def weights(seed: int, m: int = 7) -> dict[str, Tensor]:
    c, x = affinity.affinity(counts(seed, m)), rows(seed, m)
    D = squared_l2(x)
    return {
        "static": affinity.static_weights(c),
        "dynamic": affinity.dynamic_weights(c, D, sigma=2.0),
        "attention": affinity.attention(D, alpha=0.5, sigma=3.0),
        "too much attention": affinity.attention(D, alpha=50.0, sigma=3.0),
        "heuristic": affinity.heuristic_attention(cosine(x), self_weight=0.3),
        "soft": affinity.soft_weights(x.softmax(1), torch.arange(1, m + 1)),
    }


@few
@given(seed=seeds, m=st.integers(1, 8))
def test_rows_of_every_mixing_matrix_are_shares(seed, m):
    for W in weights(seed, m).values():
        torch.testing.assert_close(W.sum(1), torch.ones(len(W)).double())
        assert (W >= 0).all()


@few
@given(seed=seeds, m=st.integers(2, 8))
def test_nobody_gives_to_itself_in_dapfl(seed, m):
    found = weights(seed, m)
    assert (found["static"].diagonal() == 0).all()
    assert (found["dynamic"].diagonal() == 0).all()


def test_a_single_client_keeps_its_model():
    for W in weights(0, 1).values():
        assert (W == 1).all()


@few
@given(seed=seeds, scale=st.floats(0.01, 100))
def test_scaling_affinities_changes_no_weight(seed, scale):
    c, D = affinity.affinity(counts(seed), "max"), squared_l2(rows(seed))
    a = affinity.dynamic_weights(c, D, 2.0)
    torch.testing.assert_close(affinity.dynamic_weights(scale * c, D, 2.0), a)


@few
@given(seed=seeds)
def test_equal_models_and_vanishing_sigma_leave_affinity_alone(seed):
    c, D = affinity.affinity(counts(seed), "max"), squared_l2(rows(seed))
    still = affinity.static_weights(c)
    torch.testing.assert_close(affinity.dynamic_weights(c, torch.zeros_like(D), 1.0), still)
    torch.testing.assert_close(affinity.dynamic_weights(c, torch.zeros_like(D), 1.0, eps=0), still)
    torch.testing.assert_close(affinity.dynamic_weights(c, D, 1e-9), still)


@few
@given(seed=seeds)
def test_a_large_sigma_weighs_by_squared_distance(seed):
    c, D = affinity.affinity(counts(seed), "max"), squared_l2(rows(seed))
    expected = c * D / (c * D).sum(1, keepdim=True)
    close = affinity.dynamic_weights(c, D, sigma=1e9, eps=0)
    torch.testing.assert_close(close, expected, rtol=1e-6, atol=1e-9)


@few
@given(seed=seeds, scale=st.floats(0.1, 10))
def test_the_median_sigma_is_a_squared_length(seed, scale):
    x = rows(seed)
    sigma = affinity.median_sigma(squared_l2(x))
    assert affinity.median_sigma(squared_l2(scale * x)) == pytest.approx(scale**2 * sigma)


def test_the_median_sigma_of_equal_models_is_one():
    assert affinity.median_sigma(torch.zeros(3, 3)) == 1
    assert affinity.median_sigma(torch.zeros(1, 1)) == 1


@few
@given(seed=seeds)
def test_attention_is_symmetric_and_greatest_between_the_nearest(seed):
    D = squared_l2(rows(seed))
    xi = affinity.attention(D, 0.01, 3.0)
    torch.testing.assert_close(xi, xi.T)
    off = ~torch.eye(7, dtype=torch.bool)
    assert D[off].argmin() == xi[off].argmax()


@few
@given(seed=seeds, alpha=st.floats(0.001, 100))
def test_attention_takes_no_more_than_there_is(seed, alpha):
    D = squared_l2(rows(seed))
    rate = affinity.attention_rate(D, alpha, 3.0)
    assert 0 < rate <= alpha
    torch.testing.assert_close(affinity.attention(D, rate, 3.0), affinity.attention(D, alpha, 3.0))


@few
@given(seed=seeds, own=st.floats(0, 1))
def test_heuristic_attention_keeps_the_own_weight(seed, own):
    W = affinity.heuristic_attention(cosine(rows(seed)), own, scale=5.0)
    torch.testing.assert_close(W.diagonal(), torch.full((7,), own).double())


@pytest.mark.parametrize("sigma", [0.0, -1.0, float("nan")])
def test_a_scale_that_is_not_positive_is_refused(sigma):
    D = torch.zeros(2, 2)
    with pytest.raises(ValueError, match="sigma must be positive"):
        affinity.dynamic_weights(D, D, sigma)
    with pytest.raises(ValueError, match="sigma must be positive"):
        affinity.attention(D, 1.0, sigma)


@few
@given(seed=seeds)
def test_importance_is_a_share_that_never_vanishes(seed):
    u = affinity.importance(torch.rand(9, 4, generator=rng(seed)), floor=0.05)
    assert (u >= 0.05).all()
    assert float(
        affinity.importance(torch.rand(9, 4, generator=rng(seed)), floor=0.0).sum()
    ) == pytest.approx(1)


@few
@given(seed=seeds)
def test_hard_shares_make_soft_weights_hard(seed):
    labels = torch.randint(0, 3, (7,), generator=rng(seed))
    sizes = torch.arange(1, 8)
    hard = torch.nn.functional.one_hot(labels, 3).double()
    torch.testing.assert_close(affinity.soft_weights(hard, sizes), within(labels, sizes, 3))
