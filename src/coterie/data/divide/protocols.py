"""The test protocols: the client's own split, or the official test set by labels or proportions."""

from __future__ import annotations

import numpy as np

from coterie.data.divide.dealing import Ints, Piles, apportion, choose, label_counts, sizes_of

Rng = np.random.Generator


def own(
    parts: list[Ints], y: Ints, K: int, share: float, rng: Rng
) -> tuple[list[Ints], list[Ints]]:
    """Each client's samples split into training and test, in the proportions of its labels.

    Everyone keeps a training sample, and has a test sample if it has two.
    """
    sizes = sizes_of(parts)
    wanted = np.clip((share * sizes + 0.5).astype(np.int64), np.minimum(1, sizes - 1), sizes - 1)
    test, train = choose(parts, wanted, y, K, rng)
    return train, test


def by_labels(
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


def by_proportions(
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
