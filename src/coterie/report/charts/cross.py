"""Every cluster's model on every cluster's clients: is one's own really the best?"""

from __future__ import annotations

from typing import Any

from coterie.report.charts.style import SCALE, Absent, figure
from coterie.report.run_data import RunData


def cross(run: RunData) -> Any:
    """Mean accuracy: a row for the clients of each cluster, a column for each model."""
    import plotly.graph_objects as go

    if run.insight is None:
        raise Absent(f"the models cannot be tested: {run.missing or 'the data were not read'}")
    Z = run.insight.cross
    if Z is None:
        raise Absent("every client has a model of its own")
    if len(Z) < 2:
        raise Absent("there is only one model")
    names = [f"{c}" for c in run.insight.clusters]
    drawn = figure(
        height=min(760, 230 + 34 * len(Z)),
        xaxis={"title": "model of cluster", "type": "category", "showgrid": False},
        yaxis={
            "title": "clients of cluster",
            "type": "category",
            "autorange": "reversed",
            "showgrid": False,
        },
    )
    drawn.add_trace(
        go.Heatmap(
            z=Z.tolist(),
            x=names,
            y=names,
            texttemplate="%{z:.0%}" if len(Z) <= 20 else None,
            colorscale=SCALE,
            colorbar={"title": {"text": "accuracy"}, "tickformat": ".0%", "thickness": 12},
            hovertemplate="clients of cluster %{y} with the model of cluster %{x}: %{z:.1%}"
            "<extra></extra>",
        )
    )
    return drawn
