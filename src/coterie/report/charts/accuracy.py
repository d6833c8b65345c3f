"""How well clients do: round by round, against reference methods, and how evenly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from coterie.report.charts import style
from coterie.report.charts.drawing import Drawing
from coterie.report.charts.style import ACCURACY, FROM_ZERO, QUIET, Absent, add_line, colour, plain
from coterie.report.run_data import RunData, last_known
from coterie.runs.reading import Floats

LINES = 24  # clusters with a line of their own by round: the largest ones
BAND = "rgba(138,147,163,0.22)"
ROWS = 60  # clients with a row of their own; more are drawn as one curve
SYMBOLS = ("square-open", "circle-open", "diamond-open")
REFERENCE = {"local": "local only", "fedavg": "FedAvg"}  # reference methods in words
CHANGES = ("arrived", "drift")  # events that change the clients
STEPS = 10  # clusters with a curve of their own over their clients


def accuracy(run: RunData) -> Drawing:
    """Accuracy by round: mean, the middle 80 % of clients, and the mean of each cluster.

    Reference methods that were run beside this one have a line, too.
    """
    drawn = lines(run, run.accuracy, "accuracy_mean", "%{y:.1%}").update_yaxes(**FROM_ZERO)
    for dash, (name, series) in zip(("dash", "dot"), run.curves.items(), strict=False):
        words = REFERENCE.get(name, name)
        add_line(drawn, *series, words, hover="%{y:.1%}", color=QUIET, dash=dash, width=2.4)
    return drawn


def loss(run: RunData) -> Drawing:
    """Loss by round: mean, the middle 80 % of clients, and the mean of each cluster."""
    drawn = lines(run, run.loss, "loss", "%{y:.3f}")
    return drawn.update_yaxes(title="loss (cross-entropy)")


def lines(run: RunData, tables: Mapping[str, Floats], metric: str, shown: str) -> Drawing:
    """The lines of one metric."""
    table = tested(run, tables)
    drawn = style.figure(hovermode="x unified", xaxis=style.by_round(run.tested))
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
    return mark_absent(mark_taken(mark_changes(drawn, run), run, metric, shown), run, metric)


def mark_taken(drawn: Any, run: RunData, metric: str, shown: str) -> Any:
    """The mean on validation data, where there are some, and the round that was taken by them."""
    held = run.series(metric, "validation")
    if len(held.rounds):
        add_line(drawn, *held, "validation", hover=shown, color=QUIET, dash="dashdot", width=2)
    if run.taken is not None:
        drawn.add_scatter(
            x=[run.taken["round"]],
            y=[run.value(metric)],
            name=f"taken: round {run.taken['round']}",
            mode="markers",
            marker={"symbol": "diamond", "size": 12},
            hovertemplate=f"{shown}<extra>the best on validation data</extra>",
        )
    return drawn


def mark_changes(drawn: Drawing, run: RunData) -> Drawing:
    """Dotted lines in the rounds after which clients came, or samples changed hands."""
    for t in sorted({int(e["round"]) for kind in CHANGES for e in run.happened(kind)})[:LINES]:
        drawn.add_vline(t, width=1, dash="dot", color=QUIET)
    return drawn


def mark_absent(drawn: Drawing, run: RunData, metric: str) -> Drawing:
    """Rings on the mean in the rounds in which somebody was not tested, with who and how many."""
    rounds = np.flatnonzero(run.absent.any(1))
    if len(rounds):
        drawn.add_scatter(
            x=run.tested[rounds].tolist(),
            y=run.series(metric).values[rounds].tolist(),
            name="somebody absent",
            mode="markers",
            marker={"symbol": "circle-open", "size": 11, "line": {"width": 2}},
            text=[who_is_behind(run, int(t)) for t in rounds],
            hovertemplate="%{text}<extra></extra>",
        )
    return drawn


def who_is_behind(run: RunData, row: int) -> str:
    """In words, of whom the mean of a tested round is, and of whom it is not."""
    away = run.absent[row]
    names = [plain(run.clients[i], 30) for i in np.flatnonzero(away)]
    some = ", ".join(names[:5]) + ", ..." * (len(names) > 5)
    if run.fills:
        return f"with the last known value of {some}"
    there = int((~np.isnan(run.accuracy[run.stage][row])).sum())
    return f"mean of {there:,} of {there + len(names):,} clients, without {some}"


def of_client(run: RunData, client: int) -> Drawing:
    """One client's accuracy by round, between the mean of its cluster and of everybody."""
    table = tested(run, run.accuracy)
    held = int(run.held[client]) if run.clustered else 0
    drawn = style.figure(height=260, hovermode="x unified", xaxis={"title": "round"})
    lines = [("mean of all", run.series("accuracy_mean").values, QUIET, "dot", 1.6)]
    mine = cluster_means(run, table).get(held)
    if mine is not None:
        lines.append((f"mean of cluster {held}", mine, colour(held), "dash", 1.6))
    name = f"client {plain(run.clients[client], 30)}"
    lines.append((name, table[:, client], colour(held), "solid", 3))
    for label, values, tint, dash, width in lines:
        look = {"color": tint, "dash": dash, "width": width}
        add_line(drawn, run.tested, values, label, hover="%{y:.1%}", **look)
    return drawn.update_yaxes(**FROM_ZERO)


def tested(run: RunData, tables: Mapping[str, Floats]) -> Floats:
    """(T, n) what was measured of each client at the run's stage."""
    table = tables.get(run.stage)
    if table is None or not len(table):
        raise Absent("no round has been tested yet")
    return last_known(table) if run.fills else table


