"""A partition: which samples each client trains and is tested on, and what was planted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from coterie.core import checks
from coterie.core.errors import ConfigError, DataError
from coterie.core.rng import numpy_stream, stream
from coterie.core.units import count
from coterie.data.course import Course, between
from coterie.data.dataset import Data
from coterie.data.divide import dealing
from coterie.data.divide.bases import Dealt, Pool, first_few, hand_out
from coterie.data.divide.dealing import Ints, Piles, choose, sizes_of
from coterie.data.divide.modifiers import Changes, exchanged, modified
from coterie.data.kinds import Composite, Kind, Modifier, describe, read

Test = Literal["own", "labels", "proportions"]
From = Literal["train", "all"]
SHARES: dict[str, float] = {"own": 0.2, "labels": 1.0, "proportions": 1.0}


@dataclass(frozen=True, eq=False)
class Partition:
    """Index lists for n clients, with what was planted and what had to be repaired.

    `train` indexes the pool: the training set, or with `pool = "all"` the training set followed
    by the official test set. `test` indexes the same pool ("own") or the official test set.
    """

    train: tuple[Tensor, ...]  # n of (n_i,) long, increasing
    test: tuple[Tensor, ...]  # n of (t_i,) long, increasing
    test_source: Literal["own", "official"]
    pool: From
    names: tuple[str, ...]
    angle: Tensor  # (n,) degrees
    group: Tensor | None = None  # (n,) ground truth: 0, 1, ... in order of appearance
    relabel: Tensor | None = None  # (n, K) what each label becomes
    shift: Tensor | None = None  # (n, 3) contrast, noise and blur; None: images are as they are
    moves: Tensor | None = None  # (n,) whose samples each client has from round `moves_at` on
    moves_at: int = 0
    validation: tuple[Tensor, ...] = ()  # n of (v_i,) long, increasing, of the pool; (): none
    pattern: str = "sudden"  # of the drift: or gradual, or recurring
    span: int = 1  # its rounds
    arrives: Tensor | None = None  # (n,) the round from which on each is there; 0: always
    seen: Mapping[str, tuple[Tensor, ...]] = field(default_factory=dict)  # as whose, where mixed
    notes: tuple[str, ...] = ()  # what was repaired, left out, reduced
    arguments: Mapping[str, Any] = field(default_factory=dict)  # all that it follows from

    def __len__(self) -> int:
        return len(self.train)

    @property
    def course(self) -> Course:
        """When samples change hands."""
        at = 0 if self.moves is None else self.moves_at
        return Course(at, self.pattern, self.span)

    def at(self, round: int) -> Partition:
        """The partition as it is after so many rounds of training."""
        phase = self.course.phase(round)
        if self.moves is None or phase == 0:
            return self
        if phase < 1:
            return self.mixed(phase, moved=self.course.moved(round))
        order = self.moves.tolist()
        return replace(
            self,
            train=tuple(self.train[j] for j in order),
            test=tuple(self.test[j] for j in order),
            validation=tuple(self.validation[j] for j in order if self.validation),
            angle=self.angle[self.moves],
            group=None if self.group is None else self.group[self.moves],
            relabel=None if self.relabel is None else self.relabel[self.moves],
            shift=None if self.shift is None else self.shift[self.moves],
            moves=None,
        )

    def mixed(self, share: float, moved: bool) -> Partition:
        """The partition on its way: a share of the samples of those who drift has changed hands."""
        assert self.moves is not None
        held, seen = {}, {}
        for name in ("train", "test", *(["validation"] if self.validation else [])):
            parts: tuple[Tensor, ...] = getattr(self, name)

            def draw(i: int, name: str = name, parts: tuple[Tensor, ...] = parts) -> Tensor:
                rng = stream(self.arguments["seed"], "drift", name, self.names[i])
                return torch.randperm(len(parts[i]), generator=rng)

            held[name], seen[name] = between(parts, self.moves.tolist(), share, draw)
        group = self.group[self.moves] if moved and self.group is not None else self.group
        return replace(self, **held, seen=seen, group=group, moves=None)  # type: ignore[arg-type]

    @property
    def key(self) -> str:
        """SHA-256 of all the arguments, the data's fingerprint among them."""
        return hashlib.sha256(json.dumps(self.arguments, sort_keys=True).encode()).hexdigest()


