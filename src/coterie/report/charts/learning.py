"""How well clients do, round by round: everybody, and cluster by cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from coterie.report.charts.style import Absent, add_line, by_round, colour, figure
from coterie.report.run_data import RunData
from coterie.runs.reading import Floats

LINES = 24  # clusters with a line of their own: the largest ones
BAND = "rgba(138,147,163,0.22)"


def accuracy(run: RunData) -> Any:
    """Accuracy by round: mean, the middle 80 % of clients, and the mean of each cluster."""
    drawn = lines(run, run.accuracy, "accuracy_mean", "%{y:.1%}")
    return drawn.update_yaxes(title="accuracy", tickformat=".0%", rangemode="tozero")


def loss(run: RunData) -> Any:
    """Loss by round: mean, the middle 80 % of clients, and the mean of each cluster."""
    drawn = lines(run, run.loss, "loss", "%{y:.3f}")
    return drawn.update_yaxes(title="loss (cross-entropy)")


def lines(run: RunData, tables: Mapping[str, Floats], metric: str, shown: str) -> Any:
    """The lines of one metric."""
    table = tables.get(run.stage)
    if table is None or not len(table):
        raise Absent("no round has been tested yet")
    drawn = figure(hovermode="x unified", xaxis=by_round(run.tested))
    x = run.tested.tolist()
    low, high = np.nanquantile(table, [0.1, 0.9], axis=1)
    edge = {"x": x, "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
    drawn.add_scatter(y=high.tolist(), showlegend=False, name="90 % of clients below", **edge)
    drawn.add_scatter(y=low.tolist(), fill="tonexty", fillcolor=BAND, name="middle 80 %", **edge)
    for cluster, values in cluster_means(run, table).items():
        name = f"cluster {cluster}"
        add_line(drawn, run.tested, values, name, hover=shown, color=colour(cluster), width=1.6)
    if run.stage == "after":
        drawn.add_scatter(
            x=x,
            y=run.series(metric, "before").values.tolist(),
            name="before adaptation",
            line={"dash": "dot", "width": 2},
            hovertemplate=shown,
        )
    add_line(drawn, run.tested, run.series(metric).values, "mean", hover=shown, width=3.2)
    return drawn


def cluster_means(run: RunData, table: Floats) -> dict[int, Floats]:
    """(T,) the mean of those who held each cluster's model at the time, of the largest clusters."""
    held = run.at(run.tested)
    names, sizes = np.unique(held[held >= 0], return_counts=True)
    if run.personal or len(names) < 2:
        return {}
    largest = sorted(names[np.argsort(-sizes, kind="stable")[:LINES]].tolist())
    means = {}
    for cluster in largest:
        mine = (held == cluster) & ~np.isnan(table)
        count = mine.sum(1)
        total = np.where(mine, table, 0).sum(1)
        means[cluster] = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return means
