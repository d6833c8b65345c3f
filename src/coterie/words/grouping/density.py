"""Groups where clients lie densely: DBSCAN on their distances."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from coterie.core import checks
from coterie.words.grouping.labels import canonical

LEAST = 3  # clients within reach, itself included, that make a client a member of a core


def dbscan(distance: Tensor, eps: float | None = None) -> Tensor:
    """Labels of DBSCAN: (n, n) -> (n,). Who belongs to no dense group has one of its own.

    Without `eps`, clients are within reach of each other up to twice the median distance to the
    nearest one.

    >>> x = torch.tensor([0.0, 1.0, 2.0, 50.0, 51.0, 52.0, 90.0])
    >>> dbscan((x[:, None] - x).abs()).tolist()
    [0, 0, 0, 1, 1, 1, 2]
    """
    checks.distances(distance)
    n = len(distance)
    D = distance.double()
    if eps is None:
        others = D.masked_fill(torch.eye(n, dtype=torch.bool), torch.inf)
        eps = 2 * float(others.min(1).values.median()) if n > 1 else 1.0
    from sklearn.cluster import DBSCAN  # here: scikit-learn takes a while to import

    found = DBSCAN(eps=max(eps, 1e-300), min_samples=LEAST, metric="precomputed").fit_predict(D)
    alone = np.flatnonzero(found < 0)
    found[alone] = found.max(initial=-1) + 1 + np.arange(len(alone))
    return canonical(torch.from_numpy(found.astype(np.int64)))
