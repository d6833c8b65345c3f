"""How far clients are from each other, as the method saw it when it clustered them.

Most methods keep distances; CFLGT how the clients' data pull and push each class's weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from coterie.report.charts.clusters import planted_colour
from coterie.report.charts.drawing import Drawing
from coterie.report.charts.style import SCALE, WIDE, Absent, add_bars, colour, faded, figure, plain
from coterie.report.run_data import RunData
from coterie.runs.reading import Floats, Ints
from coterie.words.grouping import tree

STRIP = 0.066  # of a strip beside the matrix
TREE = 0.12  # of the dendrogram
NAMED = 60  # up to so many rows, each has its name beside it
BARE = {"showticklabels": False, "ticks": "", "showgrid": False, "zeroline": False}  # of an axis
CELLS = 200  # on a side: larger matrices are averaged in blocks
MARKS = ("circle", "square", "diamond", "cross", "triangle-up", "star", "x", "hexagon")
FEW = 500  # clients of whom all axes are computed, to keep two
LINES = 100  # clients with a line of their own


def distances(run: RunData) -> Drawing:
    """The distance matrix in the order of its dendrogram, with strips of clusters and groups."""
    D, who = matrix(run)
    found = dendrogram(D)
    parts = np.array_split(found.leaves, min(CELLS, len(who)))
    names = [
        plain(run.clients[who[p[0]]], 22) + (f" … ({len(p)})" if len(p) > 1 else "") for p in parts
    ]
    strips: dict[str, tuple[Ints, Callable[[int], str]]] = {}  # a label of each client, its colour
    if run.clustered:
        strips["cluster"] = run.held[who], colour
    if run.group is not None:
        strips["planted"] = run.planted[who], planted_colour(run)
    whole = len(parts) == len(who)  # a row each: the branches of the tree end at the rows
    begin = TREE * whole
    ticks = list(range(len(names))) if len(names) <= NAMED else []
    drawn = figure(
        meta={"least": WIDE["least"] + 14 * max(map(len, names))},
        height=min(640, 200 + 50 * len(parts)),
        margin={"l": 24, "r": 24, "t": 30, "b": 60},
        xaxis={
            "domain": [begin + STRIP * len(strips) + 0.01, 1],
            "title": "clients, in the same order",
            **BARE,
        },
        yaxis={
            "autorange": "reversed",
            "side": "right",
            **BARE,
            "showticklabels": True,
            "tickvals": ticks,
            "ticktext": names[: len(ticks)],
        },
    )
    add_matrix(drawn, D, parts, names)
    for place, (word, (labels, hue)) in enumerate(strips.items()):
        commonest = [int(np.bincount(labels[p] + 1).argmax()) - 1 for p in parts]
        add_strip(drawn, place, begin, word, commonest, hue, names)
    if whole:
        add_tree(drawn, found, len(strips) + 2)
    return drawn.update_layout(bargap=0)


class Tree(NamedTuple):
    """A dendrogram: who lies where, and its branches as corners (place, distance)."""

    leaves: Ints  # (m,) the clients from top to bottom: who is near lies side by side
    places: list[list[float]]  # four corners a branch
    heights: list[list[float]]


def dendrogram(D: Floats) -> Tree:
    """The tree of the clients by mean distance; where two branches meet, near ends face each other.

    >>> dendrogram(np.array([[0.0, 9, 2], [9, 0, 5], [2, 5, 0]])).leaves.tolist()
    [1, 2, 0]
    """
    Z = tree(torch.from_numpy(D)).numpy()
    below = [[i] for i in range(len(D))]  # the clients of every node
    for a, b in Z[:, :2].astype(int).tolist():
        left, right = below[a], below[b]
        turns = [(one, two) for one in (left, left[::-1]) for two in (right, right[::-1])]
        left, right = min(turns, key=lambda turn: float(D[turn[0][-1], turn[1][0]]))
        below.append(left + right)
    leaves = np.array(below[-1], np.int64)
    if len(D) > CELLS:  # its branches are not drawn
        return Tree(leaves, [], [])
    at = np.argsort(leaves).astype(float).tolist()  # where each node stands, and how high
    high = [0.0] * len(D)
    places, heights = [], []
    for a, b, height in Z[:, :3].tolist():
        a, b = sorted((int(a), int(b)), key=at.__getitem__)
        places.append([at[a], at[a], at[b], at[b]])
        heights.append([high[a], height, height, high[b]])
        at.append((at[a] + at[b]) / 2)
        high.append(height)
    return Tree(leaves, places, heights)


def add_tree(drawn: Drawing, tree: Tree, axis: int) -> None:
    """The dendrogram at the left: a fork lies where the mean distance of two branches is."""
    drawn.add_scatter(
        x=[x for branch in tree.heights for x in (*branch, None)],
        y=[y for branch in tree.places for y in (*branch, None)],
        xaxis=f"x{axis}",
        mode="lines",
        line={"width": 1.2},
        hovertemplate="merged at %{x:.4g}<extra></extra>",
        showlegend=False,
    )
    top = 1.03 * max(map(max, tree.heights))
    drawn.update_layout(
        **{
            f"xaxis{axis}": {
                "domain": [0, TREE - 0.01],
                "range": [top, 0],
                "fixedrange": True,
                **named_below("tree", top / 2),
            }
        }
    )


def add_matrix(drawn: Drawing, D: Floats, parts: list[Ints], names: list[str]) -> None:
    """The distances, a cell for each pair of clients or of blocks of clients."""
    Z = blocks(D, parts)
    if len(parts) == len(D):
        np.fill_diagonal(Z, np.nan)  # a client to itself: nothing to see
    places = list(range(len(parts)))
    few = len(parts) <= NAMED
    room = 12 + 7 * few * max(map(len, names))  # names stand between the matrix and its scale
    drawn.add_heatmap(
        z=Z.tolist(),
        x=places,
        y=places,
        customdata=names,
        text=[[f"{a} – {b}" for b in names] for a in names] if few else None,
        colorscale=SCALE,
        colorbar={"title": {"text": "distance"}, "thickness": 12, "xpad": room},
        hovertemplate=("%{text}: " if few else "") + "%{z:.4g}<extra></extra>",
    )


def add_strip(
    drawn: Drawing,
    place: int,
    begin: float,
    word: str,
    shown: list[int],
    hue: Callable[[int], str],
    names: list[str],
) -> None:
    """A column beside the matrix: the label of each of its rows, as a colour."""
    add_bars(
        drawn,
        [1] * len(names),
        list(range(len(names))),
        [hue(label) for label in shown],
        orientation="h",
        width=1,
        xaxis=f"x{place + 2}",
        text=names,
        textposition="none",
        customdata=shown,
        hovertemplate=f"%{{text}}: {word} %{{customdata}}<extra></extra>",
        showlegend=False,
    )
    begin += STRIP * place
    axis = {
        "domain": [begin, begin + STRIP - 0.008],
        "range": [0, 1],
        "fixedrange": True,
        **named_below(word, 0.5),
    }
    drawn.update_layout(**{f"xaxis{place + 2}": axis})


def named_below(word: str, at: float) -> dict[str, Any]:
    """The axis of a narrow part: its name upright below it, so that neighbours have room."""
    name = {"tickvals": [at], "ticktext": [word], "tickangle": -90, "showticklabels": True}
    return {**BARE, **name}


def clients(run: RunData) -> Drawing:
    """A map of the clients: near are those whose distance is small."""
    D, who = matrix(run)
    if len(who) < 3:
        raise Absent("a map needs three clients or more")
    points, kept = spread_out(D)
    drawn = figure(
        height=460,
        xaxis={
            "title": f"first axis<br>the two keep {kept:.0%} of the variance",
            "zeroline": False,
        },
        yaxis={"title": "second axis", "zeroline": False, "scaleanchor": "x"},
    )
    held = run.held[who]
    truth = None if run.group is None else run.planted[who]
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
    return drawn


def trajectories(run: RunData) -> Drawing:
    """A line for each client through its classes, in the colour of its cluster."""
    T = run.memory.get("trajectories")
    if T is None:
        raise Absent("only CFLGT takes gradient trajectories, when it clusters")
    who = np.flatnonzero(~np.isnan(T).any((1, 2)))
    shown = who[np.linspace(0, len(who) - 1, min(LINES, len(who))).round().astype(int)]
    classes = run.insight.classes if run.insight else [str(c) for c in range(T.shape[2])]
    drawn = figure(height=480, xaxis={"title": "pull"}, yaxis={"title": "push"})
    for c in np.unique(run.held[who]).tolist():
        x: list[float | None] = []
        y: list[float | None] = []
        text: list[str] = []
        for i in shown[run.held[shown] == c].tolist():
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
        mean = T[who[run.held[who] == c]].mean(0)
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
    n, S = len(D), D**2
    B = -(S - S.mean(0) - S.mean(1)[:, None] + S.mean()) / 2
    if n <= FEW:
        values, V = (part[..., n - 2 :] for part in np.linalg.eigh(B))  # in increasing order
    else:
        from scipy.linalg import eigh  # here: scipy takes a while to import

        values, V = eigh(B, subset_by_index=(n - 2, n - 1))
    top, V = np.maximum(values[::-1], 0), V[:, ::-1]
    V = V * np.sign(V[np.abs(V).argmax(0), [0, 1]])  # eigenvectors have no sign of their own
    total = float(np.trace(B))
    return V * np.sqrt(top), min(1.0, float(top.sum()) / total) if total > 0 else 0.0
