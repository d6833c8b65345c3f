"""The modifiers: what is done to the clients' samples after a base has handed them out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import singledispatch

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from coterie.core.errors import DataError
from coterie.core.rng import numpy_stream
from coterie.core.units import count
from coterie.data.divide.bases import groups_of
from coterie.data.divide.dealing import Ints, Reals, Rng
from coterie.data.kinds import (
    Arrivals,
    Blur,
    Contrast,
    Drift,
    Modifier,
    Noise,
    Permutation,
    Quantity,
    Rotation,
)

AS_IT_IS = (1.0, 0.0, 0.0)  # contrast, noise and blur of images that nothing was done to


@dataclass
class Changes:
    """What the modifiers change, client by client."""

    n: int
    K: int  # labels of the data
    shape: tuple[int, ...]  # of one sample
    stride: int = 0  # 0: the next grouping is in blocks; otherwise it is dealt in turn
    angle: Reals = field(init=False)  # (n,) degrees
    keep: Reals = field(init=False)  # (n,) share of the training samples
    relabel: Ints | None = None  # (n, K)
    shift: Reals | None = None  # (n, 3) contrast, noise, blur
    groups: list[Ints] = field(default_factory=list)  # each (n,)
    notes: list[str] = field(default_factory=list)
    drift: Drift | None = None
    arrives: Ints | None = None  # (n,) the round from which on each is there

    def __post_init__(self) -> None:
        self.angle, self.keep = np.zeros(self.n), np.ones(self.n)

    def grouping(self, kind: Modifier) -> Ints:
        """The group of each client: the first grouping in blocks, a further one in turn within."""
        groups = groups_of(kind, self.n)
        i = np.arange(self.n)
        group = (i // self.stride) % groups if self.stride else i * groups // self.n
        self.stride = self.stride * groups if self.stride else 1
        self.groups.append(group)
        return group


def modified(modifiers: Sequence[Modifier], changes: Changes, seed: int) -> Changes:
    """All the changes, each modifier with its own randomness."""
    for kind in modifiers:
        change(kind, changes, numpy_stream(seed, "partition", kind.name))
    return changes


@singledispatch
def change(kind: Modifier, to: Changes, rng: Rng) -> None:
    """Write down what a modifier does to each client."""
    raise TypeError(f"{type(kind).__name__} modifies nothing")


@change.register
def _(kind: Rotation, to: Changes, rng: Rng) -> None:
    turns = any(a % 180 for a in kind.angles)
    if len(to.shape) != 3 or (turns and to.shape[-1] != to.shape[-2]):
        raise DataError(
            "these samples cannot be rotated",
            code="D038",
            why=f"a sample has shape {to.shape}; rotation wants (C, H, W)"
            + (", square for other angles than 0 and 180" if len(to.shape) == 3 else ""),
            fix="use images, other angles, or another grouping such as permutation",
        )
    to.angle = np.array(kind.angles)[to.grouping(kind)] % 360


@change.register(Contrast)
@change.register(Noise)
@change.register(Blur)
def _(kind: Contrast | Noise | Blur, to: Changes, rng: Rng) -> None:
    if len(to.shape) != 3 and not isinstance(kind, Noise):
        raise DataError(
            f"these samples have no {kind.name}",
            code="D038",
            why=f"a sample has shape {to.shape}; an image has (C, H, W)",
            fix="use images, or another grouping such as permutation or noise",
        )
    if to.shift is None:
        to.shift = np.tile(AS_IT_IS, (to.n, 1))
    to.shift[:, (Contrast, Noise, Blur).index(type(kind))] = np.array(kind.levels)[
        to.grouping(kind)
    ]


@change.register
def _(kind: Permutation, to: Changes, rng: Rng) -> None:
    group = to.grouping(kind)
    maps = {tuple(range(to.K)): None}  # the identity first, then as they are drawn
    for _ in range(1000 * kind.groups):
        if len(maps) == kind.groups:
            break
        maps[tuple(rng.permutation(to.K).tolist())] = None
    else:
        raise DataError(
            f"{to.K} labels have no {kind.groups} different permutations",
            code="D039",
            why=f"{1000 * kind.groups:,} draws gave {len(maps)}",
            fix=f"ask for at most {len(maps)} groups",
        )
    to.relabel = np.array(list(maps), dtype=np.int64)[group]


@change.register
def _(kind: Quantity, to: Changes, rng: Rng) -> None:
    wanted = kind.each * len(kind.shares)
    reduced = min(wanted, to.n // 2)
    if reduced < wanted:
        some = count(reduced, "client is", "clients are")
        to.notes.append(f"{some} reduced, not {wanted}: half of {to.n} at most")
    chosen = rng.permutation(to.n)[:reduced]
    to.keep[chosen] = np.array(kind.shares)[np.arange(reduced) % len(kind.shares)]


@change.register
def _(kind: Drift, to: Changes, rng: Rng) -> None:
    to.drift = kind  # who changes with whom depends on all groups together


@change.register
def _(kind: Arrivals, to: Changes, rng: Rng) -> None:
    if to.n < 2:
        raise DataError(
            "one client alone cannot have newcomers", code="D043", fix="use more clients"
        )
    count = min(to.n - 1, max(1, round(kind.share * to.n)))
    to.arrives = np.zeros(to.n, dtype=np.int64)
    to.arrives[rng.permutation(to.n)[:count]] = kind.round + np.arange(count) * kind.span // count


def exchanged(kind: Drift, group: Ints, rng: Rng) -> Ints:
    """(n,) whose samples each client has afterwards: random pairs from different groups swap."""
    n = len(group)
    moves, waiting, wanted = np.arange(n), list(rng.permutation(n)), max(2, round(kind.share * n))
    pairs = 0
    while 2 * (pairs + 1) <= wanted and waiting:
        a = waiting.pop()
        b = next((b for b in waiting if group[b] != group[a]), None)
        if b is None:
            continue
        waiting.remove(b)
        moves[a], moves[b] = b, a
        pairs += 1
    if not pairs:
        raise DataError(
            "nobody can drift: all clients are in one group",
            code="D045",
            why="drift exchanges the samples of clients from different planted groups",
            fix="add a grouping, for example rotation+drift",
        )
    return moves


def rotate(x: Tensor, degrees: float) -> Tensor:
    """Images (N, C, H, W), square, turned counter-clockwise.

    Multiples of 90 move pixels and change none. Other angles interpolate linearly between pixels,
    and beyond the border the border's own pixels go on, so that no new value appears.

    >>> rotate(torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]]), 90).flatten().tolist()
    [2.0, 4.0, 1.0, 3.0]
    """
    if degrees % 90 == 0:
        return torch.rot90(x, int(degrees // 90) % 4, (-2, -1)).contiguous()
    sin, cos = math.sin(math.radians(degrees)), math.cos(math.radians(degrees))
    theta = torch.tensor([[[cos, -sin, 0.0], [sin, cos, 0.0]]])
    grid = affine_grid(theta, [1, *x.shape[1:]], align_corners=False)
    grid = grid.expand(len(x), -1, -1, -1)
    return grid_sample(x.float(), grid, padding_mode="border", align_corners=False)
