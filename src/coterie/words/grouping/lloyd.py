"""k-means: groups around means, each client with the mean nearest to it."""

from __future__ import annotations

import torch
from torch import Tensor

from coterie.core import checks
from coterie.words.distance import l2
from coterie.words.grouping.labels import nearest
from coterie.words.grouping.seeding import kmeanspp
from coterie.words.mixing import mix, within

TRIES = 10  # starts, of which the best is taken: a single one may be a bad one
STEPS = 100  # of one try, which shall not go on for ever


def kmeans(rows: Tensor, k: int, rng: torch.Generator) -> Tensor:
    """k-means from the best of several k-means++ starts: (n, P) -> labels (n,), at most k of them.

    The best is the one with the least squared distance to the means. Labels are the numbers of the
    centres and may skip one: a centre nobody is nearest to keeps its place. A try ends when nobody
    moves, after `STEPS` in any case.

    >>> rows = torch.tensor([[0.0], [1.0], [50.0], [51.0]])
    >>> labels = kmeans(rows, 2, torch.Generator().manual_seed(0))
    >>> bool(labels[0] == labels[1]), bool(labels[1] == labels[2]), bool(labels[2] == labels[3])
    (True, False, True)
    """
    checks.rows(rows)
    D = l2(rows)
    found = [lloyd(rows, rows[kmeanspp(D, k, rng)]) for _ in range(TRIES)]
    return min(found, key=lambda labels: inertia(D, labels))


def lloyd(rows: Tensor, centres: Tensor) -> Tensor:
    """(n,) whose centre each row is nearest to, once centres are the means of their rows."""
    labels = nearest(rows, centres)
    for _ in range(STEPS):
        W = within(labels, torch.ones(len(rows)), len(centres))
        centres = mix(W, rows, keep=centres)
        before, labels = labels, nearest(rows, centres)
        if torch.equal(before, labels):
            break
    return labels


def inertia(distance: Tensor, labels: Tensor) -> float:
    """The squared distances of all rows to the means of their groups, from those between rows.

    >>> inertia(torch.tensor([[0.0, 2.0], [2.0, 0.0]]), torch.tensor([0, 0]))
    2.0
    """
    groups = [distance[labels == c][:, labels == c].double() for c in labels.unique()]
    return float(sum((d.square().sum() / (2 * len(d)) for d in groups), torch.zeros(())))
