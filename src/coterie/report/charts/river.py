"""Who was grouped with whom, as time goes by."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from coterie.report.charts.style import Absent, by_round, colour, faded, figure
from coterie.report.run_data import RunData
from coterie.runs.reading import Ints

COLUMNS = 12  # of the river: more rounds are thinned to those in which somebody moved
SHARE = 0.82  # of the height is filled; the rest lies between the nodes


def river(run: RunData) -> Any:
    """A Sankey diagram: a column for each round that matters, and last the planted groups."""
    grouped(run)
    import plotly.graph_objects as go

    chosen = moments(run)
    labels = [run.assign[r] for r in chosen]
    heads = [f"round {run.rounds[r]}" for r in chosen]
    if run.group is not None:
        labels.append(run.group[-1])
        heads.append("planted")
    hues = [colour] * len(chosen) + [lambda g: planted_colour(run, g)] * (len(labels) > len(chosen))
    nodes: list[dict[str, Any]] = []
    place: dict[tuple[int, int], int] = {}
    for column, held in enumerate(labels):
        top = 0.0
        present, counts = np.unique(held, return_counts=True)
        if column == len(chosen):  # each group beside the cluster it goes with
            order = np.argsort([matched(run)[g] for g in present.tolist()])
            present, counts = present[order], counts[order]
        gap = (1 - SHARE) / max(1, len(present) - 1) if len(present) > 1 else 0
        for c, count in zip(present.tolist(), counts.tolist(), strict=True):
            place[column, c] = len(nodes)
            height = SHARE * count / run.n if len(present) > 1 else 1.0
            word = "group" if column == len(chosen) else "cluster"
            nodes.append(
                {
                    "name": f"{word} {c}: {count} clients" if c >= 0 else f"no model yet: {count}",
                    "label": f"{c}" if c >= 0 else "none",
                    "color": hues[column](c),
                    "x": min(0.999, max(0.001, column / max(1, len(labels) - 1))),
                    "y": min(0.999, max(0.001, top + height / 2)),
                }
            )
            top += height + gap
    source, target, value, tint = [], [], [], []
    for column, (a, b) in enumerate(pairwise(labels)):
        flows, counts = np.unique(np.stack([a, b]), axis=1, return_counts=True)
        for (c, d), count in zip(flows.T.tolist(), counts.tolist(), strict=True):
            source.append(place[column, c])
            target.append(place[column + 1, d])
            value.append(count)
            tint.append(faded(c))
    drawn = figure(height=420, margin={"l": 20, "r": 20, "t": 36, "b": 20})
    drawn.add_trace(
        go.Sankey(
            arrangement="fixed",
            node={
                "label": [n["label"] for n in nodes],
                "customdata": [n["name"] for n in nodes],
                "color": [n["color"] for n in nodes],
                "x": [n["x"] for n in nodes],
                "y": [n["y"] for n in nodes],
                "pad": 8,
                "thickness": 16,
                "line": {"width": 0},
                "hovertemplate": "%{customdata}<extra></extra>",
            },
            link={
                "source": source,
                "target": target,
                "value": value,
                "color": tint,
                "hovertemplate": "%{value} clients: %{source.customdata} → "
                "%{target.customdata}<extra></extra>",
            },
        )
    )
    for column, head in enumerate(heads):
        drawn.add_annotation(
            x=column / max(1, len(labels) - 1),
            y=1.02,
            xref="paper",
            yref="paper",
            xanchor=("left" if column == 0 else "right" if column == len(labels) - 1 else "center"),
            yanchor="bottom",
            text=head,
            showarrow=False,
        )
    return drawn


def sizes(run: RunData) -> Any:
    """How many clients each cluster has, round by round."""
    grouped(run)
    drawn = figure(
        barmode="stack",
        bargap=0,
        xaxis=by_round(run.rounds),
        yaxis={"title": "clients"},
        hovermode="x unified",
    )
    for c in np.unique(run.assign).tolist():
        drawn.add_bar(
            x=run.rounds.tolist(),
            y=(run.assign == c).sum(1).tolist(),
            name=f"cluster {c}" if c >= 0 else "no model yet",
            marker={"color": colour(c), "line": {"width": 0}},
        )
    return drawn


def grouped(run: RunData) -> None:
    """Refuse a run that never had clusters."""
    if not len(run.assign):
        raise Absent("no round has been recorded yet")
    if run.personal:
        raise Absent("every client has a model of its own; nobody was grouped")
    if len(np.unique(run.assign)) < 2:
        raise Absent("all clients share one model in every round; nobody was grouped")


def moments(run: RunData) -> list[int]:
    """The rows of `assign` to show: first, last, and around the changes, thinned evenly."""
    moved = 1 + np.flatnonzero((run.assign[1:] != run.assign[:-1]).any(1))
    rows = sorted({0, len(run.rounds) - 1, *moved.tolist(), *(moved - 1).tolist()})
    if len(rows) > COLUMNS:
        rows = [rows[i] for i in np.linspace(0, len(rows) - 1, COLUMNS).round().astype(int)]
    return rows


def planted_colour(run: RunData, group: int) -> str:
    """A planted group has the colour of the cluster that is most like it, no two the same."""
    return colour(matched(run).get(group, group))


def matched(run: RunData) -> dict[int, int]:
    """The cluster that goes with each planted group: the best one-to-one matching by clients."""
    from scipy.optimize import linear_sum_assignment

    assert run.group is not None
    groups, clusters = np.unique(run.group[-1]).tolist(), run.clusters.tolist()
    both = overlap(run.group[-1], run.assign[-1], groups, clusters)
    rows, columns = linear_sum_assignment(-both)
    found = {groups[r]: clusters[c] for r, c in zip(rows, columns, strict=True)}
    free = (c for c in range(10_000) if c not in clusters)
    return {g: found[g] if g in found else next(free) for g in groups}


def overlap(a: Ints, b: Ints, rows: Sequence[int], columns: Sequence[int]) -> Ints:
    """(rows, columns) how many clients have each pair of labels."""
    return np.array([[int(((a == r) & (b == c)).sum()) for c in columns] for r in rows])
