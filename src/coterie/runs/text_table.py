"""Tables of words and numbers as plain text, Markdown, CSV, LaTeX or HTML."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from coterie.runs.history import csv_lines


@dataclass(frozen=True)
class TextTable:
    """A head and rows of cells; the first column is words, the others are numbers."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def to(self, format: str) -> str:
        """The table in one of FORMATS."""
        return FORMATS[format](self)


def as_text(table: TextTable) -> str:
    """Columns that line up.

    >>> print(as_text(TextTable("", ("name", "size"), (("a", "10"), ("bcd", "5")))))
    name  size
    ────  ────
    a       10
    bcd      5
    """
    body = columns(table.head, table.rows)
    return f"{table.title}\n{body}" if table.title else body


def columns(head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = True) -> str:
    """Rows under a head and a rule; all but the first column to the right if they are numbers."""
    cells = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    cells.insert(1, ["─" * w for w in widths])
    pads = [str.ljust, *[str.rjust if numbers else str.ljust] * (len(widths) - 1)]
    return "\n".join(
        "  ".join(pad(c, w) for pad, c, w in zip(pads, row, widths, strict=True)).rstrip()
        for row in cells
    )


def as_markdown(table: TextTable) -> str:
    """A table of Markdown.

    >>> print(as_markdown(TextTable("", ("name", "size"), (("a|b", "10"),))))
    | name | size |
    | --- | ---: |
    | a\\|b | 10 |
    """
    rule = ["---", *["---:"] * (len(table.head) - 1)]
    rows = [
        table.head,
        rule,
        *(tuple(c.replace("\\", "\\\\").replace("|", "\\|") for c in row) for row in table.rows),
    ]
    body = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"**{table.title}**\n\n{body}" if table.title else body


LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
LATEX |= {c: f"\\{c}" for c in "&%$#_{}"} | {"±": r"$\pm$", "<": "$<$", ">": "$>$"}


def tex(words: str) -> str:
    """Words as LaTeX has them.

    >>> tex("a_b 50 %")
    'a\\\\_b 50 \\\\%'
    """
    return "".join(LATEX.get(c, c) for c in words)


def as_latex(table: TextTable) -> str:
    """A table of LaTeX, with booktabs."""
    lines = [" & ".join(map(tex, row)) + r" \\" for row in (table.head, *table.rows)]
    return "\n".join(
        [
            *([f"% {table.title}"] if table.title else []),
            rf"\begin{{tabular}}{{l{'r' * (len(table.head) - 1)}}}",
            r"\toprule",
            lines[0],
            r"\midrule",
            *lines[1:],
            r"\bottomrule",
            r"\end{tabular}",
        ]
    )


def as_html(table: TextTable) -> str:
    """A table of HTML; whatever a cell holds stays text.

    >>> "&lt;script&gt;" in as_html(TextTable("", ("name",), (("<script>",),)))
    True
    """
    caption = f"<caption>{html.escape(table.title)}</caption>" if table.title else ""

    def row(cells: Sequence[str], tag: str) -> str:
        return f"<tr>{''.join(f'<{tag}>{html.escape(c)}</{tag}>' for c in cells)}</tr>"

    body = "\n".join(row(cells, "td") for cells in table.rows)
    return (
        f"<table>{caption}<thead>{row(table.head, 'th')}</thead><tbody>\n{body}\n</tbody></table>"
    )


def as_csv(table: TextTable) -> str:
    """Lines of CSV."""
    return csv_lines([table.head, *table.rows]).rstrip("\n")


FORMATS: dict[str, Callable[[TextTable], str]] = {
    "text": as_text,
    "md": as_markdown,
    "csv": as_csv,
    "latex": as_latex,
    "html": as_html,
}
