"""The tables of the five papers, a file each."""

from __future__ import annotations

from coterie.studies.reproduction.papers import autocfl, cflgt, dapfl, fedclust, feddsmic
from coterie.studies.reproduction.table import Table

TABLES: dict[str, Table] = {
    table.name: table
    for paper in (autocfl, cflgt, feddsmic, dapfl, fedclust)
    for table in paper.TABLES
}
