"""Results of other days and machines: what a CSV has counts as measured, and what is new joins it.

Runs are large and stay where they were made; the CSV of a table is what is kept. A number of it
counts if it is of the same settings, by their fingerprint, of as many seeds, and of this version
but for its last part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from coterie.core import storage
from coterie.core.version import __version__
from coterie.studies.reproduction.papers import TABLES
from coterie.studies.reproduction.results import Reproduction, Row, lines, read, written
from coterie.studies.reproduction.running import Asked, cuts, fingerprint
from coterie.studies.reproduction.table import Setting, Table


def known(folder: Path, table: Table) -> tuple[Row, ...]:
    """What a folder of results has of a table."""
    file = folder / f"{table.name}.csv"
    rows = read(file.read_text(encoding="utf-8")) if file.exists() else []
    return tuple(row for row in rows if row.there)


def wanted(asked: Asked, before: Sequence[Row]) -> Callable[[Setting], list[str]]:
    """Which labels of a setting have a number that is not known, or does not count."""

    def labels(setting: Setting) -> list[str]:
        have = {row.key for row in before if counts(row, asked, setting)}
        told = [(f, label) for f, label in lines(asked.table, setting) if asked.tells(f.metric)]
        missing = [label for figure, label in told if figure[:4] not in have]
        return [label for label in asked.methods if label in missing]

    return labels


def counts(row: Row, asked: Asked, setting: Setting) -> bool:
    """Whether an older number is what would be measured now."""
    if not setting.has(row.key) or row.cuts != cuts(asked, setting):
        return False
    same = row.fingerprint in ("", fingerprint(asked, setting, row.label))  # "": of an older file
    version = row.version.split(".")[:2] == __version__.split(".")[:2]
    return same and version and {str(s) for s in range(asked.seeds)} <= {*row.seeds.split()}


def joined(table: Table, before: Iterable[Row], new: Iterable[Row]) -> list[Row]:
    """All rows of a table in the paper's order: what is newly measured wins.

    But a number that was cut short never takes the place of one that was not, nor one of fewer
    seeds that of more.
    """
    by = {row.key: row for row in before}
    for row in new:
        if row.there and (row.key not in by or replaces(table, row, by[row.key])):
            by[row.key] = row
    order = [figure[:4] for s in table.settings for figure, _ in lines(table, s)]
    return sorted(by.values(), key=lambda r: order.index(r.key) if r.key in order else len(order))


def replaces(table: Table, new: Row, old: Row) -> bool:
    """Whether a number that was measured takes the place of an older one."""
    shorter = whole(table, old) and not whole(table, new)
    return not shorter and not {*new.seeds.split()} < {*old.seeds.split()}


def whole(table: Table, row: Row) -> bool:
    """Whether a number is of the table's own settings, not cut short by whoever ran it."""
    return any(s.has(row.key) and s.differs == row.cuts for s in table.settings)


def join(asked: Asked, folder: Path) -> list[Path]:
    """Write what these runs measured into the CSV of every table that is read from them."""
    files = []
    for table in (t for t in TABLES.values() if t.experiment == asked.table.experiment):
        labels = tuple(label for label in table.labels if label in asked.methods)
        these = [s.folder for s in asked.settings]
        settings = tuple(s for s in table.settings if s.folder in these)
        new = Reproduction(replace(asked, table=table, methods=labels, settings=settings)).rows
        before = known(folder, table)
        rows = joined(table, before, new)
        if rows and rows != [*before]:
            file = folder / f"{table.name}.csv"
            storage.make_folder(folder)
            storage.replace_file(file, written(rows).encode())
            files.append(file)
    return files
