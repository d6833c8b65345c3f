"""How well the clusters are those that were planted, and how clear they are."""

from __future__ import annotations

from typing import Any

from coterie.report.charts.style import QUIET, Absent, add_line, by_round, figure
from coterie.report.run_data import RunData

LINES = {
    "ari": ("ARI with the planted groups", "solid"),
    "nmi": ("NMI with the planted groups", "dash"),
    "silhouette": ("silhouette", "dot"),
}


def agreement(run: RunData) -> Any:
    """ARI, NMI and silhouette by round, with the share of clients that moved as bars."""
    found = {m: run.series(m, "clusters") for m in LINES}
    if not any(len(s.rounds) for s in found.values()):
        raise Absent("no groups were planted and the method keeps no distances")
    drawn = figure(
        hovermode="x unified",
        xaxis=by_round(run.rounds),
        yaxis={"title": "agreement", "range": [-0.05, 1.05]},
    )
    churn = run.series("churn", "clusters")
    if churn.values.any():
        drawn.add_bar(
            x=churn.rounds.tolist(),
            y=churn.values.tolist(),
            name="share of clients that moved",
            marker={"color": QUIET, "opacity": 0.5, "line": {"width": 0}},
            hovertemplate="%{y:.1%}",
        )
    for metric, (name, dash) in LINES.items():
        series = found[metric]
        if len(series.rounds):
            add_line(drawn, *series, name, hover="%{y:.3f}", dash=dash, width=2.4)
    low = min(float(s.values.min()) for s in found.values() if len(s.values))
    return drawn.update_yaxes(range=[min(-0.05, low - 0.05), 1.05])
