"""Groups that hold on what they were not made from.

Each client gives two vectors, of two halves of its data. Groups are found among the ones and must
predict the others; how far apart a client's own two are says how far apart alike is, so that no
distance has to be known beforehand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from coterie.core import checks
from coterie.words.distance import cosine_distance
from coterie.words.grouping.hierarchy import _attached, _merged, tree

EVERY = 64  # numbers of groups up to which each is tried; beyond it, in steps of a tenth


def clear(gains: Tensor) -> float:
    """The mean of some gains, in standard errors of it: (m,) -> t; 0 for fewer than two.

    >>> round(clear(torch.tensor([1.0, 2.0, 3.0])), 2), clear(torch.tensor([5.0]))
    (3.46, 0.0)
    """
    if len(gains) < 2:
        return 0.0
    gains = gains.double()
    return float(gains.mean() / (gains.std() / len(gains) ** 0.5).clamp(min=1e-12))


@dataclass(frozen=True)
class Verified:
    """A grouping, and what speaks for it."""

    labels: Tensor  # (n,) by both halves together
    first: Tensor  # (n,) as many groups by the first half alone
    gain: float  # the part of the other half's spread that the groups explain
    sure: float  # how clear that is, in standard errors over clients
    peers: float  # the error of a client's peers for it, in errors of its own other half: median

    @property
    def k(self) -> int:
        """How many groups."""
        return int(self.labels.max()) + 1


def verified_groups(a: Tensor, b: Tensor) -> Verified:
    """The grouping of one half that best predicts the other: (n, h), (n, h) -> Verified.

    For each number of groups: cut the tree of one half's directions, lone clients attached. How far
    is each client's other half from the mean of its peers' other halves? Then the halves change
    places, and the errors add up. Of the numbers of groups within one standard error of the best
    the smallest is taken.

    >>> a = torch.eye(2).repeat_interleave(3, 0)
    >>> found = verified_groups(a, a + 0.01)
    >>> found.labels.tolist(), round(found.gain, 2), found.peers < 1
    ([0, 0, 0, 1, 1, 1], 1.0, True)
    """
    checks.shaped(a, "a", "n", "h")
    checks.shaped(b, "b", "n", "h")
    n = len(a)
    one = torch.zeros(n, dtype=torch.long)
    a, b = (normalize(half.double(), dim=1) for half in (a, b))
    D = [cosine_distance(a), cosine_distance(b)]
    Z = [tree(distance) for distance in D]

    def grouped(k: int, half: int) -> Tensor:
        return _attached(D[half], _merged(Z[half], n - k))

    errors = {k: spread(b, grouped(k, 0)) + spread(a, grouped(k, 1)) for k in numbers(n)}
    if not errors:
        return Verified(one, one, 0.0, 0.0, torch.inf)
    best = min(errors, key=lambda k: float(errors[k].sum()))
    k = next(k for k in errors if k == best or clear(errors[k] - errors[best]) <= 1)
    together = spread(b, one) + spread(a, one)
    saved = together - errors[k]
    own = 2 * (a - b).square().sum(1)  # both ways, as the errors
    both = cosine_distance(normalize(a + b, dim=1))
    return Verified(
        _attached(both, _merged(tree(both), n - k)),
        grouped(k, 0),
        float(saved.sum() / together.sum().clamp(min=1e-12)),
        clear(saved),
        float((errors[k] / own.clamp(min=1e-12)).median()),
    )


def numbers(n: int) -> Iterator[int]:
    """The numbers of groups that are tried among n clients, from 2 to n/2.

    >>> list(numbers(9)), len(list(numbers(2000)))
    ([2, 3, 4], 92)
    """
    k = 2
    while k <= n // 2:
        yield k
        k += max(1, k // 10) if k >= EVERY else 1


def spread(x: Tensor, labels: Tensor) -> Tensor:
    """|x_i - the mean of its peers|^2, peers being all others where it is alone: (n, h) -> (n,).

    >>> spread(torch.tensor([[0.0], [2.0], [6.0]]), torch.tensor([0, 0, 1])).tolist()
    [4.0, 4.0, 25.0]
    """
    size = labels.bincount()
    total = x.new_zeros(len(size), x.shape[1]).index_add_(0, labels, x)
    peers = (total[labels] - x) / (size[labels] - 1).clamp(min=1)[:, None]
    others = (x.sum(0) - x) / max(len(x) - 1, 1)
    return (x - torch.where((size[labels] > 1)[:, None], peers, others)).square().sum(1)
