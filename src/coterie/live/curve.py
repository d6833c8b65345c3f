"""One client's accuracy by round, between the mean of its cluster and of everybody."""

from __future__ import annotations

from typing import Any

from coterie.report.charts.learning import cluster_means
from coterie.report.charts.style import QUIET, Absent, add_line, colour, figure, plain
from coterie.report.run_data import RunData


def curve(run: RunData, client: int) -> Any:
    """The figure of one client."""
    table = run.accuracy.get(run.stage)
    if table is None or not len(table):
        raise Absent("no round has been tested yet")
    held = int(run.assign[-1, client])
    drawn = figure(height=260, hovermode="x unified", xaxis={"title": "round"})
    lines = [("mean of all", run.series("accuracy_mean").values, QUIET, "dot", 1.6)]
    mine = cluster_means(run, table).get(held)
    if mine is not None:
        lines.append((f"mean of cluster {held}", mine, colour(held), "dash", 1.6))
    name = f"client {plain(run.clients[client], 30)}"
    lines.append((name, table[:, client], colour(held), "solid", 3))
    for label, values, tint, dash, width in lines:
        style = {"color": tint, "dash": dash, "width": width}
        add_line(drawn, run.tested, values, label, hover="%{y:.1%}", **style)
    return drawn.update_yaxes(title="accuracy", tickformat=".0%", rangemode="tozero")
