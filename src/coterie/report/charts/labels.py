"""Who holds which labels, cluster by cluster."""

from __future__ import annotations

from typing import Any

import numpy as np

from coterie.report.charts.style import SCALE, Absent, colour, figure, plain
from coterie.report.run_data import RunData
from coterie.runs.reading import Ints

ROWS = 200  # at most: clients of one cluster are averaged beyond


def labels(run: RunData) -> Any:
    """Clients x classes as shares of each client's samples, grouped by cluster, with sizes."""
    import plotly.graph_objects as go

    if run.insight is None:
        raise Absent(f"the clients' data are not at hand: {run.missing or 'they were not read'}")
    counts = run.insight.counts
    held = np.zeros(run.n, int) if run.personal else run.assign[-1]
    order = np.lexsort((np.arange(run.n), counts.argmax(1), held))
    rows = binned(order, held)
    sums = np.stack([counts[r].sum(0) for r in rows])
    share = sums / np.maximum(1, sums.sum(1, keepdims=True))
    names = [plain(run.clients[r[0]], 22) + f" … ({len(r)})" * (len(r) > 1) for r in rows]
    places = list(range(len(rows)))
    classes = [plain(c, 16) for c in run.insight.classes]
    drawn = figure(
        height=min(900, 150 + 17 * len(rows)),
        xaxis={
            "title": "class",
            "type": "category",
            "domain": [0.03, 0.76],
            "showgrid": False,
            "ticks": "",
        },
        xaxis2={"domain": [0.86, 1], "title": "samples", "rangemode": "tozero"},
        xaxis3={"domain": [0, 0.022], "range": [0, 1], "visible": False, "fixedrange": True},
        yaxis={
            "title": "client, by cluster",
            "anchor": "x3",
            "autorange": "reversed",
            "tickvals": places if len(rows) <= 60 else [],
            "ticktext": names if len(rows) <= 60 else [],
            "showgrid": False,
            "zeroline": False,
        },
        bargap=0.15 if len(rows) <= 60 else 0,
        showlegend=False,
    )
    drawn.add_trace(
        go.Heatmap(
            z=share.tolist(),
            x=classes,
            y=places,
            text=[[n] * len(classes) for n in names],
            customdata=sums.tolist(),
            colorscale=SCALE,
            zmin=0,
            colorbar={"title": {"text": "share"}, "tickformat": ".0%", "thickness": 12, "x": 0.765},
            hovertemplate="client %{text}<br>class %{x}: %{z:.1%}, %{customdata:,} samples"
            "<extra></extra>",
        )
    )
    hues = [colour(0 if run.personal else int(held[r[0]])) for r in rows]
    for axis, x, gap in (("x2", [counts[r].sum(1).mean() for r in rows], None), ("x3", None, 1)):
        drawn.add_bar(
            x=x or [1] * len(rows),
            y=places,
            width=gap,
            orientation="h",
            xaxis=axis,
            marker={"color": hues, "line": {"width": 0}},
            text=names,
            textposition="none",
            customdata=[int(held[r[0]]) for r in rows],
            hovertemplate="client %{text}, cluster %{customdata}"
            + (": %{x:,.0f} samples" if x else "")
            + "<extra></extra>",
        )
    return drawn


def binned(order: Ints, held: Ints) -> list[Ints]:
    """The rows of the map: a client each, or neighbours of one cluster together."""
    if len(order) <= ROWS:
        return [order[i : i + 1] for i in range(len(order))]
    clusters = np.unique(held).tolist()
    room = ROWS - len(clusters)  # every cluster has a row at least
    if room < 0:
        return np.array_split(order, ROWS)
    rows: list[Ints] = []
    for cluster in clusters:
        mine = order[held[order] == cluster]
        rows += np.array_split(mine, min(len(mine), 1 + room * len(mine) // len(order)))
    return rows
