"""A reproduction in words: a block for each setting and metric, then the claims."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from coterie.core.units import seconds
from coterie.runs.text_table import TextTable

if TYPE_CHECKING:
    from coterie.studies.reproduction.results import Reproduction, Row

HEAD = ("method", "paper", "measured", "difference", "within spread", "seed", "time")


def column_of(row: Row) -> tuple[str, str, str]:
    """The column of the paper's table that a number stands in."""
    return row.dataset, row.setting, row.metric


def tables(rows: Sequence[Row]) -> list[TextTable]:
    """A table for each setting and metric; methods keep their order."""
    by = sorted(rows, key=column_of)
    return [table(tuple(some)) for _, some in groupby(by, key=column_of)]


def table(rows: Sequence[Row]) -> TextTable:
    """One setting and metric."""
    cut = f" (cut: {rows[0].cuts})" if rows[0].cuts else ""
    return TextTable(title(rows[0]) + cut, HEAD, tuple(map(line, rows)))


def title(row: Row) -> str:
    """What a column is called."""
    dataset, setting, _ = column_of(row)
    return f"{dataset} · {setting} · {unit(row)}".replace("_", " ")


def unit(row: Row) -> str:
    """What the numbers of a column are: accuracies are in percent, and say so."""
    return row.metric.replace("_", " ").replace("accuracy percent", "accuracy in percent")


def line(row: Row) -> tuple[str, ...]:
    """One method."""
    return (
        row.method,
        spread(row.paper, row.paper_std),
        spread(row.measured, row.std) + (f" ({row.reached})" if row.reached else ""),
        "" if row.difference is None else f"{row.difference:+.2f}",
        row.within,
        row.seeds,
        "" if row.seconds is None else seconds(row.seconds),
    )


def spread(value: float | None, std: float | None) -> str:
    """A number with its deviation.

    >>> spread(94.0, 0.5), spread(7.0, None), spread(None, None)
    ('94.00 ± 0.50', '7.00', '–')
    """
    if value is None:
        return "–"
    return f"{value:.2f}" + ("" if std is None else f" ± {std:.2f}")


def shown(found: Reproduction, format: str = "text") -> str:
    """All of it, in one of the formats of a table."""
    parts = [table.to(format) for table in tables(found.rows)]
    claims = found.claims()
    if claims and format == "text":
        parts.append("\n".join(["claims of the paper", *(told(*claim) for claim in claims)]))
    elif claims:
        head = ("claim", "verdict", "by")
        parts.append(TextTable("claims of the paper", head, tuple(claims)).to(format))
    return "\n\n".join(parts)


def told(text: str, verdict: str, by: str) -> str:
    """One claim on a line."""
    return f"{verdict:<14} {text}" + (f"  ({by})" if by else "")
