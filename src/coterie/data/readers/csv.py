"""Tables of numbers with a label column: .csv and .tsv."""

from __future__ import annotations

import csv
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from coterie.core.errors import DataError
from coterie.data.readers.form import whole
from coterie.data.readers.raw import Array, Raw, bounded, damaged, fault, reading

LABELS = ("label", "target", "class", "y")  # what a label column is usually called

Column = str | int

_broken = partial(
    damaged,
    what="cannot be read as a table",
    fix="save it as UTF-8 text with one separator between the columns",
)


@dataclass(frozen=True)
class _Table:
    """A file's rows with their line numbers, and what its columns are called."""

    path: Path
    names: tuple[str, ...]
    rows: Iterator[tuple[int, list[str]]]

    def at(self, line: int) -> str:
        """Where a line is, as editors understand it."""
        return f"{self.path}:{line}"

    def column(self, wanted: Column) -> int:
        """The position of a column given by name, or by number."""
        if (times := self.names.count(str(wanted))) > 1:
            raise DataError(
                f"{self.path} has {times} columns {wanted!r}",
                code="D009",
                where=self.at(1),
                why="which of them is meant cannot be told, and the others would be features",
                fix="give every column a name of its own, or leave one out",
            )
        found = self.names.index(wanted) if wanted in self.names else wanted
        if isinstance(found, int) and -len(self.names) <= found < len(self.names):
            return found % len(self.names)
        raise DataError(
            f"{self.path} has no column {wanted!r}",
            code="D009",
            where=self.at(1),
            why=f"its columns are {', '.join(self.names[:20])}",
            fix="name one of its columns",
        )


def read_csv(
    path: Path,
    *,
    label: Column | None = None,
    owner: Column | None = None,
    about: str | None = None,
    header: bool | None = None,
    separator: str | None = None,
) -> Raw:
    """A table whose columns are numbers but for the label, and the owner if there is one.

    The label is the column called label, target, class or y, else the last; or the one named by
    `label`. The first line is a header if it holds such a name or no number at all. `about` names
    columns, with commas, that say something of the owner (a region): they are no features.
    """
    mark = separator or ("\t" if path.suffix.lower() == ".tsv" else ",")
    with reading(path), path.open(newline="", encoding="utf-8-sig") as file:
        bounded(path.stat().st_size, str(path))
        try:
            table = _table(path, csv.reader(file, delimiter=mark), header)
            return _read(table, label, owner, about)
        except UnicodeDecodeError as error:
            raise _broken(path, f"byte {error.start:,}: it is not UTF-8 text") from error
        except (csv.Error, TypeError) as error:  # TypeError: a separator of two characters
            raise _broken(path, error) from error


def _table(path: Path, lines: Any, header: bool | None) -> _Table:
    """The table that a csv.reader reads: its first line as names, or with numbers for names."""
    rows = ((lines.line_num, cells) for cells in lines if cells)
    line, first = next(rows, (1, []))
    cells = tuple(cell.strip() for cell in first)
    if len(cells) < 2:
        raise DataError(
            f"{path} has {len(cells)} column(s)",
            code="D010" if not cells else "D009",
            where=f"{path}:{line}",
            why="a table has at least one number and a label in each row",
            fix='if the columns are separated otherwise, say so: separator=";"',
        )
    named = any(cell.casefold() in LABELS for cell in cells)
    if header or (header is None and (named or not any(map(_number, cells)))):
        return _Table(path, cells, rows)
    return _Table(path, tuple(map(str, range(len(cells)))), chain([(line, first)], rows))


