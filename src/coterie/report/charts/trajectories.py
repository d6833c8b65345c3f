"""CFLGT's view: how the clients' data pull each class's weights, and push them."""

from __future__ import annotations

from typing import Any

import numpy as np

from coterie.report.charts.style import Absent, colour, faded, figure, plain
from coterie.report.run_data import RunData

LINES = 100  # clients with a line of their own


def trajectories(run: RunData) -> Any:
    """A line for each client through its classes, in the colour of its cluster."""
    T = run.memory.get("trajectories")
    if T is None:
        raise Absent("only CFLGT takes gradient trajectories, when it clusters")
    who = np.flatnonzero(~np.isnan(T).any((1, 2)))
    shown = who[np.linspace(0, len(who) - 1, min(LINES, len(who))).round().astype(int)]
    classes = run.insight.classes if run.insight else [str(c) for c in range(T.shape[2])]
    drawn = figure(height=480, xaxis={"title": "pull"}, yaxis={"title": "push"})
    for c in np.unique(run.assign[-1][who]).tolist():
        x: list[float | None] = []
        y: list[float | None] = []
        text: list[str] = []
        for i in shown[run.assign[-1][shown] == c].tolist():
            x += [*T[i, 0].tolist(), None]
            y += [*T[i, 1].tolist(), None]
            text += [f"client {plain(run.clients[i])}, class {plain(k)}" for k in classes] + [""]
        drawn.add_scatter(
            x=x,
            y=y,
            text=text,
            mode="lines+markers",
            line={"color": faded(c, 0.5), "width": 1},
            marker={"size": 4, "color": colour(c)},
            name=f"cluster {c}",
            legendgroup=f"{c}",
            hovertemplate="%{text}",
        )
        mean = T[who[run.assign[-1][who] == c]].mean(0)
        drawn.add_scatter(
            x=mean[0].tolist(),
            y=mean[1].tolist(),
            text=[f"class {plain(k)}" for k in classes],
            mode="lines+markers",
            line={"color": colour(c), "width": 3},
            marker={"size": 8, "color": colour(c)},
            name=f"mean of cluster {c}",
            legendgroup=f"{c}",
            showlegend=False,
            hovertemplate="%{text}",
        )
    return drawn
