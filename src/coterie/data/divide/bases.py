"""The bases: who gets which samples. One function a kind, found by the kind's type."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

import numpy as np

from coterie.core.errors import DataError
from coterie.core.units import count
from coterie.data import kinds
from coterie.data.divide import dealing
from coterie.data.divide.by_weight import among_owners, evenly, of_sizes
from coterie.data.divide.dealing import REDRAWS, Ints, Piles, Rng, gather, sizes_of
from coterie.data.divide.pool import Dealt as Dealt
from coterie.data.divide.pool import Pool as Pool


@singledispatch
def hand_out(kind: kinds.Kind, pool: Pool, n: int, rng: Rng) -> Dealt:
    """The samples of each of n clients, by a base."""
    raise TypeError(f"{type(kind).__name__} hands out no samples")


@hand_out.register
def _(kind: kinds.IID, pool: Pool, n: int, rng: Rng) -> Dealt:
    if kind.stratified:
        everybody = np.ones((n, pool.K), dtype=bool)
        return Dealt(among_owners(everybody, pool, rng), np.zeros(n, dtype=np.int64))
    turn = np.arange(len(pool)) * n // len(pool)
    return Dealt(gather(rng.permutation(turn), n), np.zeros(n, dtype=np.int64))


@hand_out.register
def _(kind: kinds.Dirichlet, pool: Pool, n: int, rng: Rng) -> Dealt:
    totals = np.bincount(pool.y, minlength=pool.K)
    enough(len(pool), n, kind.min_samples)
    counts, draws = dealing.dirichlet_counts(
        totals, n, kind.alpha, kind.min_samples, rng, cap=kind.cap
    )
    parts = Piles.of(pool.y, pool.K, rng).deal(counts)
    return topped_up(parts, kind, draws, rng)


@hand_out.register
def _(kind: kinds.QuantityDirichlet, pool: Pool, n: int, rng: Rng) -> Dealt:
    enough(len(pool), n, kind.min_samples)
    total = np.array([len(pool)])
    counts, draws = dealing.dirichlet_counts(total, n, kind.alpha, kind.min_samples, rng)
    parts = [np.sort(part) for part in dealing.cut(rng.permutation(len(pool)), counts[:, 0])]
    return topped_up(parts, kind, draws, rng, np.zeros(n, dtype=np.int64))


@hand_out.register
def _(kind: kinds.Shards, pool: Pool, n: int, rng: Rng) -> Dealt:
    shards = n * kind.per_client
    if shards > len(pool):
        raise DataError(
            f"{len(pool):,} samples cannot be cut into {shards:,} shards",
            code="D030",
            why=f"{count(n, 'client')} with {count(kind.per_client, 'shard')} each",
            fix=f"ask for at most {len(pool) // kind.per_client:,} clients, or lower per_client",
        )
    holder = np.empty(len(pool), dtype=np.int64)
    owner = rng.permutation(shards) // kind.per_client
    by_label = np.lexsort((rng.random(len(pool)), pool.y))
    holder[by_label] = owner[np.arange(len(pool)) * shards // len(pool)]
    return Dealt(gather(holder, n))


@hand_out.register
def _(kind: kinds.Classes, pool: Pool, n: int, rng: Rng) -> Dealt:
    enough_labels(kind, pool.K)
    preference = rng.random((n, pool.K))
    preference[np.arange(n), np.arange(n) % pool.K] = -1
    return Dealt(among_owners(dealing.first_of(preference, kind.per_client), pool, rng))


@hand_out.register
def _(kind: kinds.LabelSkew, pool: Pool, n: int, rng: Rng) -> Dealt:
    each = max(1, int(kind.share * pool.K + 0.5))
    if n * each < pool.K:
        raise DataError(
            f"{n} clients with {each} labels each cannot own all {pool.K} labels",
            code="D034",
            fix=f"raise share to {-(-pool.K // n) / pool.K:.2g} "
            f"or ask for at least {-(-pool.K // each)} clients",
        )
    for _ in range(REDRAWS):
        own = dealing.first_of(rng.random((n, pool.K)), each)
        if own.any(0).all():
            return Dealt(among_owners(own, pool, rng))
    orphans = np.flatnonzero(~own.any(0))
    for label in orphans:  # one of the owners of the label with most owners takes it instead
        common = int(own.sum(0).argmax())
        taker = int(rng.choice(np.flatnonzero(own[:, common])))
        own[taker, common], own[taker, label] = False, True
    handed = count(len(orphans), "label was", "labels were")
    note = f"no draw of {REDRAWS:,} gave every label an owner; {handed} handed on"
    return Dealt(among_owners(own, pool, rng), notes=[note])


@hand_out.register
def _(kind: kinds.LabelGroups, pool: Pool, n: int, rng: Rng) -> Dealt:
    place = {int(label): k for k, label in enumerate(pool.labels)}
    if absent := sorted({label for g in kind.groups for label in g} - set(place)):
        raise DataError(
            f"no sample has label {', '.join(map(str, absent))}",
            code="D031",
            why=f"the data have {pool.K} labels, {pool.labels.min()} to {pool.labels.max()}",
            fix="give groups of labels that occur, such as label-groups:0-1/2-3",
        )
    group = planted(kind, n)
    sets = np.zeros((len(kind.groups), pool.K), dtype=bool)
    for row, labels in zip(sets, kind.groups, strict=True):
        row[[place[label] for label in labels]] = True
    weights = sets[group].astype(np.float64)
    if kind.alpha is not None:
        weights *= rng.standard_gamma(kind.alpha, weights.shape) + 1e-12  # a Dirichlet, row by row
    if kind.sizes:
        return Dealt(of_sizes(weights, kind.sizes, pool, rng), group, blocks=True)
    parts = evenly(weights, pool, rng) if kind.equal else among_owners(weights, pool, rng)
    return Dealt(parts, group, blocks=True)


@hand_out.register
def _(kind: kinds.LabelSets, pool: Pool, n: int, rng: Rng) -> Dealt:
    enough_labels(kind, pool.K)
    drawn = dealing.label_sets(kind.sets, kind.labels, pool.K, kind.repeat, rng)
    own = drawn[rng.integers(kind.sets, size=n)]
    counts = own * np.int64(kind.samples)
    piles = Piles.of(pool.y, pool.K, rng)
    # Reusing helps a label that several clients want, not one that cannot serve a single client.
    wanted = counts.sum(0) if kind.short == "error" else counts.max(0)
    if (wanted > piles.size).any():
        k = int((wanted - piles.size).argmax())
        enough_for = int((piles.size // np.maximum(wanted // kind.samples, 1))[own.any(0)].min())
        raise DataError(
            f"label {pool.labels[k]} has too few samples",
            code="D035",
            why=f"{wanted[k]:,} are needed ({kind.samples} for each of its owners), "
            f"{piles.size[k]:,} are there",
            fix=f'lower samples to {max(enough_for, 1)}, ask for fewer clients, or short = "reuse"',
        )
    group = np.unique(own, axis=0, return_inverse=True)[1].reshape(-1)
    return Dealt(piles.deal(counts), group)


@hand_out.register
def _(kind: kinds.ClusteredDirichlet, pool: Pool, n: int, rng: Rng) -> Dealt:
    enough_labels(kind, pool.K)
    group_of = np.empty(pool.K, dtype=np.int64)
    for c, labels in enumerate(np.array_split(rng.permutation(pool.K), kind.groups)):
        group_of[labels] = c
    side = group_of[pool.y]
    piles = Piles.of(side, kind.groups, rng)
    p = rng.dirichlet(np.full(n, min(kind.alpha, 1e9)), size=kind.groups)
    parts = piles.deal(rng.multinomial(piles.size, p).T)
    small = np.flatnonzero(sizes_of(parts) < kind.min_samples)
    notes: list[str] = []
    if len(small) and kind.small == "topup":
        enough(len(pool), n, kind.min_samples)
        parts, moved, helped = dealing.level(parts, kind.min_samples, rng)
        notes.append(f"{count(moved, 'sample')} of the largest clients went to {helped} small ones")
    elif len(small) and (kind.small == "error" or len(small) == n):
        raise too_small(sizes_of(parts), kind.min_samples, 'or small = "topup"')
    elif len(small):
        notes.append(
            f"{len(small)} of {n} clients had fewer than {kind.min_samples} samples "
            f"and were left out; {n - len(small)} remain"
        )
        parts = [part for part in parts if len(part) >= kind.min_samples]
    return Dealt(parts, dealing.label_counts(parts, side, kind.groups).argmax(1), notes=notes)


@hand_out.register
def _(kind: kinds.Natural, pool: Pool, n: int, rng: Rng) -> Dealt:
    if pool.owner is None:
        raise DataError(
            "the data do not say who owns which sample",
            code="D036",
            why="the natural partition makes each owner a client",
            fix="load data with owners (femnist, LEAF JSON, a CSV with an owner), or another kind",
        )
    ids, who, sizes = np.unique(pool.owner, return_inverse=True, return_counts=True)
    fit = np.flatnonzero(sizes >= kind.min_samples)
    if not len(fit):
        raise DataError(
            f"no owner has {kind.min_samples} samples",
            code="D032",
            why=f"the largest of {len(ids)} owners has {sizes.max()}",
            fix=f"lower partition.min_samples to at most {sizes.max()}",
        )
    chosen = np.sort(rng.permutation(fit)[:n])
    parts = gather(who.reshape(-1), len(ids))
    note = (
        f"{len(fit):,} of {len(ids):,} owners have at least {kind.min_samples} samples: "
        f"there are {len(chosen):,} clients, not {n:,}"
    )
    return Dealt(
        [parts[i] for i in chosen],
        names=tuple(pool.owners[ids[i]] if pool.owners else str(ids[i]) for i in chosen),
        notes=[note] if len(chosen) < n else [],
    )


def planted(kind: kinds.LabelGroups, n: int) -> Ints:
    """(n,) the group of each client: neighbours, as many as are said, or equally many."""
    groups = groups_of(kind, n)
    if not kind.members:
        return np.arange(n) * groups // n
    if len(kind.members) != groups or sum(kind.members) != n:
        raise DataError(
            f"members = {'/'.join(map(str, kind.members))} for {groups} groups of {n} clients",
            code="D039",
            fix="name a number for each group, together as many as there are clients",
        )
    return np.repeat(np.arange(groups), kind.members)


def topped_up(
    parts: list[Ints],
    kind: kinds.Dirichlet | kinds.QuantityDirichlet,
    draws: int,
    rng: Rng,
    group: Ints | None = None,
) -> Dealt:
    """A Dirichlet's clients with their least number of samples, one way or the other."""
    if (sizes_of(parts) >= kind.min_samples).all():
        return Dealt(parts, group)
    if kind.small == "error":
        raise too_small(sizes_of(parts), kind.min_samples, 'or small = "repair"', draws)
    parts, moved, helped = dealing.level(parts, kind.min_samples, rng)
    note = (
        f"none of {draws:,} draws gave every client {kind.min_samples} samples; in the best one "
        f"{count(moved, 'sample')} of the largest clients went to {helped} small ones"
    )
    return Dealt(parts, group, notes=[note])


