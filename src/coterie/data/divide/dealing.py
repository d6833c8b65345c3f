"""The words of dealing: piles by label, shares made whole, small clients topped up, test sets.

n clients, K labels, N samples. Whoever holds samples holds a sorted array of their indices.
"""

from __future__ import annotations

from bisect import bisect
from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.errors import DataError

Ints = NDArray[np.int64]
Reals = NDArray[np.float64]
Rng = np.random.Generator
REDRAWS = 1000  # at most, and
NUMBERS = 1_000_000  # no more than this many numbers drawn in all


def apportion(weights: NDArray[Any], totals: NDArray[Any], rng: Rng) -> Ints:
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
    def of(cls, y: Ints, K: int, rng: Rng) -> Piles:
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
    parts: list[Ints], wanted: Ints, y: Ints, K: int, rng: Rng
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
    totals: Ints, n: int, alpha: float, least: int, rng: Rng, *, cap: bool = False
) -> tuple[Ints, int]:
    """(n, K) how many of each label's `totals` (K,) each client gets, by a Dirichlet a label.

    Drawn again while someone gets fewer than `least`; when the draws are used up, the one that
    misses the fewest samples. The number of draws comes with it.
    """
    draws = max(1, min(REDRAWS, NUMBERS // (n * len(totals))))
    best, fewest = np.zeros((n, len(totals)), dtype=np.int64), np.inf
    for draw in range(1, draws + 1):
        q = rng.dirichlet(np.full(n, min(alpha, 1e9)), size=len(totals))  # beyond 1e9 all is equal
        counts = capped(q, totals) if cap else shared_out(q, totals).T
        missing = np.maximum(least - counts.sum(1), 0).sum()
        if missing < fewest:
            best, fewest = counts, missing
        if not missing:
            return best, draw
    return best, draws


def shared_out(q: Reals, totals: Ints) -> Ints:
    """(K, n) each label's total (K,) cut where the shares q (K, n) add up to."""
    edges = np.floor(np.cumsum(q, 1) * totals[:, None]).astype(np.int64)
    edges[:, -1] = totals
    return np.diff(np.minimum(edges, totals[:, None]), prepend=0, axis=1)


def capped(q: Reals, totals: Ints) -> Ints:
    """(n, K) label after label, and nothing of it for a client that has N / n samples already.

    >>> capped(np.array([[0.75, 0.25], [0.5, 0.5]]), np.array([8, 8])).tolist()
    [[6, 4], [2, 4]]
    >>> capped(np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([8, 8])).tolist()
    [[8, 0], [0, 8]]
    """
    counts = np.zeros(q.T.shape, dtype=np.int64)
    for k, share in enumerate(q):
        open_ = share * (counts.sum(1) < totals.sum() / len(counts))
        share = open_ / open_.sum() if open_.sum() > 0 else share
        counts[:, k] = shared_out(share[None], totals[k : k + 1])[0]
    return counts


def level(parts: list[Ints], least: int, rng: Rng) -> tuple[list[Ints], int, int]:
    """The same samples with at least `least` for everyone: the largest clients give random ones.

    Also how many samples moved, and to how many clients. There must be n * least samples.
    """
    sizes = sizes_of(parts)
    need = np.maximum(least - sizes, 0)
    moved = int(need.sum())
    # The height to which the largest clients are cut down: the greatest that frees enough.
    heights = range(least + 1, int(sizes.max()) + 1)
    low = least + bisect(heights, 0, key=lambda h: np.maximum(sizes - h, 0).sum() < moved)
    give = np.maximum(sizes - low, 0)
    donors = give.nonzero()[0]
    give[donors[: int(give.sum()) - moved]] -= 1
    mixed = [rng.permutation(part) for part in parts]
    freed = np.concatenate([part[:g] for part, g in zip(mixed, give, strict=True)])
    gifts = cut(rng.permutation(freed), need)
    kept = [part[g:] for part, g in zip(mixed, give, strict=True)]
    joined = [np.sort(np.concatenate(pair)) for pair in zip(kept, gifts, strict=True)]
    return joined, moved, int((need > 0).sum())


def split_own(
    parts: list[Ints], y: Ints, K: int, share: float, rng: Rng
) -> tuple[list[Ints], list[Ints]]:
    """Each client's samples split into training and test, in the proportions of its labels.

    Everyone keeps a training sample, and has a test sample if it has two.
    """
    sizes = sizes_of(parts)
    wanted = np.clip((share * sizes + 0.5).astype(np.int64), np.minimum(1, sizes - 1), sizes - 1)
    test, train = choose(parts, wanted, y, K, rng)
    return train, test


def official_by_labels(
    parts: list[Ints], y: Ints, y_test: Ints, K: int, share: float, rng: Rng
) -> list[Ints]:
    """Official test samples of the labels that a client owns: all, or a share of each label.

    A share is drawn for each client, at least one sample a label; clients may have the same ones.
    """
    owned = label_counts(parts, y, K) > 0
    piles = Piles.of(y_test, K, rng)
    if share == 1:  # clients with the same labels have the very same array
        sets, place = np.unique(owned, axis=0, return_inverse=True)
        counts = np.where(sets, piles.size, 0)
        shared = piles.take(np.zeros_like(counts), counts)
        return [shared[i] for i in place.reshape(-1)]
    each = np.maximum((share * piles.size + 0.5).astype(np.int64), np.minimum(1, piles.size))
    # Neighbours in a shuffled pile, from a random place on, are a random choice.
    first = rng.integers(np.maximum(piles.size, 1), size=owned.shape)
    return piles.take(first, np.where(owned, each, 0))


def official_by_proportions(
    parts: list[Ints], y: Ints, y_test: Ints, K: int, share: float, rng: Rng
) -> list[Ints]:
    """The official test set, or a share of it, split as the labels of the training set are.

    A client that would get nothing gets one sample of its most frequent label, which another
    client has too.
    """
    counts = label_counts(parts, y, K)
    piles = Piles.of(y_test, K, rng)
    quota = apportion(counts.T, (share * piles.size + 0.5).astype(np.int64), rng).T
    first = np.cumsum(quota, 0) - quota
    nothing = np.flatnonzero(quota.sum(1) == 0)
    likely = np.where(piles.size > 0, counts, 0)[nothing]
    quota[nothing, likely.argmax(1)] = likely.max(1, initial=0) > 0
    return piles.take(first, quota)


def first_of(preference: NDArray[Any], k: int) -> NDArray[np.bool_]:
    """(r, c) the k smallest entries of each row."""
    chosen = np.zeros(preference.shape, dtype=bool)
    np.put_along_axis(chosen, preference.argsort(1)[:, :k], True, 1)
    return chosen


def label_sets(sets: int, labels: int, K: int, repeat: bool, rng: Rng) -> NDArray[np.bool_]:
    """(sets, K) so many sets of labels; unless they may repeat, one like an earlier is redrawn."""
    there = comb(K, labels)
    if sets > there and not repeat:
        raise DataError(
            f"{K} labels have only {there:,} sets of {labels}, not {sets:,}",
            code="D031",
            fix=f"lower sets to at most {there:,}, or let them repeat: repeat = true",
        )
    drawn = first_of(rng.random((sets, K)), labels)
    while not repeat:
        _, first = np.unique(drawn, axis=0, return_index=True)
        again = np.setdiff1d(np.arange(sets), first)
        if not len(again):
            break
        drawn[again] = first_of(rng.random((len(again), K)), labels)
    return drawn
