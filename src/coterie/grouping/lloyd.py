"""k-means: groups around means, each client with the mean nearest to it."""

from __future__ import annotations

import torch
from torch import Tensor

from coterie import checks
from coterie.distance import l2
from coterie.grouping.labels import nearest
from coterie.grouping.seeding import kmeanspp
from coterie.mixing import mix, within


def kmeans(rows: Tensor, k: int, rng: torch.Generator, most: int = 100) -> Tensor:
    """Lloyd's k-means from a k-means++ start: (n, P) -> labels (n,), at most k of them.

    Labels are the numbers of the centres and may skip one: a centre nobody is nearest to keeps its
    place. Ends when nobody moves, after `most` steps in any case.

    >>> rows = torch.tensor([[0.0], [1.0], [50.0], [51.0]])
    >>> labels = kmeans(rows, 2, torch.Generator().manual_seed(0))
    >>> bool(labels[0] == labels[1]), bool(labels[1] == labels[2]), bool(labels[2] == labels[3])
    (True, False, True)
    """
    checks.rows(rows)
    checks.count(most, "most")
    centres = rows[kmeanspp(l2(rows), k, rng)]
    labels = nearest(rows, centres)
    for _ in range(most):
        centres = mix(within(labels, torch.ones(len(rows)), k), rows, keep=centres)
        before, labels = labels, nearest(rows, centres)
        if torch.equal(before, labels):
            break
    return labels
