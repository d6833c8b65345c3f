"""The words of dealing: piles of samples by label, shares made whole, small clients topped up.

n clients, K labels, N samples. Whoever holds samples holds a sorted array of their indices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Reals = NDArray[np.float64]
REDRAWS = 1000  # at most, and
NUMBERS = 1_000_000  # no more than this many numbers drawn in all


def apportion(weights: NDArray[Any], totals: NDArray[Any], rng: np.random.Generator) -> Ints:
    """Whole numbers (r, c) whose rows add up to `totals` (r,) and follow `weights` (r, c).

    By largest remainders, ties at random; a weight of zero gets nothing, and a row of zeros is
    left at zero.

    >>> apportion(np.array([[3, 1, 0]]), np.array([5]), np.random.default_rng(0)).tolist()
    [[4, 1, 0]]
    """
    whole = weights.sum(1, keepdims=True)
    exact = weights / np.where(whole > 0, whole, 1) * totals[:, None]
    counts: Ints = np.floor(exact).astype(np.int64)
    left = np.where(whole[:, 0] > 0, totals - counts.sum(1), 0)
    order = np.lexsort((rng.random(exact.shape), counts - exact), axis=-1)
    extra = (np.arange(weights.shape[1]) < left[:, None]).astype(np.int64)
    np.put_along_axis(counts, order, np.take_along_axis(counts, order, 1) + extra, 1)
    return counts


@dataclass(frozen=True)
class Piles:
    """Samples in one shuffled pile a label."""

    order: Ints  # (N,) samples, pile after pile
    start: Ints  # (K,) where each pile begins
    size: Ints  # (K,)

    @classmethod
    def of(cls, y: Ints, K: int, rng: np.random.Generator) -> Piles:
        """The piles of labels y (N,)."""
        size = np.bincount(y, minlength=K)
        return cls(np.lexsort((rng.random(len(y)), y)), np.cumsum(size) - size, size)

    def take(self, first: Ints, counts: Ints) -> list[Ints]:
        """Samples for each client: `counts` (n, K) of them from each pile, from `first` (n, K) on.

        A pile that ends begins again, so a client never gets a sample twice while its count is no
        more than the pile.
        """
        n, K = counts.shape
        cell = np.repeat(np.arange(n * K), counts.ravel())
        within = np.arange(len(cell)) - np.repeat(
            np.cumsum(counts) - counts.ravel(), counts.ravel()
        )
        label = cell % K
        index = self.order[self.start[label] + (first.ravel()[cell] + within) % self.size[label]]
        ordered = np.sort(cell // K * len(self.order) + index) % len(self.order)
        return cut(ordered, counts.sum(1))

    def deal(self, counts: Ints) -> list[Ints]:
        """Samples for each client, one after the other from the top of each pile."""
        return self.take(np.cumsum(counts, 0) - counts, counts)


def cut(values: NDArray[Any], sizes: Ints) -> list[NDArray[Any]]:
    """One array cut into pieces of these sizes."""
    return np.split(values, np.cumsum(sizes)[:-1])


def gather(holder: Ints, n: int) -> list[Ints]:
    """The samples of each client, from the holder (N,) of each sample; -1 is nobody.

    >>> [part.tolist() for part in gather(np.array([1, 0, -1, 1]), 2)]
    [[1], [0, 3]]
    """
    held = np.bincount(holder + 1, minlength=n + 1)
    return cut(np.argsort(holder, kind="stable"), held)[1:]


def sizes_of(parts: list[Ints]) -> Ints:
    """How many samples each client has."""
    return np.array([len(part) for part in parts], dtype=np.int64)


def label_counts(parts: list[Ints], y: Ints, K: int) -> Ints:
    """(n, K) how many samples of each label each client has."""
    who = np.repeat(np.arange(len(parts)), sizes_of(parts))
    cells = who * K + y[np.concatenate(parts)]
    return np.bincount(cells, minlength=len(parts) * K).reshape(len(parts), K)


def choose(
    parts: list[Ints], wanted: Ints, y: Ints, K: int, rng: np.random.Generator
) -> tuple[list[Ints], list[Ints]]:
    """`wanted` (n,) of each client's samples, in the proportions of its labels; and the rest."""
    sizes = sizes_of(parts)
    index = np.concatenate(parts)
    who = np.repeat(np.arange(len(parts)), sizes)
    cell = who * K + y[index]
    counts = np.bincount(cell, minlength=len(parts) * K)
    quota = apportion(counts.reshape(-1, K), wanted, rng).ravel()
    order = np.lexsort((rng.random(len(index)), cell))
    rank = np.empty_like(order)
    rank[order] = np.arange(len(index)) - (np.cumsum(counts) - counts)[cell[order]]
    chosen = rank < quota[cell]
    return cut(index[chosen], wanted), cut(index[~chosen], sizes - wanted)


def dirichlet_counts(
    totals: Ints, n: int, alpha: float, least: int, rng: np.random.Generator
) -> tuple[Ints, int]:
    """(n, K) how many of each label's `totals` (K,) each client gets, by a Dirichlet a label.

    Drawn again while someone gets fewer than `least`; when the draws are used up, the one that
    misses the fewest samples. The number of draws comes with it.
    """
    draws = max(1, min(REDRAWS, NUMBERS // (n * len(totals))))
    best, fewest = np.zeros((n, len(totals)), dtype=np.int64), np.inf
    for draw in range(1, draws + 1):
        q = rng.dirichlet(np.full(n, min(alpha, 1e9)), size=len(totals))  # beyond 1e9 all is equal
        edges = np.floor(np.cumsum(q, 1) * totals[:, None]).astype(np.int64)
        edges[:, -1] = totals
        counts = np.diff(np.minimum(edges, totals[:, None]), prepend=0, axis=1).T
        missing = np.maximum(least - counts.sum(1), 0).sum()
        if missing < fewest:
            best, fewest = counts, missing
        if not missing:
            return best, draw
    return best, draws


def level(parts: list[Ints], least: int, rng: np.random.Generator) -> tuple[list[Ints], int, int]:
    """The same samples with at least `least` for everyone: the largest clients give random ones.

    Also how many samples moved, and to how many clients. There must be n * least samples.
    """
    sizes = sizes_of(parts)
    need = np.maximum(least - sizes, 0)
    moved = int(need.sum())
    # The height to which the largest clients are cut down: the greatest that frees enough.
    low, high = least, int(sizes.max()) + 1
    while high - low > 1:
        middle = (low + high) // 2
        enough = np.maximum(sizes - middle, 0).sum() >= moved
        low, high = (middle, high) if enough else (low, middle)
    give = np.maximum(sizes - low, 0)
    donors = give.nonzero()[0]
    give[donors[: int(give.sum()) - moved]] -= 1
    mixed = [rng.permutation(part) for part in parts]
    freed = np.concatenate([part[:g] for part, g in zip(mixed, give, strict=True)])
    gifts = cut(rng.permutation(freed), need)
    kept = [part[g:] for part, g in zip(mixed, give, strict=True)]
    joined = [np.sort(np.concatenate(pair)) for pair in zip(kept, gifts, strict=True)]
    return joined, moved, int((need > 0).sum())
