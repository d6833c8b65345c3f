from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import cluster
from torch import Tensor

from coterie.runs import metrics

few = settings(max_examples=20, deadline=None, derandomize=True)
seeds = st.integers(0, 10_000)
PER_CLIENT = [
    metrics.mean,
    metrics.std,
    metrics.worst,
    metrics.bottom_k,
    metrics.bottom_share,
    metrics.jain,
]
OF_GROUPS = [metrics.clusters_correct, metrics.adjusted_rand, metrics.nmi]


def accuracies(seed: int, n: int = 23) -> Tensor:
    return torch.rand(n, generator=torch.Generator().manual_seed(seed)).double()


def labels(seed: int, n: int = 15, k: int = 4) -> Tensor:
    return torch.randint(0, k, (n,), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("metric", PER_CLIENT)
@few
@given(seed=seeds)
def test_the_order_of_clients_does_not_matter(metric, seed):
    a = accuracies(seed)
    p = torch.randperm(len(a), generator=torch.Generator().manual_seed(seed))
    assert metric(a[p]) == pytest.approx(metric(a))


@pytest.mark.parametrize("metric", PER_CLIENT)
def test_clients_without_test_samples_are_left_out(metric):
    a = accuracies(0)
    assert metric(torch.cat([a, torch.tensor([torch.nan] * 9)])) == metric(a)


@pytest.mark.parametrize("metric", PER_CLIENT)
def test_nobody_tested_is_nan(metric):
    assert math.isnan(metric(torch.tensor([torch.nan])))


@pytest.mark.parametrize("metric", PER_CLIENT)
def test_infinite_accuracies_are_refused(metric):
    with pytest.raises(ValueError, match="infinite"):
        metric(torch.tensor([0.5, torch.inf]))


@few
@given(seed=seeds, n=st.integers(1, 40))
def test_the_worse_the_share_the_lower_the_mean(seed, n):
    a = accuracies(seed, n)
    rising = [metrics.worst(a), metrics.bottom_share(a, 0.1), metrics.bottom_share(a, 0.5)]
    assert rising == sorted(rising)
    assert metrics.bottom_share(a, 1.0) == pytest.approx(metrics.mean(a))


@few
@given(seed=seeds)
def test_equal_sizes_make_the_weighted_mean_the_mean(seed):
    a = accuracies(seed)
    assert metrics.weighted(a, torch.full((len(a),), 7)) == pytest.approx(metrics.mean(a))


def test_sizes_of_untested_clients_do_not_count():
    a = torch.tensor([0.0, 1.0, torch.nan])
    assert metrics.weighted(a, torch.tensor([1, 3, 1000])) == 0.75


def test_as_many_sizes_as_accuracies_are_wanted():
    with pytest.raises(ValueError, match="3 accuracies, but 2 sizes"):
        metrics.weighted(torch.ones(3), torch.ones(2))


@few
@given(seed=seeds, n=st.integers(1, 40), scale=st.floats(0.01, 1))
def test_jain_lies_between_one_nth_and_one_and_ignores_scale(seed, n, scale):
    a = accuracies(seed, n)
    assert 1 / n - 1e-12 <= metrics.jain(a) <= 1 + 1e-12
    assert metrics.jain(scale * a) == pytest.approx(metrics.jain(a))


def test_a_summary_names_every_aggregate():
    a, n = accuracies(0), torch.arange(1, 24)
    found = metrics.summarise(a, n)
    assert found == {
        "accuracy_mean": metrics.mean(a),
        "accuracy_std": metrics.std(a),
        "accuracy_weighted": metrics.weighted(a, n),
        "accuracy_worst": metrics.worst(a),
        "accuracy_bottom_5": metrics.bottom_k(a, 5),
        "accuracy_bottom_10pct": metrics.bottom_share(a, 0.1),
        "accuracy_jain": metrics.jain(a),
    }


@few
@given(seed=seeds, k=st.integers(1, 30))
def test_no_k_rounds_beat_the_best_k(seed, k):
    series = accuracies(seed).tolist()
    assert metrics.top_k_mean(series, k) >= metrics.last_k_mean(series, k) - 1e-12


def test_rounds_nobody_was_tested_in_are_left_out():
    assert metrics.last_k_mean([0.5, 1.0, math.nan], 1) == 1.0
    assert metrics.top_k_mean([math.nan, 0.5, 1.0], 1) == 1.0
    assert metrics.rounds_to_target([math.nan, 0.5], 0.5) == 2


@pytest.mark.parametrize("metric", [metrics.top_k_mean, metrics.last_k_mean])
def test_the_mean_of_no_rounds_is_refused(metric):
    with pytest.raises(ValueError, match="no round"):
        metric([], 3)
    with pytest.raises(ValueError, match="at least 1"):
        metric([0.5], 0)


@few
@given(seed=seeds, target=st.floats(0, 1))
def test_the_target_is_met_in_that_round_and_not_before(seed, target):
    series = accuracies(seed).tolist()
    t = metrics.rounds_to_target(series, target)
    assert all(v < target for v in series[: len(series) if t is None else t - 1])
    assert t is None or series[t - 1] >= target


def test_moving_two_models_down_costs_half_as_much_again():
    once = metrics.comm_per_client_mb(1000, rounds=10, fraction=0.5)
    assert metrics.comm_per_client_mb(1000, 10, 0.5, down_models=2) == pytest.approx(1.5 * once)


@pytest.mark.parametrize("metric", OF_GROUPS)
@few
@given(seed=seeds)
def test_the_names_of_groups_do_not_matter(metric, seed):
    true, pred = labels(seed), labels(seed + 1)
    renamed = torch.tensor([30, 7, 0, 12])[pred]
    assert metric(true, renamed) == pytest.approx(metric(true, pred))


@pytest.mark.parametrize("metric", OF_GROUPS)
@few
@given(seed=seeds)
def test_the_same_groups_score_best(metric, seed):
    true = labels(seed)
    best = len(true) if metric is metrics.clusters_correct else 1
    assert metric(true, true) == pytest.approx(best)
    assert metric(true, labels(seed + 1)) <= best


@pytest.mark.parametrize("metric", [metrics.clusters_correct, metrics.adjusted_rand, metrics.nmi])
@few
@given(seed=seeds)
def test_found_and_true_groups_may_change_places(metric, seed):
    a, b = labels(seed), labels(seed + 1, k=6)
    assert metric(a, b) == pytest.approx(metric(b, a))


@pytest.mark.parametrize("metric", OF_GROUPS)
def test_labels_of_unequal_length_are_refused(metric):
    with pytest.raises(ValueError, match="labels"):
        metric(torch.tensor([0, 1]), torch.tensor([0]))


def test_a_client_that_is_not_placed_is_never_right():
    true = torch.tensor([0, 0, 1, 1])
    assert metrics.clusters_correct(true, torch.tensor([0, -1, 1, -1])) == 2
    assert metrics.clusters_correct(true, torch.full((4,), -1)) == 0


@pytest.mark.parametrize("metric", [metrics.adjusted_rand, metrics.nmi])
def test_clients_that_are_not_placed_are_not_a_group(metric):
    true = torch.tensor([0, 0, 1, 1])
    unplaced, alone = metric(true, torch.tensor([-1, -1, 1, 1])), torch.tensor([0, 2, 1, 1])
    assert unplaced == metric(true, alone) < 1


@few
@given(seed=seeds)
def test_renaming_groups_is_no_churn_and_churn_is_symmetric(seed):
    a, b = labels(seed), labels(seed + 1)
    assert metrics.churn(a, (a + 1) % 4) == 0
    assert metrics.churn(a, b) == pytest.approx(metrics.churn(b, a))
    assert 0 <= metrics.churn(a, b) < 1


def test_churn_is_about_clients_that_were_placed_both_times():
    assert metrics.churn(torch.tensor([0, 0, 1, -1]), torch.tensor([0, 0, 0, 1])) == pytest.approx(
        1 / 3
    )
    assert metrics.churn(torch.tensor([-1, 0]), torch.tensor([0, -1])) == 0


@few
@given(seed=seeds, n=st.integers(1, 30), k=st.integers(1, 5))
def test_indices_of_groups_are_scikit_learns(seed, n, k):
    true, pred = labels(seed, n, k), labels(seed + 1, n, 4)
    assert metrics.adjusted_rand(true, pred) == cluster.adjusted_rand_score(true, pred)
    known = cluster.normalized_mutual_info_score(true, pred)
    assert metrics.nmi(true, pred) == pytest.approx(known, abs=1e-12)
    table = cluster.contingency_matrix(true, pred)
    assert metrics.contingency(true.numpy(), pred.numpy()).tolist() == table.tolist()
    best = table[linear_sum_assignment(table, maximize=True)].sum()
    assert metrics.clusters_correct(true, pred) == best
