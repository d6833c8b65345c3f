"""One comparison for each value of a setting: of alpha, of the number of clients, of anything.

OUT/alpha=0.1/      an ordinary comparison; its clients differ from those of the next
OUT/sweep.csv       their tables below each other, with the settings in front
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from coterie.config import source
from coterie.config.grid import refused
from coterie.core import storage
from coterie.runs.comparison import Comparison
from coterie.runs.comparison_text import TIMES, margin
from coterie.runs.history import csv_lines
from coterie.runs.text_table import TextTable

Point = tuple[tuple[str, Any], ...]  # a value for each setting that is swept


def points(texts: Sequence[str]) -> list[Point]:
    """Every combination of the values of some settings, each written `key=v1,v2`.

    >>> points(["partition.alpha=0.1,1"])
    [(('partition.alpha', 0.1),), (('partition.alpha', 1),)]
    """
    swept = []
    for text in texts:
        key, _ = source.assignment(text)
        values = [v.strip() for v in text.partition("=")[2].split(",") if v.strip()]
        if len(values) < 2 or len(set(values)) < len(values):
            what = f"--sweep {text} has {len(set(values))} values in {len(values)}"
            raise refused(what, f"name several, each once: {key}=0.1,0.5")
        swept.append([(key, source.word(v)) for v in values])
    return list(product(*swept))


def name(point: Point) -> str:
    """What a combination is called, in a table and as a folder.

    >>> name((("partition.alpha", 0.1), ("partition.clients", 20)))
    'alpha=0.1 clients=20'
    """
    return " ".join(f"{key.split('.')[-1]}={value}" for key, value in point)


def folder(point: Point) -> str:
    """The same without what a path or a shell would take for something else."""
    return "".join(c if c.isalnum() or c in "=.-" else "_" for c in name(point))


def table(found: Mapping[Point, Comparison]) -> TextTable:
    """Accuracy of each method after the last round, a column for each combination."""
    rows = {point: {row["method"]: row for row in one.table()} for point, one in found.items()}
    methods = dict.fromkeys(m for one in rows.values() for m in one)
    lines = tuple(
        (m, *(margin(one[m], "accuracy_last") if m in one else "n/a" for one in rows.values()))
        for m in methods
    )
    head = ("method", *(name(point) for point in found))
    return TextTable("accuracy in %: mean over clients and seeds, last round", head, lines)


def save(found: Mapping[Point, Comparison], out: Path) -> Path:
    """Write sweep.csv: every column of every table, without times."""
    lines: list[list[Any]] = []
    for point, one in found.items():
        for row in one.table():
            kept = {k: v for k, v in row.items() if k not in TIMES}
            full = {**dict(point), **kept}
            lines += [] if lines else [[*full]]
            lines.append(["" if v is None else v for v in full.values()])
    file = out / "sweep.csv"
    storage.replace_file(file, csv_lines(lines).encode())
    return file
