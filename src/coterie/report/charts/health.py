"""Whether the run was well: sizes of updates, and answers that could not be used."""

from __future__ import annotations

from typing import Any

from coterie.report.charts.style import Absent, by_round, colour, figure, plain
from coterie.report.run_data import RunData

ROWS = 40  # clients with a row of their own, those with most rejected replies first


def norms(run: RunData) -> Any:
    """The norms of updates, where the method reports them."""
    names = {"mean_norm": "norm of the mean update", "max_norm": "largest norm of an update"}
    found = {name: run.series(name, "clusters") for name in names}
    if not any(len(s.rounds) for s in found.values()):
        raise Absent("this method does not report the sizes of updates")
    drawn = figure(
        hovermode="x unified",
        xaxis=by_round(run.rounds),
        yaxis={"title": "norm", "rangemode": "tozero"},
    )
    for dash, (name, series) in zip(("solid", "dash"), found.items(), strict=True):
        drawn.add_scatter(
            x=series.rounds.tolist(),
            y=series.values.tolist(),
            name=names[name],
            line={"dash": dash, "width": 2.4},
        )
    return drawn


def rejected(run: RunData) -> Any:
    """When whose reply was rejected."""
    events = run.happened("rejected")
    if not events:
        raise Absent("no reply was rejected")
    counts: dict[str, int] = {}
    for e in events:
        counts[e["client"]] = counts.get(e["client"], 0) + 1
    shown = sorted(counts, key=lambda name: -counts[name])[:ROWS]
    rows = {name: i for i, name in enumerate(shown)}
    some = [e for e in events if e["client"] in rows]
    left = len(counts) - len(shown)
    drawn = figure(
        height=180 + 20 * len(shown),
        xaxis={"title": "round", "rangemode": "tozero"},
        yaxis={
            "title": "client" + f" ({left} more not shown)" * (left > 0),
            "tickvals": list(rows.values()),
            "ticktext": [plain(name, 22) for name in shown],
            "range": [len(shown) - 0.4, -0.6],
        },
    )
    drawn.add_scatter(
        x=[e["round"] for e in some],
        y=[rows[e["client"]] for e in some],
        mode="markers",
        marker={"symbol": "x", "size": 9, "color": colour(6)},
        text=[f"client {plain(e['client'])}: {plain(e['why'])}" for e in some],
        hovertemplate="round %{x}, %{text}<extra></extra>",
        showlegend=False,
    )
    return drawn
