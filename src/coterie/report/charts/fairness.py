"""How evenly accuracy is spread over clients, and who is worst off."""

from __future__ import annotations

from typing import Any

import numpy as np

from coterie.report.charts.gains import references
from coterie.report.charts.style import QUIET, Absent, add_line, by_round, colour, figure, plain
from coterie.report.run_data import RunData
from coterie.runs.reading import Floats

CLUSTERS = 10  # with a curve of their own


def fairness(run: RunData) -> Any:
    """The share of clients below each accuracy, at the end."""
    final = run.final
    if np.isnan(final).all():
        raise Absent("no round has been tested yet")
    drawn = figure(
        xaxis={"title": "accuracy", "tickformat": ".0%", "range": span(run)},
        yaxis={"title": "share of clients at or below", "tickformat": ".0%", "range": [0, 1.02]},
    )
    held = run.assign[-1]
    if not run.personal and 1 < len(run.clusters) <= CLUSTERS:
        for c in run.clusters.tolist():
            curve(drawn, final[held == c], f"cluster {c}", color=colour(c), width=1.4)
    for dash, (name, values) in zip(("dash", "dot"), references(run).items(), strict=False):
        curve(drawn, values, name, color=QUIET, width=2, dash=dash)
    curve(drawn, final, plain(run.method), width=3.2)
    return drawn


def span(run: RunData) -> list[float]:
    """From the lowest accuracy shown to the highest, with a little room."""
    values = np.concatenate([run.final, *references(run).values()])
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    room = 0.02 + 0.02 * (high - low)
    return [low - room, high + room]


def curve(drawn: Any, values: Floats, name: str, **line: Any) -> None:
    """Add the share of clients at or below each accuracy, as a curve of steps."""
    x = np.sort(values[~np.isnan(values)])
    if not len(x):
        return
    drawn.add_scatter(
        x=[x[0], *x.tolist()],
        y=np.linspace(0, 1, len(x) + 1).tolist(),
        mode="lines",
        line={"shape": "hv", **line},
        name=name,
        hovertemplate="%{y:.0%} of clients have %{x:.1%} or less",
    )


def worst(run: RunData) -> Any:
    """The worst client by round, beside the worst tenth and the mean."""
    lines = {
        "accuracy_mean": ("mean", "solid", 3.2),
        "accuracy_bottom_10pct": ("worst tenth", "dash", 2),
        "accuracy_bottom_5": ("five worst", "dashdot", 2),
        "accuracy_worst": ("worst client", "dot", 2),
    }
    if not len(run.series("accuracy_worst").rounds):
        raise Absent("no round has been tested yet")
    drawn = figure(
        hovermode="x unified",
        xaxis=by_round(run.tested),
        yaxis={"title": "accuracy", "tickformat": ".0%", "rangemode": "tozero"},
    )
    for metric, (name, dash, width) in lines.items():
        add_line(drawn, *run.series(metric), name, hover="%{y:.1%}", dash=dash, width=width)
    return drawn
