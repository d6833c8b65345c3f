"""One cell of a comparison: a method with a seed, and the folder that its run is in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from coterie.runs.files import json_of
from coterie.runs.reading import RunReader


@dataclass(frozen=True)
class Cell(RunReader):
    """One method with one seed: an ordinary run, whose files are read when they are asked for.

    `coterie.open_run(cell.folder)` is the run itself, with its models.
    """

    label: str
    seed: int

    @property
    def done(self) -> bool:
        """Whether the run came to its end and its facts were written."""
        return (self.folder / "cell.json").exists()

    @property
    def diverged(self) -> bool:
        """Whether it is known, of a candidate in a tuning, that it does not come to its end."""
        return (self.folder / "diverged.json").exists()

    @cached_property
    def facts(self) -> Mapping[str, Any]:
        """What the cell was made of: `population` and `initial` (SHA-256), and its local work."""
        return json_of(self.folder / "cell.json")

    @property
    def stage(self) -> str:
        """The stage whose accuracy is told: after the method's own adaptation, if it has one."""
        return str(self.summary["stage"])

    @property
    def numbers(self) -> Mapping[str, Any]:
        """The summary of that stage: accuracy_mean, accuracy_worst, accuracy_top_5, ..."""
        return dict(self.summary[self.stage])

    @cached_property
    def accuracy(self) -> Mapping[str, float]:
        """Each client's accuracy after the last round, or the one that was taken."""
        return self.clients("accuracy")

    def clients(self, metric: str) -> Mapping[str, float]:
        """A metric of each client that has it, after the same round."""
        return self.history.clients(self.summary["round"], metric, self.stage)


def cell_name(label: str, seed: int) -> str:
    """The folder of a cell: a label without what a path or a shell would take for something else.

    >>> cell_name("fedclust:clusters=4", 0)
    'fedclust_clusters=4-seed0'
    """
    return f"{re.sub(r'[^A-Za-z0-9_.=-]+', '_', label)}-seed{seed}"
