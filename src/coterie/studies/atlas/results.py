"""Results of the atlas: a row for each run, in one CSV that is the state of all there is."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from coterie.core import storage
from coterie.core.version import __version__
from coterie.runs.files import text_of, understanding
from coterie.runs.history import csv_lines
from coterie.studies.atlas.grid import Atlas, Cell, Place

Stage = Literal["choice", "result", "signs"]


class Row(NamedTuple):
    """One run that is reported, the choice of settings that came before it, or signs of a place."""

    stage: str
    role: str
    kind: str
    data: str
    size: int
    method: str
    seed: int
    settings: str  # the method with what was chosen for it, as a comparison takes it
    accuracy: float | None  # mean over clients; of a choice, on validation data; None: diverged
    worst: float | None = None  # mean of the worst tenth
    clusters: float | None = None
    right: float | None = None  # clients in the right cluster, where groups are planted
    recovered: float | None = None  # rounds after a change until all are right again
    up: float | None = None  # bytes
    down: float | None = None
    samples: float | None = None  # trained on by all clients, in all rounds
    seconds: float | None = None
    scores: tuple[float, ...] = ()  # accuracy of each client, in the order of the clients
    population: str = ""  # what the clients are made of: equal for whoever is compared
    note: str = ""  # what was tried, and its validation accuracy; or the signs
    version: int = 0  # of the grid
    revision: int = 0  # of the method
    cut: str = ""  # what is other than in the grid
    coterie: str = __version__

    @property
    def place(self) -> Place:
        """Where it was."""
        return Place(self.kind, self.data, self.size)

    @property
    def cell(self) -> Cell:
        """Which run it was."""
        return Cell(self.place, self.method, self.seed)


WHOLE = {"size", "seed", "version", "revision"}
REALS = {"accuracy", "worst", "clusters", "right", "recovered", "up", "down", "samples", "seconds"}


def written(rows: Iterable[Row]) -> str:
    """Rows as CSV."""
    return csv_lines([Row._fields, *([plain(v) for v in row] for row in rows)])


def plain(value: Any) -> Any:
    """A value as a cell of CSV: five digits are more than a run repeats on another machine.

    >>> plain(0.123456), plain((0.5, 1.0)), plain(None), plain(1234567.0)
    ('0.12346', '0.5 1', '', '1234567')
    """
    if isinstance(value, tuple):
        return " ".join(f"{v:.4g}" for v in value)
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1e4 else f"{value:.5g}"
    return "" if value is None else value


def read(text: str) -> list[Row]:
    """The rows that `written` wrote; columns that are not known are left out."""
    found = []
    for line in csv.DictReader(io.StringIO(text)):
        known = {k: v for k, v in line.items() if k in Row._fields}
        found.append(Row(**{k: value_of(k, v) for k, v in known.items()}))
    return found


def value_of(column: str, text: str) -> Any:
    """What a cell of a column means."""
    if column == "scores":
        return tuple(map(float, text.split()))
    if column in REALS:
        return float(text) if text else None
    return int(text) if column in WHOLE else text


@dataclass
class Results:
    """The rows of a grid's version; of rows that say the same of a run, the last one counts."""

    atlas: Atlas
    cut: str = ""
    rows: dict[tuple[str, Cell], Row] = field(default_factory=dict)

    def add(self, rows: Iterable[Row]) -> None:
        """Take in rows that are of this grid, of the methods as they are now, and cut the same."""
        for row in rows:
            now = self.atlas.contestant(row.method).revision
            if (row.version, row.revision, row.cut) == (self.atlas.version, now, self.cut):
                self.rows[row.stage, row.cell] = row

    def read(self, files: Sequence[Path]) -> None:
        """Take in the rows of files."""
        for file in files:
            with understanding(file):
                self.add(read(text_of(file)))

    def save(self, file: Path) -> None:
        """Write all that counts, in the order of the grid."""
        places, methods = self.atlas.places("full"), ["", *self.atlas.methods]

        def order(row: Row) -> tuple[int, str, int, int, str]:
            known = methods.index(row.method) if row.method in methods else len(methods)
            return places.index(row.place), row.stage, row.seed, known, row.method

        save(file, sorted(self.rows.values(), key=order))

    def of(self, stage: Stage) -> Iterator[Row]:
        """The rows of a stage."""
        return (row for (which, _), row in self.rows.items() if which == stage)

    def choice(self, place: Place, method: str) -> Row | None:
        """What was chosen for a method in a place."""
        return self.rows.get(("choice", Cell(place, method, self.atlas.choosing(place))))

    def result(self, cell: Cell) -> Row | None:
        """What a run gave."""
        return self.rows.get(("result", cell))

    def looked(self, place: Place, seed: int) -> Row | None:
        """How the clients of a place differ."""
        return self.rows.get(("signs", Cell(place, "", seed)))

    def at(self, kind: str) -> Mapping[tuple[Place, int], Mapping[str, Row]]:
        """The runs that came to their end in a kind of difference: by place and seed, by method.

        Who had other clients than FedAvg, or than most, is left out: it cannot be compared.
        """
        found: dict[tuple[Place, int], dict[str, Row]] = {}
        for row in self.of("result"):
            if row.kind == kind and row.accuracy is not None:
                found.setdefault((row.place, row.seed), {})[row.method] = row
        for rows in found.values():
            keys = [row.population for row in rows.values()]
            usual = rows["fedavg"].population if "fedavg" in rows else max(keys, key=keys.count)
            for method in [m for m, row in rows.items() if row.population != usual]:
                del rows[method]
        return found


def save(file: Path, rows: Iterable[Row]) -> None:
    """Write rows: the old ones or the new ones are there, never a mixture."""
    storage.make_folder(file.parent)
    storage.replace_file(file, written(rows).encode())