def first_few(names: Sequence[str]) -> str:
    """The first ten names of many.

    >>> first_few("abcdefghijkl")
    'a, b, c, d, e, f, g, h, i, j, ...'
    """
    return ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")


def enough(samples: int, n: int, least: int) -> None:
    """Refuse to give everyone more than there is."""
    if n * least > samples:
        raise DataError(
            f"{count(n, 'client')} cannot have {count(least, 'sample')} each",
            code="D032",
            why=f"there are {samples:,} samples",
            fix=f"lower partition.min_samples to at most {samples // n}, "
            f"or ask for at most {samples // least:,} clients",
        )


def too_small(sizes: Ints, least: int, way: str, draws: int = 1) -> DataError:
    """The error that names the smallest clients."""
    small = np.sort(sizes[sizes < least])
    shown = first_few([str(size) for size in small])
    return DataError(
        f"{len(small)} of {len(sizes)} clients have fewer than {least} samples",
        code="D032",
        why=f"after {draws:,} {'draws' if draws > 1 else 'draw'} they have {shown}",
        fix=f"raise alpha, ask for fewer clients, lower partition.min_samples, {way}",
    )


def enough_labels(kind: kinds.Kind, labels: int) -> None:
    """Refuse a kind that asks for more labels than occur."""
    wanted = getattr(kind, kind.labels_in)
    if wanted > labels:
        raise DataError(
            f"{kind.labels_in} = {wanted}, but the data have {labels} labels",
            code="D031",
            fix=f"lower {kind.labels_in} to at most {labels}",
        )


def groups_of(kind: kinds.Kind, n: int) -> int:
    """How many groups n clients come in; more groups than clients are refused."""
    groups = kinds.count(getattr(kind, kind.groups_in))
    if groups > n:
        raise DataError(
            f"{kind.name} has {groups} groups for {n} {'clients' if n > 1 else 'client'}",
            code="D039",
            fix=f"ask for at least {groups} clients, or fewer groups",
        )
    return groups
