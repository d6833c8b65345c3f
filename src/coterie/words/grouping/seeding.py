"""Seeding: which clients the first centres are taken from."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from coterie.core import checks


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
