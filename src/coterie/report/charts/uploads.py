"""How much left each client."""

from __future__ import annotations

from typing import Any

import numpy as np

from coterie.report.charts.gains import hues
from coterie.report.charts.style import QUIET, Absent, colour, figure, plain
from coterie.report.run_data import RunData

BARS = 80  # clients with a bar of their own


def uploads(run: RunData) -> Any:
    """Bytes that left each client over the whole run; their distribution if there are many."""
    total = run.up.sum(0)
    if not total.any():
        raise Absent("nothing left any client")
    if run.n > BARS:
        drawn = figure(
            xaxis={"title": "bytes that left a client", "ticksuffix": "B"},
            yaxis={"title": "clients"},
            bargap=0.05,
        )
        counts, edges = np.histogram(total, bins=40)
        drawn.add_bar(
            x=((edges[:-1] + edges[1:]) / 2).tolist(),
            y=counts.tolist(),
            marker={"color": QUIET, "line": {"width": 0}},
            hovertemplate="about %{x:.3s}B: %{y} clients<extra></extra>",
        )
        return drawn
    order = np.lexsort((np.arange(run.n), run.assign[-1]))
    drawn = figure(
        xaxis={
            "title": "client, by cluster",
            "tickvals": list(range(run.n)),
            "ticktext": [plain(run.clients[i], 16) for i in order],
        },
        yaxis={"title": "bytes that left it", "ticksuffix": "B"},
    )
    drawn.add_bar(
        x=list(range(run.n)),
        y=total[order].tolist(),
        marker={
            "color": [colour(c) for c in hues(run, run.assign[-1][order])],
            "line": {"width": 0},
        },
        text=[plain(run.clients[i]) for i in order],
        textposition="none",
        hovertemplate="client %{text}: %{y:.3s}B<extra></extra>",
    )
    return drawn
