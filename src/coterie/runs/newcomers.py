"""How newcomers did, as newcomers.csv in the folder of the run that they joined."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Literal, NamedTuple

from pydantic import TypeAdapter

from coterie.core import storage
from coterie.runs.files import text_of, understanding
from coterie.runs.history import csv_lines, unguarded

FILE = "newcomers.csv"


class Row(NamedTuple):
    """One newcomer after so many epochs on so many samples."""

    newcomer: str
    group: int | None  # the planted one
    cluster: int | Literal["own", "shared"] | None  # whose model it was given; None: none
    right: bool | None  # whether most of that cluster are of its group; None: that has no meaning
    shots: int | None  # samples of each class that it had; None: all
    samples: int
    epochs: int
    accuracy: float | None
    bytes_down: int  # what placing it cost; adaptation sends nothing
    bytes_up: int


@dataclass(frozen=True)
class Joined:
    """How newcomers did who joined a finished run: a row for each, after each epoch."""

    rows: tuple[Row, ...]

    @property
    def shots(self) -> list[int | None]:
        """The numbers of samples of a class, all of them first."""
        return list(dict.fromkeys(r.shots for r in self.rows))

    def accuracy(self, epochs: int, shots: int | None = None) -> float | None:
        """The mean over newcomers."""
        return mean(r.accuracy for r in self.rows if r.epochs == epochs and r.shots == shots)

    def assigned(self, shots: int | None = None) -> float | None:
        """The share of newcomers in a cluster of their own group, of those who could be."""
        return mean(r.right for r in self.rows if r.epochs == 0 and r.shots == shots)

    def cost(self, shots: int | None = None) -> tuple[float, float]:
        """Bytes up from and down to a newcomer, in the mean."""
        them = [r for r in self.rows if r.epochs == 0 and r.shots == shots]
        return fmean(r.bytes_up for r in them), fmean(r.bytes_down for r in them)

    @property
    def epochs(self) -> int:
        """For how many epochs each adapted its model at most."""
        return max(r.epochs for r in self.rows)

    @property
    def newcomers(self) -> list[str]:
        """The names of those who joined."""
        return list(dict.fromkeys(r.newcomer for r in self.rows))


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of what is known."""
    known = [float(v) for v in values if v is not None]
    return fmean(known) if known else None


def record(folder: Path, joined: Joined) -> None:
    """Write newcomers.csv into the folder of a run."""
    lines = [Row._fields, *(["" if v is None else v for v in row] for row in joined.rows)]
    storage.replace_file(folder / FILE, csv_lines(lines).encode())


def read(folder: Path) -> Joined | None:
    """What `record` wrote, or None if nobody joined."""
    if not (folder / FILE).exists():
        return None
    with understanding(folder / FILE):
        rows = csv.DictReader(io.StringIO(text_of(folder / FILE)))
        known = [{name: v or None for name, v in row.items()} for row in rows]
        known = [row | {"newcomer": unguarded(str(row["newcomer"]))} for row in known]
        return Joined(TypeAdapter(tuple[Row, ...]).validate_python(known))
