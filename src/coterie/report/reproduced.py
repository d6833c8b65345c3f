"""The page of a paper's table that was done again: for each setting, paper against measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from coterie.report.blocks import Block
from coterie.report.charts.style import QUIET, colour, figure, plain
from coterie.report.compared import sortable
from coterie.report.page import Drawn, Section, figure_json, html, left_out, save
from coterie.report.verdict import Tile
from coterie.runs.text_table import TextTable

HOW = "A row is a method: the hollow mark is the paper's number, the filled one was measured here."


class Pair(NamedTuple):
    """A method's number in a paper and here, each with its deviation; None: there is none."""

    method: str
    paper: float | None
    paper_std: float | None
    measured: float | None
    std: float | None


class Column(NamedTuple):
    """One setting and metric of a table: its numbers as they are drawn, and as they are told."""

    title: str
    unit: str  # what the numbers are
    pairs: Sequence[Pair]
    table: TextTable


def write_reproduction(
    file: str | Path,
    *,
    title: str,
    lead: str,
    sentence: str,
    columns: Sequence[Column],
    claims: Sequence[tuple[str, str, str]],
    warnings: Sequence[str] = (),
    texts: Sequence[tuple[str, str]] = (),
) -> Path:
    """Write the page: a chart and a table for each setting, then the claims and the commands."""
    sections = [section(i, column) for i, column in enumerate(columns)]
    if claims:
        told = TextTable("What the paper claims of it", ("claim", "verdict", "by"), tuple(claims))
        block = Block("claims", "Claims", "Each is checked on what was measured, mean over seeds.")
        sections.insert(0, Section(block, tables=(sortable(told),)))
    again = Block("again", "How to do it again", "Running it again goes on where it stopped.")
    sections.append(Section(again, texts=tuple(texts)))
    held = sum(verdict == "holds" for _, verdict, _ in claims)
    tested = sum(verdict != "not tested" for _, verdict, _ in claims)
    return save(
        html(
            title=title,
            lead=lead,
            sentence=sentence,
            tiles=[Tile("claims that hold", f"{held} of {tested}", "of those tested")],
            warnings=list(warnings),
            sections=sections,
            left_out=left_out(sections),
            colours="method",
        ),
        file,
    )


def section(number: int, column: Column) -> Section:
    """A setting: its chart and its table."""
    key = f"column{number}"
    block = Block(key, column.title, HOW, ((key, "Paper and measured"),))
    drawn = Drawn(key, "Paper and measured", figure_json(dumbbells(column.pairs, column.unit)))
    return Section(block, charts=(drawn,), tables=(sortable(column.table),))


def dumbbells(pairs: Sequence[Pair], unit: str) -> Any:
    """A row for each method: a line from the paper's number to ours."""
    names = [plain(p.method, 40) for p in pairs]
    drawn = figure(height=90 + 30 * len(pairs), xaxis={"title": plain(unit)})
    drawn.update_yaxes(categoryorder="array", categoryarray=names[::-1])
    for name, p in zip(names, pairs, strict=True):
        if p.paper is not None and p.measured is not None:
            line = {"color": QUIET, "width": 2}
            ends = {"x": [p.paper, p.measured], "y": [name, name]}
            drawn.add_scatter(
                mode="lines", line=line, hoverinfo="skip", showlegend=False, name="", **ends
            )
    for label, values, stds, mark in (
        ("paper", [p.paper for p in pairs], [p.paper_std for p in pairs], "circle-open"),
        ("measured", [p.measured for p in pairs], [p.std for p in pairs], "circle"),
    ):
        drawn.add_scatter(
            x=values,
            y=names,
            name=label,
            mode="markers",
            marker={"symbol": mark, "size": 11, "color": colour(0), "line": {"width": 2}},
            error_x={"array": [s or 0 for s in stds], "color": QUIET, "thickness": 1.5},
            hovertemplate="%{x:.2f}",
        )
    return drawn