def divide(
    data: Data,
    kind: Kind | str | Mapping[str, Any],
    clients: int | None,
    seed: int,
    *,
    test: Test = "own",
    test_share: float | None = None,
    pool: From = "train",
    validation_share: float = 0.0,
) -> Partition:
    """The partition of `data` among `clients` that follows from its arguments and nothing else.

    `test`: "own" splits each client's samples; "labels" gives it the official test samples of the
    labels it owns; "proportions" splits the official test set as the training labels are.
    `test_share`: of a client's samples (0.2), of each owned label's test samples (1), or of the
    test set (1). `validation_share` of what is left to train on is held back from training: to
    choose by, never to test. `pool = "all"` merges training and test set before they are divided.
    `clients` may be None for natural owners: all of them.
    """
    made = arguments(
        data,
        kind,
        clients,
        seed,
        test=test,
        test_share=test_share,
        pool=pool,
        validation_share=validation_share,
    )
    whole = Composite.of(read(kind))
    y, owner = rows(data, pool)
    checks.whole(seed, "seed")
    if clients is not None and clients > len(y):
        raise DataError(
            f"{clients:,} clients cannot share {len(y):,} samples",
            code="D030",
            fix=f"ask for at most {len(y):,} clients, or use more data",
        )
    labels, place = np.unique(y, return_inverse=True)
    n = clients or (1 if owner is None else len(np.unique(owner)))
    rng = numpy_stream(seed, "partition", whole.base.name)
    dealt = hand_out(whole.base, Pool(place.reshape(-1), labels, owner, data.owners), n, rng)
    if owner is not None and data.owners and not whole.base.needs_owners:
        many = f"the {len(np.unique(owner)):,} owners in the data are not the clients"
        dealt.notes.append(f'{many}: partition.kind = "natural" would make each of them one')
    return complete(data, dealt, whole.modifiers, made)


def reserve(data: Data, per_class: int, seed: int) -> tuple[Data, Tensor, Tensor]:
    """The data without `per_class` random training samples of each class, and those samples.

    They are FedDSMIC's indicator samples: real ones that the server must have. (k, ...) and (k,),
    in the order of the data; a class that does not occur gives none.
    """
    K = len(data.classes)
    piles = Piles.of(data.y.numpy(), K, numpy_stream(seed, "reserve"))
    if scarce := [k for k in range(K) if 0 < piles.size[k] <= per_class]:
        raise DataError(
            f"{per_class} samples of class {data.classes[scarce[0]]} cannot be set aside",
            code="D040",
            why=f"it has {piles.size[scarce[0]]}, and the clients need some",
            fix=f"set aside at most {piles.size[piles.size > 0].min() - 1} of each class",
        )
    (taken,) = piles.take(np.zeros((1, K), dtype=np.int64), np.minimum(piles.size, per_class)[None])
    public = torch.from_numpy(taken)
    rest = torch.ones(len(data.y), dtype=torch.bool).index_fill(0, public, False)
    owner = None if data.owner is None else data.owner[rest]
    left = replace(data, x=data.x[rest], y=data.y[rest], owner=owner)
    return left, data.x[public], data.y[public]


def arguments(
    data: Data,
    kind: Kind | str | Mapping[str, Any],
    clients: int | None,
    seed: int,
    *,
    test: Test = "own",
    test_share: float | None = None,
    pool: From = "train",
    validation_share: float = 0.0,
) -> dict[str, Any]:
    """All that a partition follows from, checked and as plain values."""
    whole = Composite.of(read(kind))
    if test not in SHARES or pool not in ("train", "all"):
        raise ConfigError(
            f"test = {test!r} with pool = {pool!r} cannot be meant",
            code="C023",
            fix='test is "own", "labels" or "proportions"; pool is "train" or "all"',
        )
    share = SHARES[test] if test_share is None else float(test_share)
    if not 0 < share <= 1 or (test == "own" and share == 1):
        raise ConfigError(
            f'test_share = {share:g} is out of bounds with test = "{test}"',
            code="C023",
            fix="use a number above 0 and below 1; 1 only with the official test set",
        )
    if not 0 <= validation_share < 1:
        raise ConfigError(
            f"validation_share = {validation_share:g} leaves nothing to train on",
            code="C023",
            fix="use a number from 0 (none) to below 1; 0.2 is usual",
        )
    if not whole.base.needs_owners if clients is None else clients < 1:
        raise ConfigError(
            f"clients = {clients} with {whole.base.name}",
            code="C023",
            fix="ask for at least one client; only natural owners have a number of their own",
        )
    if test != "own" and (data.y_test is None or pool == "all"):
        raise DataError(
            f'test = "{test}" wants an official test set',
            code="D037",
            why=f"{data.name} has none" if data.y_test is None else 'pool = "all" divides it too',
            fix='use test = "own"' + ("" if data.y_test is None else ', or pool = "train"'),
        )
    return {
        "kind": describe(whole),
        "clients": clients,
        "seed": int(seed),
        "test": test,
        "test_share": share,
        "pool": pool,
        "data": data.fingerprint,
        # Only where there are such samples: populations without keep the key they always had.
        **({"validation_share": float(validation_share)} if validation_share else {}),
    }


def rows(data: Data, pool: From) -> tuple[Ints, Ints | None]:
    """The labels and the owners of the samples to divide."""
    y, owner = data.y, data.owner
    if pool == "all" and data.y_test is not None:
        both = owner is not None and data.owner_test is not None
        owner = torch.cat([data.owner, data.owner_test]) if both else None  # type: ignore[list-item]
        y = torch.cat([y, data.y_test])
    if len(y) and not 0 <= int(y.min()) <= int(y.max()) < len(data.classes):
        raise DataError(
            f"labels {int(y.min())} to {int(y.max())} for {len(data.classes)} classes",
            code="D043",
            where=data.name,
            fix="number the labels 0, 1, ... and name every class",
        )
    return y.numpy(), None if owner is None else owner.numpy()