def cluster_means(run: RunData, table: Floats) -> dict[int, Floats]:
    """(T,) the mean of those who held each cluster's model at the time, of the largest clusters."""
    held = run.at(run.tested)
    names, sizes = np.unique(held[held >= 0], return_counts=True)
    if not run.clustered or len(names) < 2:
        return {}
    largest = sorted(names[np.argsort(-sizes, kind="stable")[:LINES]].tolist())
    means = {}
    for cluster in largest:
        mine = (held == cluster) & ~np.isnan(table)
        count = mine.sum(1)
        total = np.where(mine, table, 0).sum(1)
        means[cluster] = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return means


def gains(run: RunData) -> Drawing:
    """A dumbbell for each client: from its references to this run; by rank if there are many."""
    known = references(run)
    final = run.final
    if not known or np.isnan(final).all():
        raise Absent(
            "no run of local or fedavg on the same clients lies beside this one; "
            f"coterie compare --methods local,fedavg,{plain(run.method)} makes them"
        )
    order = np.lexsort((final, run.held))
    order = order[~np.isnan(final[order])]
    if len(order) > ROWS:
        return ranked(run, known)
    rows = list(range(len(order)))
    drawn = style.figure(
        height=120 + 19 * len(order),
        xaxis=ACCURACY,
        yaxis={
            "title": "client",
            "tickvals": rows,
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
    marks = {"y": rows, "mode": "markers", "text": [plain(run.clients[i]) for i in order]}
    for symbol, (name, values) in zip(SYMBOLS, known.items(), strict=False):
        drawn.add_scatter(
            x=values[order].tolist(),
            marker={"symbol": symbol, "size": 9, "line": {"width": 1.6}},
            name=name,
            hovertemplate="client %{text}: %{x:.1%}",
            **marks,
        )
    drawn.add_scatter(
        x=final[order].tolist(),
        marker={"size": 11, "color": hues(run, order)},
        name=plain(run.method) + " (colour: cluster)" * run.clustered,
        customdata=run.held[order].tolist(),
        hovertemplate=f"client %{{text}}{where(run)}: %{{x:.1%}}",
        **marks,
    )
    return drawn


def ranked(run: RunData, known: Mapping[str, Floats]) -> Drawing:
    """The gain of every client over the last reference in points, from the greatest loss on."""
    name, values = list(known.items())[-1]
    gain = 100 * (run.final - values)
    order = np.argsort(gain, kind="stable")
    order = order[~np.isnan(gain[order])]
    drawn = style.figure(
        xaxis={"title": "clients, from the greatest loss to the greatest gain"},
        yaxis={"title": f"gain over {name} in points", "tickformat": "+.0f"},
    )
    drawn.add_scatter(
        x=list(range(1, len(order) + 1)),
        y=gain[order].tolist(),
        mode="markers",
        marker={"size": 5, "color": hues(run, order)},
        text=[plain(run.clients[i]) for i in order],
        customdata=run.held[order].tolist(),
        hovertemplate=f"client %{{text}}{where(run)}: %{{y:+.1f}} points<extra></extra>",
        showlegend=False,
    )
    return drawn.add_hline(0, width=1, color="rgba(138,147,163,0.8)")


def where(run: RunData) -> str:
    """The part of a hover text that names a client's cluster, if it is in one."""
    return ", cluster %{customdata}" if run.clustered else ""


def hues(run: RunData, clients: Any) -> list[str]:
    """The colours of clients' clusters; without clusters they are one."""
    return [colour(int(c) if run.clustered else 0) for c in run.held[clients]]


def references(run: RunData) -> dict[str, Floats]:
    """What each client is compared with: reference runs, or its model before it was adapted."""
    if run.baselines:
        return {REFERENCE.get(name, name): values for name, values in run.baselines.items()}
    if run.stage == "after":
        return {"before adaptation": run.accuracy["before"][run.end(run.tested)]}
    return {}


def fairness(run: RunData) -> Drawing:
    """The share of clients below each accuracy, at the end."""
    final, known = run.final, references(run)
    if np.isnan(final).all():
        raise Absent("no round has been tested yet")
    values = np.concatenate([final, *known.values()])
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    room = 0.02 + 0.02 * (high - low)
    drawn = shares([low - room, high + room])
    if run.clustered and 1 < len(run.clusters) <= STEPS:
        for c in run.clusters.tolist():
            add_shares(drawn, final[run.held == c], f"cluster {c}", color=colour(c), width=1.4)
    for dash, (name, others) in zip(("dash", "dot"), known.items(), strict=False):
        add_shares(drawn, others, name, color=QUIET, width=2, dash=dash)
    add_shares(drawn, final, plain(run.method), width=3.2)
    return drawn


def shares(span: list[float] | None = None, **layout: Any) -> Drawing:
    """An empty figure for shares of clients by accuracy."""
    share = {"title": "share of clients at or below", "tickformat": ".0%", "range": [0, 1.02]}
    return style.figure(xaxis={**ACCURACY, "range": span}, yaxis=share, **layout)


def add_shares(drawn: Drawing, values: Floats, name: str, **line: Any) -> None:
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


def worst(run: RunData) -> Drawing:
    """The worst client by round, beside the worst tenth and the mean."""
    lines = {
        "accuracy_mean": ("mean", "solid", 3.2),
        "accuracy_bottom_10pct": ("worst tenth", "dash", 2),
        "accuracy_bottom_5": ("five worst", "dashdot", 2),
        "accuracy_worst": ("worst client", "dot", 2),
    }
    if not len(run.series("accuracy_worst").rounds):
        raise Absent("no round has been tested yet")
    drawn = style.figure(hovermode="x unified", xaxis=style.by_round(run.tested), yaxis=FROM_ZERO)
    for metric, (name, dash, width) in lines.items():
        add_line(drawn, *run.series(metric), name, hover="%{y:.1%}", dash=dash, width=width)
    return mark_absent(drawn, run, "accuracy_mean")
