"""What a study takes beside training, written by hand: groups, tests, records."""

from __future__ import annotations

import csv
import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench.environments import HOME
from bench.workloads import Array

State = Mapping[str, Tensor]  # a model's, by the names of its tensors


def clustered(rows: Array, k: int) -> list[int]:
    """k groups of rows that are near each other (average linkage), in order of appearance.

    >>> clustered(np.array([[0.0], [9.0], [1.0], [8.0]]), 2)
    [0, 1, 0, 1]
    """
    between = np.linalg.norm(rows[:, None] - rows[None], axis=2)  # summed over pairs, as they join
    members = [[i] for i in range(len(rows))]
    while len(members) > k:
        sizes = np.array([len(m) for m in members])
        means = between / (sizes[:, None] * sizes)
        np.fill_diagonal(means, np.inf)
        i, j = sorted(divmod(int(means.argmin()), len(members)))
        members[i] += members.pop(j)
        between[i] += between[j]
        between[:, i] += between[:, j]
        between = np.delete(np.delete(between, j, 0), j, 1)
    found = [0] * len(rows)
    for c, mine in enumerate(sorted(members, key=min)):
        for i in mine:
            found[i] = c
    return found


def score(net: nn.Module, x: Tensor, y: Tensor) -> tuple[float, float]:
    """Accuracy and loss of a model on a client's test samples."""
    net.eval()
    with torch.no_grad():
        said = net(x)
    right = (said.argmax(1) == y).double().mean()
    return float(right), float(F.cross_entropy(said, y))


def named(state: State) -> list[Array]:
    """A model's tensors in order."""
    return [t.numpy() for t in state.values()]


class Records:
    """A folder with what was measured, who is in which group, and the models of the last round."""

    def __init__(self) -> None:
        HOME.mkdir(exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(dir=HOME))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    def add(
        self,
        round: int,
        rows: Sequence[tuple[float, float]],
        labels: Sequence[int],
        models: Sequence[State],
    ) -> None:
        """Write one round."""
        with (self.folder / "metrics.csv").open("a", newline="") as file:
            table = csv.writer(file)
            for i, (right, loss) in enumerate(rows):
                table.writerow([round, i, labels[i], right, loss])
        torch.save(list(map(dict, models)), self.folder / "models.pt")
