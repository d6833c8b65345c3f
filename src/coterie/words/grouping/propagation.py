"""Groups around exemplars (affinity propagation), and whether there are groups at all (Hopkins)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from coterie.core import checks
from coterie.words.grouping.labels import canonical, silhouette

QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.9, 0.95)  # preferences tried by exemplars("silhouette")
DAMPINGS = (0.9, 0.95)  # tried when the given damping does not converge


@dataclass(frozen=True)
class Exemplars:
    """Groups and the client in the middle of each: client `exemplars[c]` stands for group c."""

    labels: Tensor  # (n,), -1 throughout when a bare run did not converge
    exemplars: Tensor  # (k,)
    converged: bool


def affinity_propagation(
    similarity: Tensor, damping: float = 0.5, preference: float | None = None, max_iter: int = 1000
) -> Exemplars:
    """Exemplars that clients agree on by passing messages: (n, n) similarities -> Exemplars.

    `preference`, how ready a client is to be an exemplar, is by default the median similarity of
    two clients. Converged means 15 iterations with the same exemplars; the labels of a run that did
    not converge mean nothing and are all -1. Equal similarities throughout make one group.

    >>> x = torch.tensor([0.0, 1.0, 2.0, 50.0, 51.0, 52.0])
    >>> found = affinity_propagation(-(x[:, None] - x).abs(), damping=0.7)
    >>> found.labels.tolist(), found.exemplars.tolist(), found.converged
    ([0, 0, 0, 1, 1, 1], [1, 4], True)
    """
    checks.square(similarity, "similarity")
    checks.count(max_iter, "max_iter")
    if not 0.5 <= damping < 1:
        raise ValueError(f"damping must lie in [0.5, 1), got {damping}")
    n = len(similarity)
    if n == 1:
        return Exemplars(torch.zeros(1, dtype=torch.long), torch.zeros(1, dtype=torch.long), True)
    from sklearn import cluster  # here: scikit-learn takes seconds to import

    S = similarity.double()
    if preference is None:
        (preference,) = _levels(S, (0.5,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it did not converge is told by n_iter
        middles, labels, n_iter = cluster.affinity_propagation(
            S.cpu().numpy(),
            preference=preference,
            damping=damping,
            max_iter=max_iter,
            random_state=0,
            return_n_iter=True,
        )
    if n_iter >= max_iter or not len(middles):
        return Exemplars(torch.full((n,), -1), torch.zeros(0, dtype=torch.long), False)
    labels = torch.as_tensor(labels).long()
    group = canonical(labels)
    order = torch.zeros(len(middles), dtype=torch.long).scatter_(0, group, labels)
    return Exemplars(group, torch.as_tensor(middles).long()[order], True)


def exemplars(
    distance: Tensor,
    preference: Literal["median", "silhouette"] = "median",
    damping: float = 0.7,
    max_iter: int = 1000,
) -> Exemplars:
    """CFLGT's grouping: affinity propagation on -distance, never trusted before it converges.

    (n, n) -> Exemplars. A run that does not converge is repeated with more damping; if none does,
    everybody is in one group around the medoid and `converged` is False. "silhouette" tries
    several preferences and keeps the best mean silhouette, the fewest groups among equals.

    >>> x = torch.tensor([0.0, 1.0, 2.0, 50.0, 51.0, 52.0])
    >>> exemplars((x[:, None] - x).abs()).labels.tolist()
    [0, 0, 0, 1, 1, 1]
    """
    checks.distances(distance)
    S = -distance.double()
    if preference == "median" or len(S) == 1:
        found = [_converged(S, None, damping, max_iter)]
    elif preference == "silhouette":
        found = [_converged(S, level, damping, max_iter) for level in _levels(S, QUANTILES)]
    else:
        raise ValueError(f"preference must be 'median' or 'silhouette', got {preference!r}")
    runs = [(silhouette(distance, run.labels), run) for run in found if run.converged]
    if not runs:
        medoid = distance.sum(1).argmin()[None]
        return Exemplars(torch.zeros(len(S), dtype=torch.long), medoid, False)
    best = max(score for score, _ in runs)
    return min((r for score, r in runs if score >= best - 1e-12), key=lambda r: len(r.exemplars))


def hopkins(X: Tensor, sample: Tensor, uniform: Tensor, power: float = 1.0) -> float:
    """How clustered points are: about 0.5 for even spread, towards 1 for clusters.

    (n, d) points, (m,) indices of sampled ones, (m, d) points spread evenly. The share of the
    evenly spread points in the sum of all distances to the nearest point. 0.5 where there is
    nothing to tell: one point, or all alike.

    >>> X = torch.tensor([[0.0], [1.0], [9.0], [10.0]])
    >>> hopkins(X, torch.tensor([0]), torch.tensor([[5.0]]))
    0.8
    """
    checks.rows(X, "X")
    checks.rows(uniform, "uniform")
    checks.indices(sample, "sample", len(sample), len(X))
    if len(X) == 1:
        return 0.5
    points = X.double()
    u = _gaps(uniform.double(), points).amin(1)
    own = _gaps(points[sample], points)
    w = own.scatter_(1, sample[:, None], torch.inf).amin(1)
    even, data = float((u**power).sum()), float((w**power).sum())
    return even / (even + data) if even + data > 0 else 0.5


def mean_hopkins(X: Tensor, rng: torch.Generator, draws: int = 20) -> float:
    """The mean of Hopkins statistics, each from a tenth of the points and as many even ones.

    (n, d) -> a number. The even points fill the box around the data; a single draw can mislead.

    >>> X = torch.cat([torch.zeros(20, 2), torch.ones(20, 2)])
    >>> mean_hopkins(X, torch.Generator().manual_seed(0)) > 0.75
    True
    """
    checks.rows(X, "X")
    checks.count(draws, "draws")
    n, d = X.shape
    m = max(1, n // 10)
    low, high = X.amin(0), X.amax(0)
    values = []
    for _ in range(draws):
        sample = torch.randperm(n, generator=rng)[:m]
        even = torch.rand(m, d, generator=rng, dtype=X.dtype)
        values.append(hopkins(X, sample, low + even * (high - low)))
    return sum(values) / draws


def _converged(S: Tensor, preference: float | None, damping: float, max_iter: int) -> Exemplars:
    """The first run that converges as damping grows, or the last that did not."""
    for d in (damping, *(d for d in DAMPINGS if d > damping)):
        run = affinity_propagation(S, d, preference, max_iter)
        if run.converged:
            break
    return run


def _levels(S: Tensor, quantiles: Sequence[float]) -> list[float]:
    """Quantiles of the similarities of two different clients."""
    n = len(S)
    # all but the diagonal, without a mask: each row of n + 1 starts behind a diagonal element
    between = S.contiguous().flatten()[1:].view(n - 1, n + 1)[:, :n].numpy().reshape(-1)
    places = [q * (len(between) - 1) for q in quantiles]
    ends = sorted({end(place) for place in places for end in (math.floor, math.ceil)})
    between = np.partition(between, ends)  # torch.quantile refuses more than 16 million numbers
    levels = []
    for place in places:
        low, high = between[math.floor(place)], between[math.ceil(place)]
        levels.append(float(low + (high - low) * (place % 1)))
    return levels


def _gaps(a: Tensor, b: Tensor) -> Tensor:
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")
