"""How far clients are from each other, as the method saw it when it clustered them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coterie.report.charts.river import planted_colour
from coterie.report.charts.style import SCALE, Absent, colour, figure, plain
from coterie.report.run_data import RunData
from coterie.runs.reading import Floats, Ints

STRIP = 0.066  # width of a strip beside the matrix
CELLS = 200  # on a side: larger matrices are averaged in blocks
MARKS = ("circle", "square", "diamond", "cross", "triangle-up", "star", "x", "hexagon")


def distances(run: RunData) -> Any:
    """The distance matrix in the order of its dendrogram, with strips of clusters and groups."""
    import plotly.graph_objects as go
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    D, who = matrix(run)
    pairs = squareform(D, checks=False)
    tree = linkage(pairs, "average", optimal_ordering=len(who) <= 400)
    order = leaves_list(tree).astype(np.int64)
    parts = np.array_split(order, min(CELLS, len(order)))
    Z = blocks(D, parts)
    if len(parts) == len(who):
        np.fill_diagonal(Z, np.nan)  # a client to itself: nothing to see
    names = [
        plain(run.clients[who[p[0]]], 22) + (f" … ({len(p)})" if len(p) > 1 else "") for p in parts
    ]
    places = list(range(len(parts)))
    strips: list[tuple[str, Ints, Callable[[int], str]]] = [
        ("cluster", run.assign[-1][who], colour)
    ]
    if run.group is not None:
        strips.append(("planted", run.group[-1][who], lambda g: planted_colour(run, g)))
    left = STRIP * len(strips)
    drawn = figure(
        height=640,
        margin={"l": 24, "r": 24, "t": 30, "b": 60},
        xaxis={
            "domain": [left + 0.01, 1],
            "showticklabels": False,
            "ticks": "",
            "title": "clients, in the same order",
            "showgrid": False,
            "zeroline": False,
        },
        yaxis={"visible": False, "autorange": "reversed"},
    )
    drawn.add_trace(
        go.Heatmap(
            z=Z.tolist(),
            x=places,
            y=places,
            customdata=names,
            text=[[f"{a} – {b}" for b in names] for a in names] if len(parts) <= 60 else None,
            colorscale=SCALE,
            colorbar={"title": {"text": "distance"}, "thickness": 12},
            hovertemplate=("%{text}: " if len(parts) <= 60 else "") + "%{z:.4g}<extra></extra>",
        )
    )
    for s, (word, labels, hue) in enumerate(strips):
        axis = f"x{s + 2}"
        shown = [int(np.bincount(labels[p] + 1).argmax()) - 1 for p in parts]
        drawn.add_bar(
            x=[1] * len(parts),
            y=places,
            orientation="h",
            width=1,
            marker={"color": [hue(c) for c in shown], "line": {"width": 0}},
            xaxis=axis,
            text=names,
            textposition="none",
            customdata=shown,
            hovertemplate=f"%{{text}}: {word} %{{customdata}}<extra></extra>",
            showlegend=False,
        )
        begin = STRIP * s
        drawn.update_layout(
            {
                f"xaxis{s + 2}": {
                    "domain": [begin, begin + STRIP - 0.008],
                    "range": [0, 1],
                    "fixedrange": True,
                    "showticklabels": False,
                    "ticks": "",
                    "showgrid": False,
                    "zeroline": False,
                    "title": {"text": word, "standoff": 4},
                }
            }
        )
    return drawn.update_layout(bargap=0)


def clients(run: RunData) -> Any:
    """A map of the clients: near are those whose distance is small."""
    D, who = matrix(run)
    if len(who) < 3:
        raise Absent("a map needs three clients or more")
    points, kept = spread_out(D)
    drawn = figure(
        height=460,
        xaxis={"title": "first axis", "zeroline": False},
        yaxis={"title": "second axis", "zeroline": False, "scaleanchor": "x"},
    )
    held = run.assign[-1][who]
    truth = None if run.group is None else run.group[-1][who]
    for c in np.unique(held).tolist():
        mine = np.flatnonzero(held == c)
        marks = "circle" if truth is None else [MARKS[g % len(MARKS)] for g in truth[mine]]
        drawn.add_scatter(
            x=points[mine, 0].tolist(),
            y=points[mine, 1].tolist(),
            mode="markers",
            name=f"cluster {c}" if c >= 0 else "no model yet",
            marker={
                "color": colour(c),
                "symbol": marks,
                "size": 11 if len(who) <= 200 else 6,
                "opacity": 0.85,
            },
            text=[
                plain(run.clients[who[i]]) + ("" if truth is None else f", planted {truth[i]}")
                for i in mine
            ],
            hovertemplate="client %{text}",
        )
    return drawn.add_annotation(
        text=f"two axes keep {kept:.0%} of the distances' variance",
        x=1,
        y=0,
        xref="paper",
        yref="paper",
        xanchor="right",
        yanchor="bottom",
        showarrow=False,
    )


def matrix(run: RunData) -> tuple[Floats, Ints]:
    """(m, m) distances and the clients that have one; symmetric, zero on the diagonal."""
    D = run.memory.get("distance")
    if D is None or D.ndim != 2 or D.shape != (run.n, run.n):
        raise Absent("this method keeps no distances between clients")
    who = np.flatnonzero(~np.isnan(np.diagonal(D)))
    if len(who) < 2:
        raise Absent("fewer than two clients answered when distances were taken")
    D = D[np.ix_(who, who)].astype(float)
    D = (D + D.T) / 2
    np.fill_diagonal(D, 0)
    return np.nan_to_num(D, nan=np.nanmax(D)), who


def blocks(D: Floats, parts: list[Ints]) -> Floats:
    """The mean of every block."""
    sums = np.stack([D[p].mean(0) for p in parts])
    means: Floats = np.stack([sums[:, p].mean(1) for p in parts], axis=1)
    return means


def spread_out(D: Floats) -> tuple[Floats, float]:
    """(n, 2) classical multidimensional scaling, and the share of the variance it keeps.

    >>> points, kept = spread_out(np.array([[0.0, 3, 4], [3, 0, 5], [4, 5, 0]]))
    >>> round(float(np.linalg.norm(points[1] - points[2])), 6), round(kept, 6)
    (5.0, 1.0)
    """
    from scipy.linalg import eigh

    n, S = len(D), D**2
    B = -(S - S.mean(0) - S.mean(1)[:, None] + S.mean()) / 2
    values, V = eigh(B, subset_by_index=(n - 2, n - 1))  # in increasing order
    top, V = np.maximum(values[::-1], 0), V[:, ::-1]
    V = V * np.sign(V[np.abs(V).argmax(0), [0, 1]])  # eigenvectors have no sign of their own
    total = float(np.trace(B))
    return V * np.sqrt(top), min(1.0, float(top.sum()) / total) if total > 0 else 0.0
