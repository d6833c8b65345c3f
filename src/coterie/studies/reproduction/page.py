"""The page of a reproduction, from its rows."""

from __future__ import annotations

import shlex
from itertools import groupby
from pathlib import Path

from coterie.report.reproduced import Column, Pair, write_reproduction
from coterie.studies.reproduction.results import Reproduction, Row
from coterie.studies.reproduction.text import column_of, table, title, unit


def write_page(found: Reproduction) -> Path:
    """Write report.html beside the table's CSV."""
    asked = found.asked
    by = sorted(found.rows, key=column_of)
    columns = [
        Column(title(rows[0]), unit(rows[0]), [pair(r) for r in rows], table(rows))
        for rows in (tuple(some) for _, some in groupby(by, key=column_of))
    ]
    done = sum(row.measured is not None for row in found.rows)
    went = f"cd {shlex.quote(str(Path.cwd()))}"  # the commands name folders from here
    cuts = dict.fromkeys(row.cuts for row in found.rows if row.cuts)
    return write_reproduction(
        asked.folder / f"{asked.table.name}.html",
        title=f"{asked.table.name} · {asked.table.title}",
        lead=asked.table.paper,
        sentence=f"{done} of {len(found.rows)} numbers are measured.",
        columns=columns,
        claims=found.claims(),
        warnings=[f"Other than in the paper: {cut}." for cut in cuts],
        texts=[
            ("Commands", "\n".join([went, *dict.fromkeys(row.command for row in found.rows)])),
            ("Experiment file", asked.table.file.read_text(encoding="utf-8")),
        ],
    )


def pair(row: Row) -> Pair:
    """A row as it is drawn."""
    return Pair(row.method, row.paper, row.paper_std, row.measured, row.std)
