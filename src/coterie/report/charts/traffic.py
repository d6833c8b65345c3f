"""What accuracy cost: bytes to and from clients."""

from __future__ import annotations

from typing import Any

import numpy as np

from coterie.report.charts.style import Absent, figure
from coterie.report.run_data import RunData


def traffic(run: RunData) -> Any:
    """Accuracy against all bytes so far, and the bytes of each round."""
    down, up = run.down.sum(1), run.up.sum(1)
    mean = run.series("accuracy_mean")
    if not (down.any() or up.any()):
        raise Absent("nothing was sent")
    drawn = figure(
        xaxis={"title": "bytes so far, both ways", "domain": [0, 0.46], "ticksuffix": "B"},
        yaxis={"title": "accuracy", "tickformat": ".0%", "rangemode": "tozero"},
        xaxis2={"title": "round", "domain": [0.58, 1], "anchor": "y2"},
        yaxis2={"title": "bytes in the round", "anchor": "x2", "ticksuffix": "B"},
        barmode="stack",
        bargap=0.1,
    )
    spent = np.cumsum(down + up)[np.searchsorted(run.rounds, mean.rounds)]
    drawn.add_scatter(
        x=spent.tolist(),
        y=mean.values.tolist(),
        customdata=mean.rounds.tolist(),
        mode="lines+markers",
        marker={"size": 5},
        line={"width": 2.4},
        name="mean accuracy",
        hovertemplate="round %{customdata}: %{y:.1%} after %{x:.3s}B<extra></extra>",
    )
    shades = (("down, to clients", down, "#b3bac6"), ("up, from clients", up, "#6b7688"))
    for name, values, shade in shades:
        drawn.add_bar(
            x=run.rounds.tolist(),
            y=values.tolist(),
            name=name,
            xaxis="x2",
            yaxis="y2",
            marker={"color": shade, "line": {"width": 0}},
            hovertemplate="round %{x}: %{y:.3s}B",
        )
    return drawn
