"""Metrics are scikit-learn's, also where classes lack, scores are equal or there is one class."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sk
from sklearn.calibration import calibration_curve

from coterie.core.errors import ConfigError
from coterie.tasks import scoring


def drawn(seed: int, samples: int, classes: int, *, ties: bool) -> tuple[np.ndarray, np.ndarray]:
    """Labels of some of the classes and probabilities of all; with ties, only a few values."""
    rng = np.random.default_rng(seed)
    there = rng.choice(classes, rng.integers(1, classes + 1), replace=False)
    scores = (
        rng.integers(1, 4, (samples, classes)).astype(float)
        if ties
        else rng.random((samples, classes))
    )
    return rng.choice(there, samples), scores / scores.sum(1, keepdims=True)


cases = given(st.integers(0, 10**6), st.integers(1, 30), st.integers(2, 6), st.booleans())


@pytest.mark.filterwarnings("ignore")
@cases
def test_balanced_accuracy_and_f1_are_scikit_learns(seed: int, n: int, k: int, ties: bool) -> None:
    y, scores = drawn(seed, n, k, ties=ties)
    answer = scores.argmax(1)
    assert scoring.balanced_accuracy(y, scores) == pytest.approx(
        sk.balanced_accuracy_score(y, answer)
    )
    want = sk.f1_score(y, answer, average="macro", zero_division=0)
    assert scoring.macro_f1(y, scores) == pytest.approx(want)


@cases
def test_auc_is_the_mean_of_scikit_learns_over_the_classes_that_occur(
    seed: int, n: int, k: int, ties: bool
) -> None:
    y, scores = drawn(seed, n, k, ties=ties)
    there = np.unique(y)
    if len(there) < 2:
        assert np.isnan(scoring.auc(y, scores))
        return
    each = [sk.roc_auc_score(y == c, scores[:, c]) for c in there]
    assert scoring.auc(y, scores) == pytest.approx(np.mean(each))
    if len(there) == k > 2:
        assert scoring.auc(y, scores) == pytest.approx(
            sk.roc_auc_score(y, scores, multi_class="ovr")
        )
    if k == 2:
        assert scoring.auc(y, scores) == pytest.approx(sk.roc_auc_score(y, scores[:, 1]))


@cases
def test_calibration_error_weighs_the_bins_of_scikit_learns_curve(
    seed: int, n: int, k: int, ties: bool
) -> None:
    y, scores = drawn(seed, n, k, ties=ties)
    right, sure = scores.argmax(1) == y, scores.max(1)
    share, mean = calibration_curve(right, sure, n_bins=scoring.BINS)
    bins = np.searchsorted(np.linspace(0, 1, scoring.BINS + 1)[1:-1], sure)
    counts = np.bincount(bins)
    want = np.abs(share - mean) @ counts[counts > 0] / n
    assert scoring.calibration_error(y, scores) == pytest.approx(want)


@cases
def test_counts_of_classes_are_those_of_the_confusion_matrix(
    seed: int, n: int, k: int, ties: bool
) -> None:
    y, scores = drawn(seed, n, k, ties=ties)
    table = sk.confusion_matrix(y, scores.argmax(1), labels=range(k))
    right, wrong = scoring.class_counts(torch.tensor(scores), torch.tensor(y))
    assert right.tolist() == table.diagonal().tolist()
    assert (right + wrong).tolist() == table.sum(1).tolist()


def test_nothing_can_be_told_without_samples_nor_of_logits_that_are_not_finite() -> None:
    none, y = torch.empty(0, 3), torch.empty(0, dtype=torch.long)
    gone = torch.tensor([[0.0, float("nan"), 1.0]])
    for name in scoring.OURS:
        assert np.isnan(scoring.measure(name, none, y))
        assert np.isnan(scoring.measure(name, gone, torch.tensor([0])))
    assert scoring.class_counts(none, y).tolist() == [[0, 0, 0], [0, 0, 0]]


def test_a_client_with_one_class_has_every_metric_but_the_area() -> None:
    logits, y = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0])
    found = {name: scoring.measure(name, logits, y) for name in scoring.OURS}
    assert found["balanced_accuracy"] == 0.5
    assert found["macro_f1"] == pytest.approx(1 / 3)
    assert np.isnan(found["auc"])
    assert 0 < found["calibration_error"] < 1


def test_a_function_of_scikit_learns_own_can_be_named() -> None:
    logits, y = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1])
    want = sk.log_loss(y, logits.double().softmax(1))
    assert scoring.measure("sklearn.metrics:log_loss", logits, y) == pytest.approx(want)


@pytest.mark.parametrize("name", ["nowhere:fn", "math:fn", "math:pi", "brier"])
def test_a_metric_that_cannot_be_used_says_why(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be used") as refused:
        scoring.function(name)
    assert "balanced_accuracy" in refused.value.fix
