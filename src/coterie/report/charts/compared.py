"""The charts of a comparison: methods side by side, each in one colour throughout."""

from __future__ import annotations

from typing import Any

import numpy as np

from coterie.report.charts.accuracy import add_shares, shares
from coterie.report.charts.drawing import Drawing
from coterie.report.charts.style import (
    FROM_ZERO,
    QUIET,
    WIDE,
    Absent,
    by_round,
    colour,
    faded,
    figure,
    plain,
)
from coterie.runs.comparison import Comparison
from coterie.runs.statistics import Friedman

PAIRS = 28  # of methods in the chart of wins


def hue(found: Comparison, label: str) -> str:
    """A method's colour."""
    return colour(found.methods.index(label))


def labels(found: Comparison) -> list[str]:
    """The methods that have a run which is done."""
    return [label for label in found.methods if found.of(label)]


def curves(found: Comparison) -> Drawing:
    """Mean accuracy by round: the mean over seeds, and the range of the seeds as a band."""
    drawn = figure(height=440, hovermode="x unified", yaxis=FROM_ZERO)
    for label in labels(found):
        lines = [c.history.series("accuracy_mean", c.stage) for c in found.of(label)]
        rounds = [t for t in lines[0] if all(t in line for line in lines)]
        Y = np.array([[line[t] for t in rounds] for line in lines])
        shared: dict[str, Any] = {"legendgroup": label, "x": rounds}
        if len(Y) > 1:
            edge = {**shared, "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
            edge |= {"name": plain(label), "showlegend": False}
            fill = {"fill": "tonexty", "fillcolor": faded(found.methods.index(label), 0.14)}
            drawn.add_scatter(y=Y.max(0).tolist(), **edge)
            drawn.add_scatter(y=Y.min(0).tolist(), **fill, **edge)
        drawn.add_scatter(
            y=Y.mean(0).tolist(),
            name=plain(label, 40),
            mode="lines" if len(rounds) > 1 else "markers",
            line={"color": hue(found, label), "width": 2.6},
            hovertemplate="%{y:.1%}",
            **shared,
        )
        drawn.update_xaxes(**by_round(rounds))
    return drawn


def ranks(found: Comparison) -> Drawing:
    """The critical-difference diagram: mean ranks, and bars over what is not told apart."""
    test = found.tests().friedman_clients if len(labels(found)) > 2 else None
    if test is None:
        raise Absent("mean ranks need three methods or more")
    k, bars = len(test.methods), len(test.alike)
    drawn = figure(
        meta=WIDE,
        height=170 + 15 * k + 14 * bars,
        margin={"l": 24, "r": 24, "t": 24, "b": 52},
        xaxis={
            "title": f"mean rank over {test.n:,} clients and seeds (1 is best)",
            "range": [0.6, k + 0.4],
            "dtick": 1,
        },
        yaxis={"visible": False, "range": [-(k + 1) // 2 - 0.6, bars * 0.6 + 1.6]},
        showlegend=False,
    )
    add_critical_difference(drawn, test.critical_difference, height=bars * 0.6 + 1.1)
    add_bars(drawn, test)
    add_ranks(drawn, test, found)
    return drawn


def add_critical_difference(drawn: Drawing, length: float, height: float) -> None:
    """The scale at the top: ranks that are nearer than this are not told apart."""
    text = f"critical difference {length:.2f}"
    drawn.add_scatter(
        x=[1, 1 + length],
        y=[height, height],
        mode="lines+markers",
        marker={"symbol": "line-ns-open", "size": 9},
        line={"width": 2},
        name="critical difference",
        hovertemplate=f"{text}<extra></extra>",
    )
    drawn.add_annotation(
        x=1 + length, y=height, text=text, showarrow=False, xanchor="left", xshift=8
    )


def add_bars(drawn: Drawing, test: Friedman) -> None:
    """A bar over each run of methods that are not told apart."""
    for i, bar in enumerate(test.alike):
        ends = [test.ranks[m] for m in bar]
        height = 0.45 + 0.6 * i
        drawn.add_scatter(
            x=[min(ends) - 0.04, max(ends) + 0.04],
            y=[height, height],
            mode="lines",
            line={"width": 6, "color": QUIET},
            name="not told apart",
            hovertemplate=f"not told apart: {plain(', '.join(bar))}<extra></extra>",
        )


def add_ranks(drawn: Drawing, test: Friedman, found: Comparison) -> None:
    """Each method's rank, with a line to its name: the better half to the left, others right."""
    order = sorted(test.methods, key=lambda m: test.ranks[m])
    k, half = len(order), (len(order) + 1) // 2
    for i, m in enumerate(order):
        depth = -(i + 1 if i < half else k - i)
        edge = 0.6 if i < half else k + 0.4
        drawn.add_scatter(
            x=[test.ranks[m], test.ranks[m], edge],
            y=[0, depth, depth],
            mode="lines+markers",
            line={"color": hue(found, m), "width": 1.6},
            marker={"size": [11, 0, 0], "color": hue(found, m)},
            name=plain(m),
            hovertemplate="mean rank %{x:.2f}",
        )
        drawn.add_annotation(
            x=edge,
            y=depth,
            text=f"{plain(m, 40)}  {test.ranks[m]:.2f}",
            showarrow=False,
            xanchor="left" if i < half else "right",
            yanchor="bottom",
        )


def differences(found: Comparison) -> Drawing:
    """What each client gains with each method over the first one, in all seeds."""
    first, *others = labels(found)
    if not others:
        raise Absent("only one method has a run that is done")
    drawn = figure(
        height=150 + 56 * len(others),
        showlegend=False,
        xaxis={
            "title": f"points above {plain(first, 26)}",
            "tickformat": "+.0f",
        },
        yaxis={"autorange": "reversed", "title": "method"},
    )
    reference = {c.seed: c.accuracy for c in found.of(first)}
    for label in others:
        gains = [
            100 * (value - reference[cell.seed][client])
            for cell in found.of(label)
            for client, value in cell.accuracy.items()
            if client in reference.get(cell.seed, {})
        ]
        drawn.add_box(
            x=spread(gains),
            name=plain(label, 30),
            boxpoints="all" if len(gains) <= 300 else "outliers",
            jitter=0.6,
            pointpos=0,
            marker={"color": hue(found, label), "size": 4, "opacity": 0.55},
            line={"color": hue(found, label), "width": 1.6},
            fillcolor=faded(found.methods.index(label), 0.15),
            hovertemplate="%{x:+.1f} points<extra></extra>",
        )
    return drawn.add_vline(0, width=1, color=QUIET)


def spread(values: list[float], most: int = 2_000) -> list[float]:
    """At most so many of them, at even quantiles: a box of these is the box of all."""
    if len(values) <= most:
        return values
    picked: list[float] = np.quantile(values, np.linspace(0, 1, most)).tolist()
    return picked


def wins(found: Comparison) -> Drawing:
    """For how many clients one method of a pair is better, equal or worse."""
    pairs = found.tests().pairs[:PAIRS]
    if not pairs:
        raise Absent("only one method has a run that is done")
    names = [f"{plain(p.first, 26)} against {plain(p.second, 26)}" for p in pairs]
    drawn = figure(
        meta=WIDE,
        height=150 + 30 * len(pairs),
        barmode="stack",
        bargap=0.3,
        xaxis={"title": "clients, over all seeds"},
        yaxis={"autorange": "reversed", "showgrid": False, "ticksuffix": "  "},
    )
    shown = (
        ("first is better", [p.clients.wins for p in pairs], "#2a7f9e"),
        ("equal", [p.clients.ties for p in pairs], "#7d8694"),
        ("second is better", [p.clients.losses for p in pairs], "#c47b2b"),
    )
    for name, values, shade in shown:
        drawn.add_bar(
            x=values,
            y=names,
            orientation="h",
            name=name,
            text=[f"{v:,}" if v else "" for v in values],
            textposition="inside",
            insidetextanchor="middle",
            textfont={"color": "#ffffff"},
            marker={"color": shade, "line": {"width": 0}},
            hovertemplate="%{y}: %{x}",
        )
    return drawn


def pareto(found: Comparison) -> Drawing:
    """Accuracy against bytes; the line is what no other method beats in both."""
    rows = found.table()
    drawn = figure(
        height=440,
        xaxis={"title": "bytes of a run, both ways", "ticksuffix": "B", "rangemode": "tozero"},
        yaxis={"title": "accuracy in the last round", "tickformat": ".0%"},
    )
    front: list[dict[str, Any]] = []
    for row in sorted(rows, key=lambda r: (r["bytes"], -r["accuracy_last"])):
        if not front or row["accuracy_last"] > front[-1]["accuracy_last"]:
            front.append(row)
    drawn.add_scatter(
        x=[r["bytes"] for r in front],
        y=[r["accuracy_last"] for r in front],
        mode="lines",
        line={"color": QUIET, "dash": "dot", "shape": "hv", "width": 1.6},
        name="not beaten",
        hoverinfo="skip",
    )
    for row in rows:
        mean, half = row["accuracy_last"], row["accuracy_last_interval"]
        known = half is not None and half == half
        bar = {"array": [min(half, 1 - mean)], "arrayminus": [min(half, mean)]} if known else {}
        drawn.add_scatter(
            x=[row["bytes"]],
            y=[row["accuracy_last"]],
            error_y={**bar, "thickness": 1.4} if known else None,  # none is above 100 %
            mode="markers",
            marker={"size": 12, "color": hue(found, row["method"])},
            name=plain(row["method"], 40),
            hovertemplate="%{x:.3s}B, %{y:.1%}",
        )
    return drawn


def evenness(found: Comparison) -> Drawing:
    """The share of clients at or below each accuracy, for each method, over all seeds."""
    drawn = shares(height=440)
    for label in labels(found):
        values = [v for cell in found.of(label) for v in cell.accuracy.values()]
        add_shares(drawn, np.array(values), plain(label, 40), color=hue(found, label), width=2.4)
    return drawn


CHARTS = {f.__name__: f for f in (curves, evenness, ranks, differences, wins, pareto)}
