"""Labels: their canonical form, where they come from, and how well they fit the distances."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from coterie.core import checks
from coterie.words.distance import cross_l2


def canonical(labels: Tensor) -> Tensor:
    """The same groups, counted 0, 1, 2, ... in order of first appearance: (n,) -> (n,).

    -1 (not placed yet) stays -1.

    >>> canonical(torch.tensor([7, 3, -1, 7, 0])).tolist()
    [0, 1, -1, 0, 2]
    """
    if labels.ndim != 1 or labels.is_floating_point():
        raise ValueError(f"labels must be (n,) whole numbers, got {tuple(labels.shape)}")
    placed = labels >= 0
    names, group = torch.unique(labels[placed], return_inverse=True)
    first = torch.full((len(names),), len(labels), device=labels.device)
    first.scatter_reduce_(0, group, torch.arange(len(group), device=labels.device), "amin")
    out = torch.full_like(labels, -1, dtype=torch.long)
    out[placed] = first.argsort().argsort()[group]
    return out


def components(parent: Tensor) -> Tensor:
    """Who hangs together when everybody points at somebody: (n,) -> labels (n,).

    >>> components(torch.tensor([1, 1, 3, 3, 1])).tolist()
    [0, 0, 1, 1, 0]
    """
    n = len(parent)
    checks.indices(parent, "parent", n, n)
    return joined(np.arange(n), parent.cpu().numpy(), n, n)


def joined(a: np.ndarray, b: np.ndarray, nodes: int, n: int) -> Tensor:
    """Labels of the first n of `nodes` when a[i] and b[i] are joined: connected components."""
    group = list(range(nodes))

    def top(i: int) -> int:
        while group[i] != i:
            group[i] = group[group[i]]
            i = group[i]
        return i

    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        group[top(x)] = top(y)
    return canonical(torch.tensor([top(i) for i in range(n)]))


def closest(cost: Tensor) -> Tensor:
    """The cheapest column of each row, the first among equals: (m, k) -> labels (m,).

    Infinite costs lose to all others; NaN is an error.

    >>> closest(torch.tensor([[3.0, 1.0, 1.0], [0.0, 2.0, 5.0]])).tolist()
    [1, 0]
    """
    if cost.ndim != 2 or not cost.shape[1]:
        raise ValueError(f"cost must be (m, k) with k >= 1, got {tuple(cost.shape)}")
    if cost.isnan().any():
        raise ValueError("cost holds NaN; leave those clients out first")
    return cost.argmin(1) if len(cost) else cost.new_zeros(0, dtype=torch.long)


def nearest(rows: Tensor, centres: Tensor) -> Tensor:
    """The L2-nearest centre of each row, the first among equals: (m, P), (k, P) -> labels (m,).

    >>> nearest(torch.tensor([[0.0], [9.0]]), torch.tensor([[1.0], [-1.0], [8.0]])).tolist()
    [0, 2]
    """
    return closest(cross_l2(rows, centres))


def nearest_group(cost: Tensor, labels: Tensor) -> Tensor:
    """The group whose members are nearest in the mean: (m, n), (n,) -> labels (m,).

    For newcomers: `cost[i, j]` leads from newcomer i to member j. The first among equals.

    >>> nearest_group(torch.tensor([[0.0, 6.0, 2.0]]), torch.tensor([0, 0, 1])).tolist()
    [1]
    """
    checks.indices(labels, "labels", cost.shape[-1])
    group = torch.nn.functional.one_hot(labels).double()  # (n, k)
    members = group.sum(0)
    mean = cost.double() @ group / members.clamp_min(1)
    return closest(mean.masked_fill(members == 0, torch.inf))


def silhouette(distance: Tensor, labels: Tensor) -> float:
    """How much nearer clients are to their own group than to the next, in [-1, 1], on average.

    The mean silhouette: (n, n), (n,) -> a number. Clients alone in their group count 0; one group
    for all gives 0.

    >>> D = torch.tensor([[0.0, 1.0, 4.0], [1.0, 0.0, 4.0], [4.0, 4.0, 0.0]])
    >>> silhouette(D, torch.tensor([0, 0, 1])), silhouette(D, torch.tensor([0, 0, 0]))
    (0.5, 0.0)
    """
    checks.square(distance, "distance")
    n = len(distance)
    checks.indices(labels, "labels", n)
    group = canonical(labels)
    size = group.bincount()
    if len(size) == 1:
        return 0.0
    total = distance.new_zeros(n, len(size)).double().index_add_(1, group, distance.double())
    own = size[group]
    inside = total.gather(1, group[:, None])[:, 0] / (own - 1).clamp_min(1)
    outside = (total / size).scatter_(1, group[:, None], torch.inf).amin(1)
    widest = torch.maximum(inside, outside)
    s = torch.where(widest > 0, (outside - inside) / widest, 0)
    return float(torch.where(own > 1, s, 0).mean())


# Kaufman and Rousseeuw, Finding Groups in Data (1990): below this, "no substantial structure".
STRUCTURE = 0.25


@dataclass(frozen=True)
class Guarded:
    """Labels that were kept or given up, and the silhouette that decided."""

    labels: Tensor
    silhouette: float
    kept: bool


def guard(distance: Tensor, labels: Tensor) -> Guarded:
    """One group for all unless the mean silhouette reaches `STRUCTURE`.

    >>> D = torch.tensor([[0.0, 3.0, 4.0], [3.0, 0.0, 4.0], [4.0, 4.0, 0.0]])
    >>> guard(D, torch.tensor([0, 0, 1])).labels.tolist()
    [0, 0, 0]
    """
    score = silhouette(distance, labels)
    kept = score >= STRUCTURE
    return Guarded(canonical(labels) if kept else torch.zeros_like(labels), score, kept)
