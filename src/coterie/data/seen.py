"""Samples as a client sees them: with its contrast, noise and blur, its angle, its labels."""

from __future__ import annotations

import torch
from torch import Tensor

from coterie.data.divide.modifiers import rotate
from coterie.data.divide.shifts import shifted
from coterie.data.partition import Partition


def seen_by(
    partition: Partition, which: str, i: int, x: Tensor, y: Tensor
) -> tuple[Tensor, Tensor]:
    """The samples of client i out of x and y: of "train" or "test", as it sees them.

    What came to it from another while both are on their way it sees as that one did.
    """
    index, seen = getattr(partition, which)[i], partition.seen.get(which)
    if seen is None or not len(index):
        return seen_as(partition, which, i, x, y, index)
    whose = dict.fromkeys((int(seen[i][0]), int(seen[i][-1])))  # a client's own come first
    parts = [seen_as(partition, which, j, x, y, index[seen[i] == j]) for j in whose]
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])


def seen_as(
    partition: Partition, which: str, i: int, x: Tensor, y: Tensor, index: Tensor
) -> tuple[Tensor, Tensor]:
    """Some samples with the look, the angle and the labels of client i."""
    x, y = select(x, index).float(), select(y, index)
    if partition.shift is not None:
        x = shifted(x, index, partition.shift[i].tolist(), (partition.arguments["seed"], which))
    if angle := float(partition.angle[i]):
        x = rotate(x, angle)
    if partition.relabel is not None:
        y = partition.relabel[i][y]
    return x, y


def select(rows: Tensor, index: Tensor) -> Tensor:
    """The rows at increasing indices; a view where they lie side by side."""
    if len(index) and int(index[-1]) - int(index[0]) + 1 == len(index):
        return rows[int(index[0]) : int(index[-1]) + 1]
    return rows[index]
