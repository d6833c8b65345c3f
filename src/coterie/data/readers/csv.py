"""Tables of numbers with a label column: .csv and .tsv."""

from __future__ import annotations

import csv
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

import numpy as np

from coterie.core.errors import DataError
from coterie.data.readers import labels
from coterie.data.readers.raw import Array, Raw, bounded, reading

LABELS = ("label", "target", "class", "y")  # what a label column is usually called

Column = str | int


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
    header: bool | None = None,
    separator: str | None = None,
) -> Raw:
    """A table whose columns are numbers but for the label, and the owner if there is one.

    The label is the column called label, target, class or y, else the last; or the one named by
    `label`. The first line is a header if it holds such a name or no number at all.
    """
    mark = separator or ("\t" if path.suffix.lower() == ".tsv" else ",")
    with reading(path), path.open(newline="", encoding="utf-8-sig") as file:
        bounded(path.stat().st_size, str(path))
        try:
            return _read(_table(path, csv.reader(file, delimiter=mark), header), label, owner)
        except UnicodeDecodeError as error:
            raise _broken(path, f"byte {error.start:,}: it is not UTF-8 text") from error
        except (csv.Error, TypeError) as error:  # TypeError: a separator of two characters
            raise _broken(path, str(error)) from error


def _broken(path: Path, why: str) -> DataError:
    """The error about a file that is no table of text."""
    return DataError(
        f"{path} cannot be read as a table",
        code="D007",
        where=str(path),
        why=why,
        fix="save it as UTF-8 text with one separator between the columns",
    )


def _table(path: Path, lines: Iterator[list[str]], header: bool | None) -> _Table:
    """The table in a file: with its first line as names, or with numbers for names."""
    rows = _numbered(lines)
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
    return _Table(path, tuple(map(str, range(len(cells)))), _again((line, first), rows))


def _numbered(lines: Iterator[list[str]]) -> Iterator[tuple[int, list[str]]]:
    """The rows that hold something, each with the line it ends on."""
    for cells in lines:
        if cells:
            yield lines.line_num, cells  # type: ignore[attr-defined]


def _again(
    first: tuple[int, list[str]], rest: Iterator[tuple[int, list[str]]]
) -> Iterator[tuple[int, list[str]]]:
    """Rows of which the first was already taken."""
    yield first
    yield from rest


def _number(cell: str) -> bool:
    """Whether a cell holds a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _read(table: _Table, label: Column | None, owner: Column | None) -> Raw:
    """The features, labels and owners of a table."""
    if label is None:
        usual = [i for i, name in enumerate(table.names) if name.casefold() in LABELS]
        label = usual[0] if usual else -1
    target = table.column(label)
    holder = None if owner is None else table.column(owner)
    features = [i for i in range(len(table.names)) if i not in (target, holder)]
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
            raise DataError(
                f"{table.at(line)}: the row has {len(cells)} cells, expected {len(table.names)}",
                code="D014",
                where=table.at(line),
                why="every row has a cell for every column",
                fix="complete or remove the row",
            )
        try:
            values.extend(map(float, pick(cells)))
        except ValueError as error:
            raise _not_a_number(table, line, cells, features) from error
        lines.append(line)
        words.append(cells[target].strip())
        if holder is not None:
            owners.append(cells[holder].strip())
    x = np.frombuffer(values, np.float64).reshape(len(lines), len(features)) if lines else _NOTHING
    _finite(table, x, lines, features)
    y = _labels(table, words, lines)
    return Raw(x, y, owner=None if holder is None else _owners(owners))


_NOTHING = np.empty((0, 1))


def _not_a_number(table: _Table, line: int, cells: list[str], features: list[int]) -> DataError:
    """The error that names the first cell of a row that is no number."""
    column = next(i for i in features if not _number(cells[i]))
    cell = cells[column].strip()
    return DataError(
        f"{table.at(line)}: column '{table.names[column]}' holds "
        + (f"'{cell[:40]}', not a number" if cell else "nothing"),
        code="D013",
        where=table.at(line),
        why="all columns but the label (and the owner) are features, and features are numbers",
        fix="encode the column as numbers or remove it; name the label column with label=...",
    )


def _finite(table: _Table, x: Array, lines: array[int], features: list[int]) -> None:
    """Refuse features that a float32 cannot hold."""
    odd = np.argwhere(~(np.abs(x) <= np.finfo(np.float32).max))  # NaN compares as false
    if len(odd):
        row, column = odd[0]
        raise DataError(
            f"{table.at(lines[row])}: column '{table.names[features[column]]}' holds "
            f"{x[row, column]:g}, not a finite number",
            code="D013",
            where=table.at(lines[row]),
            fix="fill or remove the rows with missing values",
        )


def _labels(table: _Table, words: list[str], lines: array[int]) -> Array:
    """Whole numbers where every label is a number, else words."""
    for line, word in zip(lines, words, strict=True):
        if not word:
            raise DataError(
                f"{table.at(line)}: the label is missing",
                code="D012",
                where=table.at(line),
                fix="label every row, or remove it",
            )
    if words and all(map(_number, words)):
        return labels.whole(np.array(words, dtype=np.float64), lambda row: table.at(lines[row]))
    return np.array(words, dtype=str)


def _owners(words: list[str]) -> Array:
    """Whole numbers where every owner is one, else words."""
    whole = all(word.isdecimal() for word in words)
    return np.array(words, dtype=np.int64 if whole else str)
