"""A table of a paper beside what was measured: number by number, and claim by claim."""

from __future__ import annotations

import csv
import io
import math
import os
import platform
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

from coterie.core import storage
from coterie.core.shell import command
from coterie.core.version import __version__
from coterie.runs.comparison import Cell, Comparison
from coterie.runs.history import csv_lines
from coterie.studies.reproduction.measures import MEASURES
from coterie.studies.reproduction.running import Asked, cuts, fingerprint
from coterie.studies.reproduction.table import Figure, Key, Numbers, Setting, Table, Verdict


class Row(NamedTuple):
    """One number of a table: the paper's, ours, and how ours came about."""

    table: str
    method: str  # as the paper calls it, or our label
    label: str  # the method and its settings, as `coterie compare` takes them
    dataset: str
    setting: str
    metric: str
    paper: float | None
    paper_std: float | None
    measured: float | None
    std: float | None  # over seeds
    reached: str  # "2/3": runs in which there is such a number, where not in all
    difference: float | None
    within: str  # the paper's spread: yes, no, or "" where it prints none
    seeds: str
    cuts: str  # what is less or other than in the paper
    seconds: float | None  # of all seeds together
    command: str
    version: str
    machine: str
    fingerprint: str = ""  # of the settings behind it; older files do not tell

    @property
    def key(self) -> Key:
        """Which number it is."""
        return Key(self.method, self.dataset, self.setting, self.metric)

    @property
    def there(self) -> bool:
        """Whether it was measured: a target that no run reached was."""
        return self.measured is not None or bool(self.reached)


@dataclass(frozen=True)
class Reproduction:
    """A table of a paper, and what of it was measured so far."""

    asked: Asked
    before: tuple[Row, ...] = ()  # of other days and machines; what is measured here wins

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """Every number that the paper prints for the settings asked for, and ours beside."""
        older = {row.key: row for row in self.before}
        own = (row for s in self.asked.settings for row in self.of(s))
        return tuple(row if row.there else older.get(row.key, row) for row in own)

    @cached_property
    def measured(self) -> Numbers:
        """The numbers there are; a target that no run reached is infinitely far."""
        there = [r for r in (*self.before, *self.rows) if r.there]
        return {r.key: math.inf if r.measured is None else r.measured for r in there}

    def claims(self) -> list[tuple[str, Verdict, str]]:
        """What the paper says of the table: whether it holds, and by which numbers."""
        return [(c.text, *c.check(self.measured)) for c in self.asked.table.claims]

    def of(self, setting: Setting) -> Iterator[Row]:
        """The numbers of one setting."""
        asked = self.asked
        folder = asked.folder / setting.folder
        found = Comparison.load(folder) if (folder / "compare.toml").exists() else None
        for figure, label in lines(asked.table, setting):
            if label in asked.methods:
                yield self.row(setting, figure, label, found.of(label) if found else ())

    def row(self, setting: Setting, figure: Figure, label: str, cells: Sequence[Cell]) -> Row:
        """One number of the paper and the same of these runs."""
        cells = cells if self.asked.tells(figure.metric) else ()
        measure = MEASURES[self.asked.table.named[figure.metric]]
        values = [v for c in cells if (v := measure(c, figure.setting)) is not None]
        mean = fmean(values) if values else None
        apart = mean - figure.value if mean is not None and figure.value is not None else None
        within = "" if apart is None or not figure.std else yes(abs(apart) <= figure.std)
        return Row(
            table=self.asked.table.name,
            method=figure.method,
            label=label,
            dataset=figure.dataset,
            setting=figure.setting,
            metric=figure.metric,
            paper=figure.value,
            paper_std=figure.std,
            measured=mean,
            std=stdev(values) if len(values) > 1 else None,
            reached="" if len(values) == len(cells) else f"{len(values)}/{len(cells)}",
            difference=apart,
            within=within,
            seeds=" ".join(str(c.seed) for c in cells),
            cuts=cuts(self.asked, setting),
            seconds=sum(c.seconds for c in cells) if cells else None,
            command=self.command(setting),
            version=__version__,
            machine=machine(),
            fingerprint=fingerprint(self.asked, setting, label),
        )

    def command(self, setting: Setting) -> str:
        """The command that measures this again."""
        table, asked = self.asked.table, self.asked
        several = len({s.source for s in table.settings}) > 1
        words: list[object] = ["reproduce", table.name]
        words += ["--dataset", setting.source] if several else []
        words += ["--seeds", asked.seeds] if asked.seeds > 1 else []
        return command(*words, *(f"{k}={v}" for k, v in asked.changed))

    def save(self) -> Path:
        """Write the table as CSV beside its runs."""
        file = self.asked.folder / f"{self.asked.table.name}.csv"
        storage.make_folder(file.parent)
        storage.replace_file(file, written(self.rows).encode())
        return file


def lines(table: Table, setting: Setting) -> Iterator[tuple[Figure, str]]:
    """Every number of a setting with the label of its method: the paper's, then ours beside."""
    figures = list(printed(table, setting))
    columns = dict.fromkeys((f.setting, f.metric) for f in figures)
    for figure in figures:
        yield figure, table.methods.get(figure.method, figure.method)
    for name, metric in columns:
        for label in table.beside:
            yield Figure(label, setting.dataset, name, metric, None, None), label


def printed(table: Table, setting: Setting) -> Iterator[Figure]:
    """What the paper prints of a setting, also beside a second way to measure it.

    Of a setting that it does not have, every number that it would have.
    """
    found = [f for f in table.figures if setting.has(f) and f.metric in table.measures]
    found = found or [
        Figure(method, setting.dataset, setting.name, metric, None, None)
        for metric in table.measures
        for method in table.methods
    ]
    yield from found
    for f in found:
        if f.metric in table.also:
            yield f._replace(metric=table.also[f.metric][0])


def yes(right: bool) -> str:
    """A word for a check."""
    return "yes" if right else "no"


def written(rows: Iterable[Row]) -> str:
    """Rows as CSV; numbers with two digits behind the point, as papers print them."""
    lines = [["" if v is None else short(v) for v in row] for row in rows]
    return csv_lines([Row._fields, *lines])


def short(value: Any) -> Any:
    """A number as it is written: two digits are more than a run repeats on another machine.

    >>> short(94.1234), short(7.0), short("a")
    ('94.12', '7', 'a')
    """
    if not isinstance(value, float):
        return value
    return "" if math.isnan(value) else f"{value:.2f}".removesuffix(".00")


def read(text: str) -> list[Row]:
    """The rows that `written` wrote."""
    numbers = {"paper", "paper_std", "measured", "std", "difference", "seconds"}
    return [
        Row(**{k: (float(v) if v else None) if k in numbers else v for k, v in row.items()})  # type: ignore[arg-type]
        for row in csv.DictReader(io.StringIO(text))
    ]


def machine() -> str:
    """The processor and how many cores of it there are."""
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next(x.split(":", 1)[1].strip() for x in lines if x.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return f"{name}, {os.cpu_count()} cores"
