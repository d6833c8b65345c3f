"""The page of the atlas: who wins where, kind of difference by kind of difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from coterie.report.blocks import Block
from coterie.report.charts.drawing import Drawing
from coterie.report.charts.style import QUIET, SCALE, WIDE, colour, figure, plain
from coterie.report.compared import sortable
from coterie.report.page import Drawn, Section, figure_json, html, left_out, save
from coterie.report.verdict import Tile
from coterie.runs.text_table import TextTable

MAP = Block(
    "map",
    "The map",
    "A row is a kind of difference, a column a method; the colour is how many points it is behind "
    "the best there, so that a bright column is a method that is good everywhere.",
    (("map", "Points behind the best"),),
)
PRICE = Block(
    "price",
    "What it costs",
    "A point is a method, over all kinds: up is nearer to the best, left is fewer bytes; FedAvg's "
    "bytes are 1.",
    (("price", "Points behind the best, and bytes"),),
)
SAFE = Block(
    "safe",
    "How safe each method is",
    "Place by place, a place being a kind of difference on one data set and size of clients: in "
    "how many a method is not told apart from the best, how many points it loses at most against "
    "the better of FedAvg and FedAvg with fine-tuning, and whether it finds what is there.",
)
ADVICE = Block("advice", "What to take", "A sentence for each kind, from the numbers alone.")
AGAIN = Block("again", "How to do it again", "Running it again goes on where it stopped.")
FEW = 5  # kinds: a map of fewer has its numbers in its cells alone


class Region(NamedTuple):
    """A kind of difference as it is drawn and told."""

    name: str
    what: str
    advice: str
    behind: Mapping[str, float]  # points behind the best, by method
    tables: Sequence[TextTable]


def write_atlas(
    file: str | Path,
    *,
    lead: str,
    sentence: str,
    tiles: Sequence[Tile],
    regions: Sequence[Region],
    bytes: Mapping[str, float],
    overview: TextTable,
    safety: Sequence[TextTable],
    costs: TextTable,
    warnings: Sequence[str] = (),
    texts: Sequence[tuple[str, str]] = (),
) -> Path:
    """Write the page: the map, what to take, what it costs, and each kind by itself."""
    advice = tuple((r.name, r.advice) for r in regions)
    sections = [
        Section(ADVICE, lines=advice, tables=(sortable(overview),)),
        Section(MAP, charts=(drawn("map", MAP, heat(regions)),)),
        Section(SAFE, tables=tuple(map(sortable, safety))),
        Section(
            PRICE,
            charts=(drawn("price", PRICE, price(regions, bytes)),),
            tables=(sortable(costs),),
        ),
        *(section(region) for region in regions),
        Section(AGAIN, texts=tuple(texts)),
    ]
    return save(
        html(
            title="Atlas · who wins where",
            lead=lead,
            sentence=sentence,
            tiles=list(tiles),
            warnings=list(warnings),
            sections=sections,
            left_out=left_out(sections),
            colours="method",
        ),
        file,
    )


def drawn(name: str, block: Block, drawing: Drawing) -> Drawn:
    """A chart of a block."""
    return Drawn(name, dict(block.charts)[name], figure_json(drawing))


def section(region: Region) -> Section:
    """A kind of difference: who stands where in it."""
    how = f"{region.what[0].upper()}{region.what[1:]}. Bytes and training are FedAvg's times that."
    block = Block(f"kind-{region.name}", region.name, how)
    return Section(
        block, lines=(("advice", region.advice),), tables=tuple(map(sortable, region.tables))
    )


def methods_of(regions: Sequence[Region]) -> list[str]:
    """The methods, the one that is least behind over all kinds first."""
    found: dict[str, list[float]] = {}
    for region in regions:
        for method, behind in region.behind.items():
            found.setdefault(method, []).append(behind)
    return sorted(found, key=lambda m: sum(found[m]) / len(found[m]))


def heat(regions: Sequence[Region]) -> Drawing:
    """How many points each method is behind the best in each kind."""
    methods = methods_of(regions)
    rows = [[r.behind.get(m) for m in methods] for r in regions]
    shown = [["" if v is None else f"{v:.1f}" for v in row] for row in rows]
    chart = figure(
        meta=WIDE,
        height=140 + 28 * len(regions),
        margin={"l": 64, "r": 24, "t": 24, "b": 20},
        xaxis={"side": "top", "tickangle": -40},
    )
    chart.update_yaxes(autorange="reversed")
    return chart.add_heatmap(
        z=rows,
        x=[plain(m, 24) for m in methods],
        y=[plain(r.name, 30) for r in regions],
        text=shown,
        texttemplate="%{text}",
        colorscale=SCALE,
        reversescale=True,
        zmin=0,
        zmax=20,  # beyond it is far
        showscale=len(regions) >= FEW,  # a scale of two rows' height has no room for its numbers
        colorbar={"title": {"text": "points"}, "thickness": 12},
        hovertemplate="%{y}<br>%{x}: %{z:.1f} points behind<extra></extra>",
    )


def price(regions: Sequence[Region], bytes: Mapping[str, float]) -> Drawing:
    """How far behind each method is in the mean over kinds, against what it sends."""
    chart = figure(
        height=420,
        xaxis={"title": "bytes, FedAvg's being 1", "type": "log"},
        yaxis={"title": "points behind the best", "autorange": "reversed"},
    )
    for i, method in enumerate(m for m in methods_of(regions) if bytes.get(m)):
        behind = [r.behind[method] for r in regions if method in r.behind]
        chart.add_scatter(
            x=[bytes[method]],
            y=[sum(behind) / len(behind)],
            name=plain(method, 24),
            mode="markers+text",
            text=[plain(method, 24)],
            textposition="top center",
            cliponaxis=False,
            marker={"size": 11, "color": colour(i), "line": {"width": 1, "color": QUIET}},
            hovertemplate="%{y:.1f} points behind<br>%{x:.2f} times FedAvg's bytes",
            showlegend=False,
        )
    return chart
