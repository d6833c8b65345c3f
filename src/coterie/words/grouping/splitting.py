"""Splitting one group in two (Sattler's clustered federated learning)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from coterie.core import checks
from coterie.words.grouping.hierarchy import cut_k
from coterie.words.mixing import average


@dataclass(frozen=True)
class Incongruence:
    """Whether a group has stopped moving while its members still pull apart."""

    mean_norm: float  # of the weighted mean update
    max_norm: float  # of the largest single update
    split: bool


def incongruence(
    updates: Tensor, sizes: Tensor, eps1: float = 0.4, eps2: float = 1.6
) -> Incongruence:
    """CFL's test for a split: |mean update| < eps1 and max_i |update_i| > eps2. (m, P), (m,).

    >>> incongruence(torch.tensor([[2.0], [-2.0]]), torch.tensor([1.0, 1.0]))
    Incongruence(mean_norm=0.0, max_norm=2.0, split=True)
    """
    checks.rows(updates, "updates")
    mean = float(torch.linalg.vector_norm(average(sizes) @ updates.double()))
    largest = float(torch.linalg.vector_norm(updates, dim=1, dtype=torch.float64).max())
    return Incongruence(mean, largest, mean < eps1 and largest > eps2)


def bipartition(similarity: Tensor) -> tuple[Tensor, float]:
    """The two groups whose most similar cross pair is least similar: (n, n) -> labels, that pair.

    Exact: merging the most similar pairs until two groups are left cannot leave a better cut. One
    client cannot be split: labels [0] and 1.0.

    >>> S = torch.tensor([[1.0, 0.9, -0.5], [0.9, 1.0, 0.25], [-0.5, 0.25, 1.0]])
    >>> labels, cross = bipartition(S)
    >>> labels.tolist(), cross
    ([0, 0, 1], 0.25)
    """
    checks.square(similarity, "similarity")
    if len(similarity) == 1:
        return torch.zeros(1, dtype=torch.long), 1.0
    S = similarity.double()
    labels = cut_k((S.max() - S).fill_diagonal_(0), 2, "single")
    return labels, float(similarity[labels == 0][:, labels == 1].max())


def separable(max_cross: float, gamma_max: float) -> bool:
    """Whether a split is accepted: gamma_max < sqrt((1 - max_cross)/2).

    gamma_max bounds how much a client's update may differ from its group's ideal; 0 accepts all
    but parallel updates.

    >>> separable(0.0, 0.5), separable(0.9, 0.5)
    (True, False)
    """
    if not 0 <= gamma_max <= 1:
        raise ValueError(f"gamma_max must lie in [0, 1], got {gamma_max}")
    return gamma_max < math.sqrt(max(0.0, (1 - max_cross) / 2))