def _number(cell: str) -> bool:
    """Whether a cell holds a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _read(
    table: _Table, label: Column | None, owner: Column | None, about: str | None = None
) -> Raw:
    """The features, labels and owners of a table."""
    if label is None:
        usual = [i for i, name in enumerate(table.names) if name.casefold() in LABELS]
        label = table.names[usual[0]] if usual else -1
    target = table.column(label)
    holder = None if owner is None else table.column(owner)
    facts = Facts(table, about, holder)
    features = [i for i in range(len(table.names)) if i not in (target, holder, *facts.places)]
    if not features:
        raise DataError(
            f"{table.path} has no column of features",
            code="D009",
            where=table.at(1),
            why=f"its columns are {', '.join(table.names)}",
            fix="a row needs at least one number beside its label and its owner",
        )
    # With one position itemgetter gives the cell itself, not a tuple of it.
    pick = itemgetter(*features) if len(features) > 1 else lambda cells: (cells[features[0]],)
    values, lines = array("d"), array("q")
    words: list[str] = []
    owners: list[str] = []
    for line, cells in table.rows:
        if len(cells) != len(table.names):
            what = f"the row has {len(cells)} cells, expected {len(table.names)}"
            why = "every row has a cell for every column"
            raise fault(table.at(line), what, "D014", "complete or remove the row", why)
        try:
            values.extend(map(float, pick(cells)))
        except ValueError as error:
            raise _not_a_number(table, line, cells, features) from error
        lines.append(line)
        words.append(cells[target].strip())
        if holder is not None:
            owners.append(cells[holder].strip())
            if not owners[-1]:
                fix = "say whose row it is, or remove it"
                raise fault(table.at(line), "the owner is missing", "D012", fix)
            facts.read(line, cells, owners[-1])
    x = np.asarray(values).reshape(len(lines), len(features))
    _finite(table, x, lines, features)
    owner_of = None if holder is None else np.array(owners, dtype=str)
    return Raw(x, _labels(table, words, lines), owner=owner_of, about=facts.found)


class Facts:
    """What a table says of its owners: in each of some columns, one value for each of them."""

    def __init__(self, table: _Table, about: str | None, holder: int | None) -> None:
        names = [name.strip() for name in (about or "").split(",") if name.strip()]
        self.table, self.places = table, [table.column(name) for name in names]
        if names and holder is None:
            raise DataError(
                f"{table.path}: about = {about!r} without an owner",
                code="D004",
                where=table.at(1),
                why="a column about owners says something of whoever the rows belong to",
                fix="name the column that says whose a row is: owner=...",
            )
        self.found: dict[str, dict[str, str]] = {table.names[i]: {} for i in self.places}

    def read(self, line: int, cells: list[str], owner: str) -> None:
        """What a row says of its owner, which must be what the others say."""
        for i in self.places:
            known, value = self.found[self.table.names[i]], cells[i].strip()
            if known.setdefault(owner, value) != value:
                raise fault(
                    self.table.at(line),
                    f"{owner} has '{value}' in column '{self.table.names[i]}', "
                    f"and '{known[owner]}' before",
                    "D043",
                    "a column about owners has one value for each of them; if it is about the "
                    "sample, leave it out of about=...",
                )


def _not_a_number(table: _Table, line: int, cells: list[str], features: list[int]) -> DataError:
    """The error that names the first cell of a row that is no number."""
    column = next(i for i in features if not _number(cells[i]))
    cell = cells[column].strip()
    found = f"'{cell[:40]}', not a number" if cell else "nothing"
    return fault(
        table.at(line),
        f"column '{table.names[column]}' holds {found}",
        "D013",
        "encode the column as numbers or remove it; name the label column with label=...",
        "all columns but the label (and the owner) are features, and features are numbers",
    )


def _finite(table: _Table, x: Array, lines: array[int], features: list[int]) -> None:
    """Refuse features that a float32 cannot hold."""
    odd = np.argwhere(~(np.abs(x) <= np.finfo(np.float32).max))  # NaN compares as false
    if len(odd):
        row, column = odd[0]
        name, value = table.names[features[column]], x[row, column]
        what = f"column '{name}' holds {value:g}, not a finite number"
        fix = "fill or remove the rows with missing values"
        raise fault(table.at(lines[row]), what, "D013", fix)


def _labels(table: _Table, words: list[str], lines: array[int]) -> Array:
    """Whole numbers where every label is a number, else words."""
    for line, word in zip(lines, words, strict=True):
        if not word:
            fix = "label every row, or remove it"
            raise fault(table.at(line), "the label is missing", "D012", fix)
    if words and all(map(_number, words)):
        return whole(_numbers(words), lambda row: table.at(lines[row]))
    return np.array(words, dtype=str)


def _numbers(words: list[str]) -> Array:
    """Labels as numbers: whole ones exactly, which a float has only up to 2**53."""
    try:
        return np.array([int(word) for word in words], dtype=np.int64)
    except (ValueError, OverflowError):
        return np.array(words, dtype=np.float64)
