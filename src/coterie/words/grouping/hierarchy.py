"""Agglomerative clustering: a tree of merges, the ways to cut it, and one group split in two."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from coterie.core import checks
from coterie.words.grouping.labels import STRUCTURE, canonical, joined, silhouette
from coterie.words.grouping.merging import FEW, merges
from coterie.words.mixing import average

Linkage = Literal["average", "single", "complete"]


def tree(distance: Tensor, linkage: Linkage = "average") -> Tensor:
    """The merges in scipy's form: (n, n) -> (n-1, 4) float64, heights ascending in column 2.

    >>> tree(torch.tensor([[0.0, 1.0, 4.0], [1.0, 0.0, 2.0], [4.0, 2.0, 0.0]])).tolist()
    [[0.0, 1.0, 1.0, 2.0], [2.0, 3.0, 3.0, 3.0]]
    """
    checks.distances(distance)
    if linkage not in get_args(Linkage):
        raise ValueError(f"linkage must be one of {get_args(Linkage)}, got {linkage!r}")
    if len(distance) == 1:
        return torch.zeros(0, 4, dtype=torch.float64)
    if len(distance) <= FEW:
        D = distance.double().clamp_min(0)
        return torch.from_numpy(merges(((D + D.T) / 2).numpy(), linkage))
    from scipy.cluster import hierarchy  # here: scipy takes a while to import

    return torch.from_numpy(hierarchy.linkage(_condensed(distance), method=linkage))


def heights(distance: Tensor, linkage: Linkage = "average") -> Tensor:
    """The distances at which groups merge, ascending: (n, n) -> (n-1,) float64.

    >>> heights(torch.tensor([[0.0, 1.0, 4.0], [1.0, 0.0, 2.0], [4.0, 2.0, 0.0]])).tolist()
    [1.0, 3.0]
    """
    return tree(distance, linkage)[:, 2]


def cut(distance: Tensor, threshold: float, linkage: Linkage = "average") -> Tensor:
    """Labels after every merge of height <= threshold: (n, n) -> (n,).

    >>> D = torch.tensor([[0.0, 8.0, 24.0], [8.0, 0.0, 24.0], [24.0, 24.0, 0.0]])
    >>> cut(D, 8.0).tolist(), cut(D, 7.5).tolist(), cut(D, 24.0).tolist()
    ([0, 0, 1], [0, 1, 2], [0, 0, 0])
    """
    if not threshold >= 0:
        raise ValueError(f"threshold must not be negative or NaN, got {threshold}")
    Z = tree(distance, linkage)
    return _merged(Z, int((Z[:, 2] <= threshold).sum()))


def cut_k(distance: Tensor, k: int, linkage: Linkage = "average") -> Tensor:
    """Labels when exactly k groups are left, or n where k is more than that: (n, n) -> (n,).

    >>> D = torch.tensor([[0.0, 8.0, 24.0], [8.0, 0.0, 24.0], [24.0, 24.0, 0.0]])
    >>> cut_k(D, 2).tolist(), cut_k(D, 9).tolist()
    ([0, 0, 1], [0, 1, 2])
    """
    checks.count(k)
    return _merged(tree(distance, linkage), max(len(distance) - k, 0))


CLEAR = 1.15  # the least ratio of a gap: neighbouring heights always differ a little


@dataclass(frozen=True)
class Cut:
    """Where a tree was cut, and how clear the cut is."""

    labels: Tensor  # (n,)
    threshold: float  # cut() at this height gives the groups before lone clients are attached
    ratio: float  # of the first height left out to the last one taken
    silhouette: float
    k: int


def auto_cut(distance: Tensor, linkage: Linkage = "average", attach: bool = True) -> Cut:
    """The tree cut at its widest relative gap between heights: (n, n) -> Cut.

    Only cuts count that leave 2 to n/2 groups, two of them with more than one client. `attach`
    then gives clients that are alone to the nearest larger group (mean distance). One group for
    all when no cut counts, the gap is narrower than `CLEAR`, or the silhouette falls below
    `STRUCTURE`; ratio and silhouette are then those of the cut that was refused.

    >>> x = torch.tensor([0.0, 1.0, 2.0, 50.0, 51.0, 52.0])
    >>> found = auto_cut((x[:, None] - x).abs())
    >>> found.labels.tolist(), found.k, round(found.ratio, 1)
    ([0, 0, 0, 1, 1, 1], 2, 33.3)
    """
    n = len(distance)
    Z = tree(distance, linkage)
    h = Z[:, 2]
    one = torch.zeros(n, dtype=torch.long)
    top = float(h[-1]) if n > 1 else 0.0
    # i merges leave n - i groups; a merge of two lone clients makes a group, of two groups ends one
    larger = (1 - (Z[:, :2] >= n).sum(1)).cumsum(0)
    merges = torch.arange(max(n - n // 2, 1), max(n - 1, 1))
    merges = merges[larger[merges - 1] >= 2]
    if not len(merges):
        return Cut(one, top, 1.0, 0.0, 1)
    low, high = h[merges - 1], h[merges]
    ratios = torch.where(high > low, high / low, 1.0)
    best = int(ratios.argmax())
    labels = _merged(Z, int(merges[best]))
    if attach:
        labels = _attached(distance, labels)
    ratio, score = float(ratios[best]), silhouette(distance, labels)
    if ratio < CLEAR or score < STRUCTURE:
        return Cut(one, top, ratio, score, 1)
    return Cut(labels, float((low[best] * high[best]).sqrt()), ratio, score, int(labels.max()) + 1)


NEAR = 1.5  # times the distance to the nearest other client: as far as clients that are alike
DOUBTLESS = 10.0  # a gap so many times as wide as what lies below it needs no such measure


def neighbour_cut(distance: Tensor, linkage: Linkage = "average") -> Cut:
    """The tree cut where clients are no nearer than neighbours are: (n, n) -> Cut.

    The threshold is `NEAR` times the median distance to the nearest other client, which is about
    what two alike clients differ by; a widest gap (`auto_cut`) of `DOUBTLESS` is taken instead.
    Clients that are alone join the nearest larger group. One group for all when the silhouette
    falls below `STRUCTURE`.

    >>> x = torch.tensor([0.0, 1.0, 2.0, 50.0, 51.0, 52.0])
    >>> neighbour_cut((x[:, None] - x).abs()).labels.tolist()
    [0, 0, 0, 1, 1, 1]
    """
    n = len(distance)
    one = torch.zeros(n, dtype=torch.long)
    gap = auto_cut(distance, linkage)
    if n < 2 or (gap.k > 1 and gap.ratio >= DOUBTLESS):
        return gap
    others = distance.double().masked_fill(torch.eye(n, dtype=torch.bool), torch.inf)
    threshold = NEAR * float(others.min(1).values.median())
    labels = cut(distance, threshold, linkage)
    labels = _attached(distance, labels) if (labels.bincount() > 1).any() else one
    score = silhouette(distance, labels)
    if score < STRUCTURE:
        return Cut(one, threshold, 1.0, score, 1)
    return Cut(labels, threshold, 1.0, score, int(labels.max()) + 1)


def agglomerate(
    distance: Tensor,
    threshold: float | None = None,
    clusters: int = 0,
    linkage: Linkage = "average",
    attach: bool = True,
) -> Tensor:
    """Labels from whatever the user knows: (n, n) -> (n,).

    With `clusters`, that many groups; else with `threshold`, every merge up to it; with neither,
    the cut that the distances themselves suggest (`auto_cut`), which may be one group for all.

    >>> D = torch.tensor([[0.0, 8.0, 24.0], [8.0, 0.0, 24.0], [24.0, 24.0, 0.0]])
    >>> agglomerate(D, clusters=3).tolist(), agglomerate(D, threshold=9.0).tolist()
    ([0, 1, 2], [0, 0, 1])
    """
    if clusters:
        return cut_k(distance, clusters, linkage)
    if threshold is not None:
        return cut(distance, threshold, linkage)
    return auto_cut(distance, linkage, attach=attach).labels


@dataclass(frozen=True)
class Curve:
    """What each threshold would give: `k[i]` groups from `threshold[i]` up to the next one."""

    threshold: Tensor  # (c,) ascending
    k: Tensor  # (c,) descending
    silhouette: Tensor  # (c,)


def curve(distance: Tensor, linkage: Linkage = "average", most: int = 50) -> Curve:
    """All cuts of one tree that leave at most `most` groups: threshold, groups, silhouette.

    >>> D = torch.tensor([[0.0, 1.0, 4.0], [1.0, 0.0, 4.0], [4.0, 4.0, 0.0]])
    >>> found = curve(D)
    >>> found.threshold.tolist(), found.k.tolist(), found.silhouette.tolist()
    ([0.0, 1.0, 4.0], [3, 2, 1], [0.0, 0.5, 0.0])
    """
    checks.count(most, "most")
    n = len(distance)
    Z = tree(distance, linkage)
    h = torch.cat([torch.zeros(1, dtype=torch.float64), Z[:, 2]])  # h[i]: the height of i merges
    ends = torch.cat([h[1:] > h[:-1], torch.ones(1, dtype=torch.bool)])  # no threshold splits a tie
    merges = [i for i in range(max(n - most, 0), n) if ends[i]]
    scores = [silhouette(distance, _merged(Z, i)) for i in merges]
    return Curve(h[merges], n - torch.tensor(merges), torch.tensor(scores, dtype=torch.float64))


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


def _condensed(distance: Tensor) -> np.ndarray:
    """Distances above the diagonal, row by row, in float64: the only large thing linkage needs."""
    n = len(distance)
    flat = np.empty(n * (n - 1) // 2)
    end = 0
    for i in range(n - 1):
        row, column = distance[i, i + 1 :].double(), distance[i + 1 :, i].double()
        start, end = end, end + n - 1 - i
        flat[start:end] = (row.clamp_min(0) + column.clamp_min(0)).div_(2).numpy()
    return flat


def _merged(Z: Tensor, merges: int) -> Tensor:
    """Labels (n,) after the first merges of a tree."""
    n = len(Z) + 1
    child = Z[:merges, :2].numpy().astype(np.int64)
    parent = np.arange(n, n + merges)
    return joined(child.T.ravel(), np.tile(parent, 2), n + merges, n)


def _attached(distance: Tensor, labels: Tensor) -> Tensor:
    """Labels with clients that are alone given to the group at the smallest mean distance."""
    size = labels.bincount()
    alone = size[labels] == 1
    if not alone.any():
        return labels
    D = distance[alone].double()
    mean = D.new_zeros(len(D), len(size)).index_add_(1, labels, D) / size
    labels = labels.clone()
    labels[alone] = mean.masked_fill_(size == 1, torch.inf).argmin(1)
    return canonical(labels)
