"""Who gains and who loses: each client against what it would have had otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from coterie.report.charts.style import Absent, colour, figure, plain
from coterie.report.run_data import RunData
from coterie.runs.reading import Floats

ROWS = 60  # clients with a row of their own; more are drawn as one curve
SYMBOLS = ("square-open", "circle-open", "diamond-open")


def gains(run: RunData) -> Any:
    """A dumbbell for each client: from its references to this run; by rank if there are many."""
    known = references(run)
    final = run.final
    if not known or np.isnan(final).all():
        raise Absent("nothing has been tested that this run could be compared with")
    tested = ~np.isnan(final)
    order = np.lexsort((final, run.assign[-1]))
    order = order[tested[order]]
    if len(order) > ROWS:
        return ranked(run, known)
    drawn = figure(
        height=120 + 19 * len(order),
        xaxis={"title": "accuracy", "tickformat": ".0%"},
        yaxis={
            "title": "client",
            "tickvals": list(range(len(order))),
            "ticktext": [plain(run.clients[i], 22) for i in order],
            "range": [-0.8, len(order) - 0.2],
            "showgrid": False,
        },
    )
    for row, i in enumerate(order.tolist()):
        ends = [float(v[i]) for v in known.values()] + [float(final[i])]
        drawn.add_scatter(
            x=[np.nanmin(ends), np.nanmax(ends)],
            y=[row, row],
            mode="lines",
            line={"color": "rgba(138,147,163,0.45)", "width": 2},
            showlegend=False,
            hoverinfo="skip",
        )
    rows = list(range(len(order)))
    names = [plain(run.clients[i]) for i in order]
    for symbol, (name, values) in zip(SYMBOLS, known.items(), strict=False):
        drawn.add_scatter(
            x=values[order].tolist(),
            y=rows,
            mode="markers",
            marker={"symbol": symbol, "size": 9, "line": {"width": 1.6}},
            name=name,
            text=names,
            hovertemplate="client %{text}: %{x:.1%}",
        )
    clusters = run.assign[-1][order]
    drawn.add_scatter(
        x=final[order].tolist(),
        y=rows,
        mode="markers",
        marker={"size": 11, "color": [colour(int(c)) for c in hues(run, clusters)]},
        name=f"{plain(run.method)} (colour: cluster)" if not run.personal else plain(run.method),
        text=names,
        customdata=clusters.tolist(),
        hovertemplate="client %{text}, cluster %{customdata}: %{x:.1%}",
    )
    return drawn


def ranked(run: RunData, known: Mapping[str, Floats]) -> Any:
    """The gain of every client over the last reference, from the greatest loss to the most won."""
    name, values = list(known.items())[-1]
    gain = run.final - values
    order = np.argsort(gain, kind="stable")
    order = order[~np.isnan(gain[order])]
    drawn = figure(
        xaxis={"title": "clients, from the greatest loss to the greatest gain"},
        yaxis={"title": f"gain over {name}", "tickformat": "+.0%"},
    )
    drawn.add_scatter(
        x=list(range(1, len(order) + 1)),
        y=gain[order].tolist(),
        mode="markers",
        marker={"size": 5, "color": [colour(int(c)) for c in hues(run, run.assign[-1][order])]},
        text=[plain(run.clients[i]) for i in order],
        customdata=run.assign[-1][order].tolist(),
        hovertemplate="client %{text}, cluster %{customdata}: %{y:+.1%}<extra></extra>",
        showlegend=False,
    )
    return drawn.add_hline(0, line_width=1, line_color="rgba(138,147,163,0.8)")


def hues(run: RunData, clusters: Any) -> list[int]:
    """The clusters as colours; with a model for each client they mean nothing and are one."""
    return [0] * len(clusters) if run.personal else [int(c) for c in clusters]


def references(run: RunData) -> dict[str, Floats]:
    """What each client is compared with: reference runs, before adaptation, or its first test."""
    if found := {k: v for k, v in run.baselines.items() if k != run.method}:
        return {{"local": "local only", "fedavg": "FedAvg"}.get(k, k): v for k, v in found.items()}
    if run.stage == "after":
        return {"before adaptation": run.accuracy["before"][-1]}
    if len(run.tested) > 1:
        return {f"round {run.tested[0]}": run.accuracy[run.stage][0]}
    return {}
