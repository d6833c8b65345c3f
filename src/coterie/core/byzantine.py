"""How many hostile clients a robust merge withstands, and how many answers it takes for that."""

from __future__ import annotations

import math

BEYOND = {"trimmed-mean": 1, "median": 1, "multi-krum": 3, "norm-clip": 1}  # answers beyond 2 f


def hostile(n: int, share: float) -> int:
    """f, how many of n answers may be hostile: the share of them, rounded up.

    >>> [hostile(n, 0.2) for n in (1, 5, 6, 10, 20)]
    [1, 1, 2, 2, 4]
    """
    return math.ceil(share * n - 1e-9)


def needed(rule: str, n: int, share: float) -> int:
    """How many answers a rule takes that withstands the hostile ones among n: 2 f + 1, or 2 f + 3.

    >>> [needed("multi-krum", n, 0.2) for n in (4, 5, 10, 20)]
    [5, 5, 7, 11]
    """
    return 2 * hostile(n, share) + BEYOND[rule]
