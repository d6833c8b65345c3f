"""What a run has measured, as one tidy table: round, client, cluster, stage, metric, value.

A row with a client is about that client; a row without one is about the whole federation.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from coterie.core.units import count


class Row(NamedTuple):
    """One number that was measured: of whom, when, and what it is."""

    round: int
    client: str  # "" for the federation as a whole
    cluster: str  # the model the client held; "" where that has no meaning
    stage: str  # before | after (adaptation) | validation | traffic | clusters | train
    metric: str
    value: float


@dataclass
class History:
    """All rows of a run, in the order they were measured."""

    rows: list[Row] = field(default_factory=list)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        last = self.rows[-1].round if self.rows else 0
        return f"History({count(len(self), 'row')} to round {last})"

    def series(self, metric: str, stage: str = "before") -> dict[int, float]:
        """A number of the whole federation by round."""
        return {
            r.round: r.value
            for r in self.rows
            if not r.client and r.metric == metric and r.stage == stage
        }

    def clients(
        self, round: int, metric: str = "accuracy", stage: str = "before"
    ) -> dict[str, float]:
        """A number of each client in one round, by the client's name."""
        return {
            r.client: r.value
            for r in self.rows
            if r.client and r.round == round and r.metric == metric and r.stage == stage
        }

    def whole(self, round: int, stage: str) -> dict[str, float]:
        """The numbers of the whole federation in one round, by metric."""
        return {
            r.metric: r.value
            for r in self.rows
            if not r.client and r.round == round and r.stage == stage
        }

    def last_known(self, metric: str = "accuracy", stage: str = "before") -> dict[str, float]:
        """The last number of each client that was ever measured, by the client's name."""
        return {
            r.client: r.value
            for r in self.rows
            if r.client and r.metric == metric and r.stage == stage
        }

    def total(self, metric: str, stage: str = "traffic", until: int | None = None) -> float:
        """The sum over rounds of a number of the whole federation."""
        series = self.series(metric, stage)
        return sum(v for t, v in series.items() if until is None or t <= until)

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages at which clients were tested, in order."""
        return tuple(s for s in ("before", "after") if any(r.stage == s for r in self.rows))

    def frame(self) -> Any:
        """The table as a pandas DataFrame (pandas must be installed)."""
        import pandas

        return pandas.DataFrame(self.rows, columns=list(Row._fields))


FORMULA = frozenset("=+-@\t\r'")  # what a formula begins with, and the quote that guards it
HEADER = ",".join(Row._fields) + "\n"


def csv_lines(rows: Iterable[Iterable[object]]) -> str:
    """Rows as lines of CSV, quoted where they must be, and no text of them a formula."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(map(guarded, row) for row in rows)
    return text.getvalue()


def guarded(cell: object) -> object:
    """A cell that no spreadsheet computes: a quote in front of a text that begins like a formula.

    >>> [guarded(cell) for cell in ("=cmd()", "'s Gravenhage", "Bern", "-0.5", -0.5)]
    ["'=cmd()", "''s Gravenhage", 'Bern', '-0.5', -0.5]
    """
    if not isinstance(cell, str) or cell[:1] not in FORMULA:
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def unguarded(cell: str) -> str:
    """The text that `guarded` made a cell of.

    >>> unguarded("'=cmd()"), unguarded("Bern")
    ('=cmd()', 'Bern')
    """
    return cell.removeprefix("'")


def to_csv(rows: Iterable[Row]) -> str:
    """The lines of a history; a number is written so that it reads back to the same bits.

    >>> to_csv([Row(1, "a,b", "0", "before", "accuracy", 0.1)])
    '1,"a,b",0,before,accuracy,0.1\\n'
    """
    return csv_lines([(t, c, k, s, m, repr(float(v))) for t, c, k, s, m, v in rows])


def from_csv(text: str) -> History:
    """The history that `to_csv` wrote, header included."""
    reader = csv.reader(io.StringIO(text))
    next(reader, None)
    return History([Row(int(r[0]), unguarded(r[1]), r[2], r[3], r[4], float(r[5])) for r in reader])
