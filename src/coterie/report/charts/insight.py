"""What only the clients' data tell: who holds which labels, and whose model is best for whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from coterie.report.charts.accuracy import where
from coterie.report.charts.drawing import Drawing
from coterie.report.charts.style import (
    SCALE,
    UNGROUPED,
    WIDE,
    Absent,
    add_bars,
    colour,
    figure,
    plain,
)
from coterie.report.run_data import RunData
from coterie.runs.reading import Ints

ROWS = 200  # at most: clients of one cluster are averaged beyond
NAMED = 60  # up to so many rows, each has its name beside it


def cross(run: RunData) -> Drawing:
    """Mean accuracy: a row for the clients of each cluster, a column for each model."""
    if run.insight is None:
        raise Absent(f"the models cannot be tested: {run.missing or 'the data were not read'}")
    Z = run.insight.cross
    if Z is None:
        raise Absent(UNGROUPED.get(run.kind, "they were not tested"))
    if len(Z) < 2:
        raise Absent("there is only one cluster")
    names = [f"{c}" for c in run.insight.clusters]
    axis = {"type": "category", "showgrid": False}
    drawn = figure(
        height=min(760, 230 + 34 * len(Z)),
        xaxis={"title": "model of cluster", **axis},
        yaxis={"title": "clients of cluster", "autorange": "reversed", **axis},
    )
    return drawn.add_heatmap(
        z=Z.tolist(),
        x=names,
        y=names,
        texttemplate="%{z:.0%}" if len(Z) <= 20 else None,
        colorscale=SCALE,
        colorbar={"title": {"text": "accuracy"}, "tickformat": ".0%", "thickness": 12},
        hovertemplate="clients of cluster %{y} with the model of cluster %{x}: %{z:.1%}"
        "<extra></extra>",
    )


def labels(run: RunData) -> Drawing:
    """Clients x classes as shares of each client's samples, grouped by cluster, with sizes."""
    if run.insight is None:
        raise Absent(f"the clients' data are not at hand: {run.missing or 'they were not read'}")
    counts = run.insight.counts
    held = run.held if run.clustered else np.zeros(run.n, int)
    order = np.lexsort((np.arange(run.n), counts.argmax(1), held))
    rows = binned(order, held)
    names = [plain(run.clients[r[0]], 22) + f" … ({len(r)})" * (len(r) > 1) for r in rows]
    drawn = figure(
        meta=WIDE,
        height=min(900, 150 + 17 * len(rows)),
        **axes(names),
        bargap=0.15 if len(rows) <= NAMED else 0,
        showlegend=False,
    )
    sums = np.stack([counts[r].sum(0) for r in rows])
    add_shares(drawn, sums, names, [plain(c, 16) for c in run.insight.classes])
    sizes = [float(counts[r].sum(1).mean()) for r in rows]
    clusters = [int(held[r[0]]) for r in rows]
    strips = ((sizes, "x2", ": %{x:,.0f} samples", None), ([1.0] * len(rows), "x3", "", 1))
    for lengths, axis, hover, width in strips:
        add_bars(
            drawn,
            lengths,
            list(range(len(names))),
            [colour(c) for c in clusters],
            width=width,
            orientation="h",
            xaxis=axis,
            text=names,
            textposition="none",
            customdata=clusters,
            hovertemplate=f"client %{{text}}{where(run)}{hover}<extra></extra>",
        )
    return drawn


def axes(names: Sequence[str]) -> dict[str, Any]:
    """From left to right: a strip of clusters (x3), the map (x), the samples of each row (x2)."""
    shown = len(names) <= NAMED
    return {
        "xaxis": {
            "title": "class",
            "type": "category",
            "domain": [0.03, 0.76],
            "showgrid": False,
            "ticks": "",
        },
        "xaxis2": {"domain": [0.86, 1], "title": "samples", "rangemode": "tozero"},
        "xaxis3": {"domain": [0, 0.022], "range": [0, 1], "visible": False, "fixedrange": True},
        "yaxis": {
            "title": "client",
            "anchor": "x3",
            "autorange": "reversed",
            "tickvals": list(range(len(names))) if shown else [],
            "ticktext": list(names) if shown else [],
            "showgrid": False,
            "zeroline": False,
        },
    }


def add_shares(drawn: Drawing, sums: Ints, names: Sequence[str], classes: Sequence[str]) -> None:
    """The map: which share of a row's samples has which label."""
    share = sums / np.maximum(1, sums.sum(1, keepdims=True))
    drawn.add_heatmap(
        z=share.tolist(),
        x=list(classes),
        y=list(range(len(names))),
        text=[[n] * len(classes) for n in names],
        customdata=sums.tolist(),
        colorscale=SCALE,
        zmin=0,
        zmax=float(share.max()),  # without it, Plotly begins at the smallest share
        colorbar={"title": {"text": "share"}, "tickformat": ".0%", "thickness": 12, "x": 0.765},
        hovertemplate="client %{text}<br>class %{x}: %{z:.1%}, %{customdata:,} samples"
        "<extra></extra>",
    )


def binned(order: Ints, held: Ints) -> list[Ints]:
    """The rows of the map: a client each, or neighbours of one cluster together."""
    if len(order) <= ROWS:
        return np.array_split(order, len(order))
    clusters = np.unique(held).tolist()
    room = ROWS - len(clusters)  # every cluster has a row at least
    if room < 0:
        return np.array_split(order, ROWS)
    rows: list[Ints] = []
    for cluster in clusters:
        mine = order[held[order] == cluster]
        rows += np.array_split(mine, min(len(mine), 1 + room * len(mine) // len(order)))
    return rows
