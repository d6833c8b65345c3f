"""Accuracy by class, out of the rows of metrics.csv, and by how often a client has a class."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coterie.runs.history import Row

COUNT = re.compile(r"class_(\d+)_(right|wrong)")
SHOTS = (30, 80)  # DA-PFL's: few are below the first, many above the second


class Counted(NamedTuple):
    """Test samples by client and class: (n, K) of them that are right, and that are wrong."""

    clients: tuple[str, ...]
    right: NDArray[np.float64]
    wrong: NDArray[np.float64]

    @property
    def accuracy(self) -> NDArray[np.float64]:
        """(K,) of each class over all clients; NaN where nobody is tested on it."""
        return share(self.right.sum(0), self.right.sum(0) + self.wrong.sum(0))

    def by_shots(
        self, samples: Mapping[str, Iterable[float]], edges: tuple[float, float] = SHOTS
    ) -> dict[str, float]:
        """Accuracy on the classes of which a client trains on few, some and many samples.

        `samples` has each client's training samples by class. Every class of every client counts
        alone: the same class may be among the many of one and the few of another. Test samples of
        all are pooled.
        """
        trained = np.array([list(samples[name]) for name in self.clients], float)
        few, many = trained < edges[0], trained > edges[1]
        total, found = self.right + self.wrong, {}
        for name, cells in (("few", few), ("medium", ~few & ~many), ("many", many)):
            found[name] = float(share(self.right[cells].sum(), total[cells].sum()))
        return found


def share(part: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    """A part of a whole; NaN of nothing."""
    return np.where(whole > 0, part / np.maximum(whole, 1), np.nan)


def counted(rows: Iterable[Row], classes: int, round: int, stage: str = "before") -> Counted | None:
    """What each client had right and wrong of each class; None without `per_class_accuracy`."""
    cells: dict[str, NDArray[np.float64]] = {}
    for row in rows:
        here = row.client and row.round == round and row.stage == stage
        if here and (found := COUNT.fullmatch(row.metric)):
            own = cells.setdefault(row.client, np.zeros((2, classes)))
            own[int(found[2] == "wrong"), int(found[1])] = row.value
    if not cells:
        return None
    right, wrong = np.stack(list(cells.values())).transpose(1, 0, 2)
    return Counted(tuple(cells), right, wrong)
