"""Groups around centres: which clients the first ones are taken from, and k-means from there."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from coterie.core import checks
from coterie.words.distance import l2
from coterie.words.grouping.labels import nearest
from coterie.words.mixing import mix, within

TRIES = 10  # starts, of which the best is taken: a single one may be a bad one
STEPS = 100  # of one try, which shall not go on for ever


def farthest_first(distance: Tensor, k: int, rng: torch.Generator) -> Tensor:
    """A random client, then again and again the one farthest from all chosen: (n, n) -> (k,).

    `distance[i, j]` leads from i to a centre at j and need not be symmetric. Ties go to the lowest
    index; no client is chosen twice unless k > n, when the same order starts again.

    >>> x = torch.tensor([0.0, 1.0, 10.0, 11.0])
    >>> chosen = farthest_first((x[:, None] - x).abs(), 2, torch.Generator().manual_seed(0))
    >>> sorted((chosen // 2).tolist())
    [0, 1]
    """
    return _seeded(distance, k, rng, lambda gap: gap.argmax())


def kmeanspp(distance: Tensor, k: int, rng: torch.Generator) -> Tensor:
    """A random client, then each with chances as its squared distance to the chosen: -> (k,).

    For a divergence, which is a square already, pass its square root. Where all that are left
    coincide with a chosen one they have equal chances. k > n starts the same order again.

    >>> x = torch.tensor([0.0, 0.0, 10.0])
    >>> chosen = kmeanspp((x[:, None] - x).abs(), 2, torch.Generator().manual_seed(0))
    >>> 2 in chosen.tolist()
    True
    """

    def draw(gap: Tensor) -> Tensor:
        left = gap >= 0
        chance = torch.where(left, gap / gap.max().clamp_min(1e-300), 0).square()
        return torch.multinomial(chance if chance.any() else left.double(), 1, generator=rng)[0]

    return _seeded(distance, k, rng, draw)


def _seeded(
    distance: Tensor, k: int, rng: torch.Generator, pick: Callable[[Tensor], Tensor]
) -> Tensor:
    checks.square(distance, "distance")
    checks.count(k)
    n = len(distance)
    D = distance.double()
    chosen = torch.randint(n, (1,), generator=rng)
    gap = D[:, chosen[0]].clone()
    while len(chosen) < min(k, n):
        gap[chosen] = -1  # never again
        new = pick(gap)
        chosen = torch.cat([chosen, new[None]])
        gap = torch.minimum(gap, D[:, new])
    return chosen[torch.arange(k) % len(chosen)]


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
