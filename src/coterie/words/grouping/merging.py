"""Agglomerative clustering of few: the merges that scipy would find, to the bit, without scipy.

To import scipy's clustering takes longer than a short run trains. For many rows it is the faster
one, and is asked; the tests hold both to each other.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
FEW = 2000  # rows up to which this is the quicker way, scipy's import counted


def merges(square: Floats, linkage: str) -> Floats:
    """(n, n) symmetric distances -> (n-1, 4) as `scipy.cluster.hierarchy.linkage` has them."""
    found = spanning(square) if linkage == "single" else chained(square, linkage)
    found = found[np.argsort(found[:, 2], kind="stable")]
    return numbered(found)


def chained(square: Floats, linkage: str) -> Floats:
    """Merges by chains of nearest neighbours: who is nearest to each other is merged."""
    n = len(square)
    D = square.copy()
    np.fill_diagonal(D, np.inf)
    size, chain = np.ones(n), list[int]()
    found = np.empty((n - 1, 4))
    for k in range(n - 1):
        if not chain:
            chain = [int(np.flatnonzero(size)[0])]
        while True:
            x = chain[-1]
            y = int(D[x].argmin())
            if len(chain) > 1 and D[x, chain[-2]] <= D[x, y]:  # the one before wins a tie
                y = chain[-2]
                break
            chain.append(y)
        height = D[x, y]
        del chain[-2:]
        x, y = min(x, y), max(x, y)
        both = size[x] + size[y]
        found[k] = x, y, height, both
        if linkage == "complete":
            row = np.maximum(D[x], D[y])
        else:
            row = (size[x] * D[x] + size[y] * D[y]) / both
        size[x], size[y] = 0, both
        row[[x, y]] = np.inf
        D[y] = D[:, y] = row
        D[x] = D[:, x] = np.inf
    return found


def spanning(square: Floats) -> Floats:
    """Merges along the shortest tree that reaches everybody: single linkage."""
    n, x = len(square), 0
    near, reached = np.full(n, np.inf), np.zeros(n, bool)
    found = np.empty((n - 1, 4))
    for k in range(n - 1):
        reached[x] = True
        near = np.minimum(near, square[x])
        y = int(np.where(reached, np.inf, near).argmin())
        found[k] = x, y, near[y], 0
        x = y
    return found


def numbered(found: Floats) -> Floats:
    """Merges in order, by the numbers of what is merged: rows first, then earlier merges."""
    n = len(found) + 1
    group, size = list(range(2 * n - 1)), [1] * n + [0] * (n - 1)

    def top(i: int) -> int:
        while group[i] != i:
            group[i] = group[group[i]]
            i = group[i]
        return i

    for k, (a, b, _, _) in enumerate(found):
        x, y = sorted((top(int(a)), top(int(b))))
        group[x] = group[y] = n + k
        size[n + k] = size[x] + size[y]
        found[k, 0], found[k, 1], found[k, 3] = x, y, size[n + k]
    return found
