"""Metrics of one client's test, by scikit-learn's definitions: from labels and scores alone.

`labels` (N,) are whole numbers, `scores` (N, K) the probabilities of each class. What cannot be
told is NaN: anything without samples, and an area under the curve where all samples are of one
class.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from coterie.core.errors import ConfigError
from coterie.core.metric_names import METRICS

Ints = NDArray[np.int64]
Reals = NDArray[np.float64]
Metric = Callable[[Ints, Reals], float]
BINS = 15  # of confidence, as Guo et al. (ICML 2017) have them


def balanced_accuracy(labels: Ints, scores: Reals) -> float:
    """The mean recall of the classes that occur among the labels.

    >>> balanced_accuracy(np.array([0, 0, 0, 1]), np.array([[0.9, 0.1]] * 4))
    0.5
    """
    right, tested, _ = counted(labels, scores)
    there = tested > 0
    return float((right[there] / tested[there]).mean())


def macro_f1(labels: Ints, scores: Reals) -> float:
    """The mean F1 of the classes that occur among the labels or the answers.

    >>> macro_f1(np.array([0, 1]), np.array([[0.9, 0.1, 0.0], [0.2, 0.3, 0.5]]))
    0.3333333333333333
    """
    right, tested, answered = counted(labels, scores)
    there = tested + answered > 0
    return float((2 * right[there] / (tested + answered)[there]).mean())


def auc(labels: Ints, scores: Reals) -> float:
    """The mean area under the ROC curve of each class that occurs, against all others.

    Samples of equal score count half. With one class alone there is nothing to tell apart: NaN.

    >>> auc(np.array([0, 1, 1]), np.array([[0.6, 0.4], [0.4, 0.6], [0.6, 0.4]]))
    0.75
    """
    tested = np.bincount(labels, minlength=scores.shape[1])
    there = np.flatnonzero((tested > 0) & (tested < len(labels)))
    areas = [area(labels == k, scores[:, k]) for k in there]
    return float(np.mean(areas)) if areas else np.nan


def area(positive: NDArray[np.bool_], score: Reals) -> float:
    """The chance that a positive sample has a higher score than another one; equal ones half."""
    _, place, equal = np.unique(score, return_inverse=True, return_counts=True)
    ranks = (equal.cumsum() - (equal - 1) / 2)[place]
    ours = int(positive.sum())
    others = len(positive) - ours
    return float((ranks[positive].sum() - ours * (ours + 1) / 2) / (ours * others))


def calibration_error(labels: Ints, scores: Reals) -> float:
    """The expected calibration error: |accuracy - confidence| in bins of equal width, by samples.

    The confidence is the score of the answer. A bin has its upper edge, not its lower one.

    >>> calibration_error(np.array([0, 1]), np.array([[0.75, 0.25], [0.75, 0.25]]))
    0.25
    """
    sure, right = scores.max(1), scores.argmax(1) == labels
    bins = np.searchsorted(np.linspace(0, 1, BINS + 1)[1:-1], sure)
    gaps = np.bincount(bins, weights=right - sure, minlength=BINS)
    return float(np.abs(gaps).sum() / len(labels))


def counted(labels: Ints, scores: Reals) -> tuple[Ints, Ints, Ints]:
    """(K,) each: samples of a class that are right, all of them, and answers that name it."""
    answer, K = scores.argmax(1), scores.shape[1]
    right = labels[answer == labels]
    several = (np.bincount(some, minlength=K) for some in (right, labels, answer))
    return tuple(several)  # type: ignore[return-value]


OURS: dict[str, Metric] = {
    f.__name__: f for f in (balanced_accuracy, macro_f1, auc, calibration_error)
}


@cache
def function(name: str) -> Metric:
    """A metric by its name: coterie's, or "package.module:function", which is imported."""
    if name in OURS:
        return OURS[name]
    try:
        found: Any = pkgutil.resolve_name(name)
    except Exception as cause:  # whatever the user's module does while it is imported
        raise unusable(name, f"{type(cause).__name__}: {cause}") from cause
    if not callable(found):
        raise unusable(name, f"it is a {type(found).__name__}, not a function")
    metric: Metric = found
    return metric


def unusable(name: str, why: str) -> ConfigError:
    """The error of a metric that cannot be had."""
    return ConfigError(
        f"the metric {name!r} cannot be used",
        code="C038",
        why=why,
        fix=f"one of {', '.join(METRICS)}, or a function of labels and scores as "
        '"package.module:function", of a module that is installed or lies in the folder where you '
        "are",
    )


def measure(name: str, logits: Tensor, y: Tensor) -> float:
    """A metric of what a model says to a client's test samples; NaN where it cannot be told."""
    if not len(y) or not bool(logits.isfinite().all()):
        return np.nan
    return float(function(name)(y.numpy(), F.softmax(logits.double(), 1).numpy()))


def class_counts(logits: Tensor, y: Tensor) -> Tensor:
    """(2, K): samples of each class that are right, and that are wrong."""
    hit, K = logits.argmax(1) == y, logits.shape[1]
    return y.new_zeros(2, K).index_put((1 - hit.long(), y), y.new_ones(()), accumulate=True)