def complete(
    data: Data, dealt: Dealt, modifiers: Sequence[Modifier], made: Mapping[str, Any]
) -> Partition:
    """The partition of samples that have been handed out: changes, test sets, notes, checks."""
    parts, n, K, seed = dealt.parts, len(dealt.parts), len(data.classes), made["seed"]
    names = dealt.names or tuple(map(str, range(n)))
    y, _ = rows(data, made["pool"])
    if empty := empty_handed(parts, names):
        raise DataError(
            f"{len(empty)} of {n} clients have no training sample: {first_few(empty)}",
            code="D033",
            why=f"there are {len(y):,} samples, and not everyone may have every label",
            fix="ask for fewer clients, or for more labels each",
        )
    changes = modified(modifiers, Changes(n, K, data.shape, stride=int(dealt.blocks)), seed)
    train, test = train_and_test(data, parts, y, made)
    notes = [*dealt.notes, *changes.notes, *usage(parts, len(y))]
    if empty := empty_handed(test, names):
        notes.append(f"{len(empty)} of {n} clients have no test sample: {first_few(empty)}")
    if (changes.keep < 1).any():
        kept = np.maximum((changes.keep * sizes_of(train) + 0.5).astype(np.int64), 1)
        train, _ = choose(train, kept, y, K, numpy_stream(seed, "partition", "reduce"))
    held: list[Ints] = []
    if share := made.get("validation_share", 0.0):
        rng = numpy_stream(seed, "partition", "validation")
        train, held = dealing.split_own(train, y, K, share, rng)
    planted = changes.groups if dealt.group is None else [dealt.group, *changes.groups]
    group = numbered_groups(planted) if planted else None
    moves = None
    if changes.drift:
        groups = np.zeros(n, dtype=np.int64) if group is None else group.numpy()
        moves = exchanged(changes.drift, groups, numpy_stream(seed, "partition", "drift"))
    return Partition(
        train=tuple(map(torch.from_numpy, train)),
        test=tuple(map(torch.from_numpy, test)),
        test_source="own" if made["test"] == "own" else "official",
        pool=made["pool"],
        names=names,
        angle=torch.from_numpy(changes.angle),
        group=group,
        relabel=None if changes.relabel is None else torch.from_numpy(changes.relabel),
        shift=None if changes.shift is None else torch.from_numpy(changes.shift),
        moves=None if moves is None else torch.from_numpy(moves),
        moves_at=changes.drift.round if changes.drift else 0,
        validation=tuple(map(torch.from_numpy, held)),
        pattern=changes.drift.pattern if changes.drift else "sudden",
        span=changes.drift.span if changes.drift else 1,
        arrives=None if changes.arrives is None else torch.from_numpy(changes.arrives),
        notes=tuple(notes),
        arguments=made,
    )


def train_and_test(
    data: Data, parts: list[Ints], y: Ints, made: Mapping[str, Any]
) -> tuple[list[Ints], list[Ints]]:
    """What each client trains and is tested on."""
    K, share = len(data.classes), made["test_share"]
    rng = numpy_stream(made["seed"], "partition", "test", made["test"])
    if made["test"] == "own":
        return dealing.split_own(parts, y, K, share, rng)
    assert data.y_test is not None
    how = (
        dealing.official_by_labels if made["test"] == "labels" else dealing.official_by_proportions
    )
    return parts, how(parts, y, data.y_test.numpy(), K, share, rng)


def numbered_groups(groups: Sequence[Ints]) -> Tensor:
    """One group for each combination that occurs, numbered in order of appearance.

    >>> numbered_groups([np.array([2, 2, 0]), np.array([1, 0, 1])]).tolist()
    [0, 1, 2]
    """
    _, first, place = np.unique(np.stack(groups, 1), axis=0, return_index=True, return_inverse=True)
    return torch.from_numpy(first.argsort().argsort()[place.reshape(-1)])


def usage(parts: list[Ints], samples: int) -> list[str]:
    """What a reader should know of samples that nobody or more than one client holds."""
    held = np.bincount(np.concatenate(parts), minlength=samples)
    unused, shared = int((held == 0).sum()), int((held > 1).sum())
    return [
        *([f"{unused:,} of {samples:,} samples are held by nobody"] if unused else []),
        *(
            [f"{count(shared, 'sample is', 'samples are')} held by more than one client"]
            if shared
            else []
        ),
    ]


def empty_handed(parts: list[Ints], names: Sequence[str]) -> list[str]:
    """The clients that have nothing."""
    return [name for name, part in zip(names, parts, strict=True) if not len(part)]
