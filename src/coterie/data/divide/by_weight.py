"""Samples dealt by weights over clients and labels: all of them, equally many, or so many each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.errors import DataError
from coterie.core.units import count
from coterie.data.divide import dealing
from coterie.data.divide.dealing import Ints, Piles, Reals, Rng
from coterie.data.divide.pool import Pool


def of_sizes(weights: Reals, sizes: Sequence[int], pool: Pool, rng: Rng) -> list[Ints]:
    """So many samples for each client, over the labels by `weights` (n, K)."""
    if len(sizes) != len(weights):
        what = f"{len(sizes)} sizes for {count(len(weights), 'client')}"
        raise DataError(what, code="D039", fix="name as many sizes as there are clients")
    piles = Piles.of(pool.y, pool.K, rng)
    counts = dealing.apportion(weights, np.array(sizes), rng)
    if (short := counts.sum(0) - piles.size).max() > 0:
        k = int(short.argmax())
        raise DataError(
            f"label {pool.labels[k]} has too few samples",
            code="D035",
            why=f"{counts[:, k].sum():,} are wanted, {piles.size[k]:,} are there",
            fix="name smaller sizes, fewer clients, or another seed",
        )
    return piles.deal(counts)


def among_owners(own: NDArray[Any], pool: Pool, rng: Rng) -> list[Ints]:
    """Every label's samples dealt to its owners, near equally or by weight: `own` (n, K)."""
    piles = Piles.of(pool.y, pool.K, rng)
    return piles.deal(dealing.apportion(own.T, piles.size, rng).T)


def evenly(weights: Reals, pool: Pool, rng: Rng) -> list[Ints]:
    """The same number of samples for everyone, as many as there can be: `weights` (n, K)."""
    piles = Piles.of(pool.y, pool.K, rng)
    weights = weights / weights.sum(1, keepdims=True)
    demand = weights.sum(0)
    each = int((piles.size / np.where(demand > 0, demand, 1))[demand > 0].min())
    while each:  # a few steps: whole numbers may need a little more than their shares
        counts = dealing.apportion(weights, np.full(len(weights), each), rng)
        if (counts.sum(0) <= piles.size).all():
            return piles.deal(counts)
        each -= 1
    raise DataError(
        "the scarcest label has fewer samples than owners",
        code="D035",
        why=f"{piles.size[demand > 0].min()} samples, {len(weights)} clients",
        fix="ask for fewer clients, or equal = false",
    )
