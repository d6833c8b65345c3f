"""Who was grouped with whom as time goes by, and how well."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from coterie.core.units import count
from coterie.report.charts import style
from coterie.report.charts.drawing import Drawing
from coterie.report.charts.style import Absent, Flat, add_line, by_round, colour, figure
from coterie.report.run_data import RunData
from coterie.runs import metrics
from coterie.runs.reading import Floats, Ints

COLUMNS = 12  # of the river: more rounds are thinned to those in which somebody moved
SHARE = 0.82  # of the height is filled; the rest lies between the nodes
AGREEMENT = {
    "ari": ("ARI with the planted groups", "solid"),
    "nmi": ("NMI with the planted groups", "dash"),
    "silhouette": ("silhouette", "dot"),
}


class Column(NamedTuple):
    """A column of the river: who is in which cluster in a round, or in which planted group."""

    head: str
    word: str  # what a node of it is: cluster or group
    labels: Ints  # (n,)
    order: Sequence[int]  # its nodes from top to bottom
    hue: Callable[[int], str]


def river(run: RunData) -> Drawing:
    """A Sankey diagram: a column for each round that matters, and last the planted groups."""
    grouped(run)
    columns = columns_of(run)
    nodes, place = nodes_of(columns)
    drawn = figure(height=420, margin={"l": 20, "r": 20, "t": 44, "b": 20})
    drawn.add_sankey(arrangement="fixed", node=nodes, link=links_of(columns, place))
    last = len(columns) - 1
    for i, column in enumerate(columns):
        drawn.add_annotation(
            x=i / max(1, last),
            y=1.04,  # the nodes of a column may stand out by a few pixels
            xref="paper",
            yref="paper",
            xanchor=("left" if i == 0 else "right" if i == last else "center"),
            yanchor="bottom",
            text=column.head,
            showarrow=False,
        )
    return drawn


def columns_of(run: RunData) -> list[Column]:
    """The rounds that matter, and last the planted groups, each beside the cluster it goes with."""
    columns = [
        Column(f"round {run.rounds[r]}", "cluster", held, np.unique(held).tolist(), colour)
        for r, held in ((r, run.assign[r]) for r in moments(run))
    ]
    if run.group is not None:
        beside = matched(run)
        order = sorted(np.unique(run.planted).tolist(), key=lambda g: beside[g])
        columns.append(Column("planted", "group", run.planted, order, planted_colour(run)))
    return columns


def nodes_of(columns: Sequence[Column]) -> tuple[dict[str, Any], dict[tuple[int, int], int]]:
    """Every node at its place, and which of them is that of a column and a label."""
    nodes: dict[str, list[Any]] = {"label": [], "customdata": [], "color": [], "x": [], "y": []}
    place: dict[tuple[int, int], int] = {}
    for i, column in enumerate(columns):
        several = len(column.order) > 1
        gap = (1 - SHARE) / (len(column.order) - 1) if several else 0.0
        top = 0.0
        for c in column.order:
            members = int((column.labels == c).sum())
            height = SHARE * members / len(column.labels) if several else 1.0
            place[i, c] = len(place)
            many = count(members, "client")
            named = f"{column.word} {c}: {many}" if c >= 0 else f"no model yet: {members}"
            nodes["label"].append(f"{c}" if c >= 0 else "none")
            nodes["customdata"].append(named)
            nodes["color"].append(column.hue(c))
            nodes["x"].append(min(0.999, max(0.001, i / max(1, len(columns) - 1))))
            nodes["y"].append(min(0.999, max(0.001, top + height / 2)))
            top += height + gap
    hover = "%{customdata}<extra></extra>"
    look = {"pad": 8, "thickness": 16, "line": {"width": 0}, "hovertemplate": hover}
    return {**nodes, **look}, place


def links_of(columns: Sequence[Column], place: Mapping[tuple[int, int], int]) -> dict[str, Any]:
    """How many clients go from each node to each node of the next column."""
    links: dict[str, list[Any]] = {"source": [], "target": [], "value": [], "color": []}
    for i, (left, right) in enumerate(pairwise(columns)):
        both = np.stack([left.labels, right.labels])
        flows, counts = np.unique(both, axis=1, return_counts=True)
        for (c, d), moved in zip(flows.T.tolist(), counts.tolist(), strict=True):
            links["source"].append(place[i, c])
            links["target"].append(place[i + 1, d])
            links["value"].append(moved)
            links["color"].append(style.faded(c))
    hover = "%{value} clients: %{source.customdata} → %{target.customdata}<extra></extra>"
    return {**links, "hovertemplate": hover}


def sizes(run: RunData) -> Drawing:
    """How many clients each cluster has, round by round."""
    grouped(run)
    if (since := settled(run)) is not None:
        held = run.held[run.held >= 0]
        counts = sorted(np.unique(held, return_counts=True)[1].tolist(), reverse=True)
        several = ", ".join(map(str, counts[:12])) + ", ..." * (len(counts) > 12)
        alike = f"of {count(counts[0], 'client')} each"
        clients = (
            f"{count(len(counts), 'cluster')} "
            f"{alike if len({*counts}) == 1 else f'of {several} clients'}"
        )
        raise Flat(f"{clients}, as they were found {since} and not changed since")
    drawn = figure(
        barmode="stack",
        bargap=0,
        xaxis=by_round(run.rounds),
        yaxis={"title": "clients"},
        hovermode="x unified",
    )
    for c in np.unique(run.assign).tolist():
        name = f"cluster {c}" if c >= 0 else "no model yet"
        held = (run.assign == c).sum(1).tolist()
        style.add_bars(drawn, run.rounds.tolist(), held, colour(c), name=name)
    return drawn


def agreement(run: RunData) -> Drawing:
    """ARI, NMI and silhouette by round, with the share of clients that moved as bars."""
    if not run.clustered:
        raise Absent(style.UNGROUPED[run.kind])
    found = {m: run.series(m, "clusters") for m in AGREEMENT}
    if not any(len(s.rounds) for s in found.values()):
        raise Absent("no groups were planted and the method keeps no distances")
    last = {name: found[m].values for m, (name, _) in AGREEMENT.items() if len(found[m].values)}
    if (since := settled(run)) is not None and all(flat(v) for v in last.values()):
        told = ", ".join(f"{name} {v[-1]:.2f}" for name, v in last.items())
        raise Flat(f"{told}; the clusters were found {since} and not changed since")
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
            marker={"color": style.QUIET, "opacity": 0.5, "line": {"width": 0}},
            hovertemplate="%{y:.1%}",
        )
    for metric, (name, dash) in AGREEMENT.items():
        series = found[metric]
        if len(series.rounds):
            add_line(drawn, *series, name, hover="%{y:.3f}", dash=dash, width=2.4)
    low = min(float(s.values.min()) for s in found.values() if len(s.values))
    return drawn.update_yaxes(range=[min(-0.05, low - 0.05), 1.05])


def grouped(run: RunData) -> None:
    """Refuse a run that never had clusters."""
    if not len(run.assign):
        raise Absent("no round has been recorded yet")
    if not run.clustered:
        raise Absent(style.UNGROUPED[run.kind])
    if len(np.unique(run.assign)) < 2:
        raise Absent("all clients are in one cluster in every round")


def flat(values: Floats) -> bool:
    """Whether numbers by round stay as they are from the second one on."""
    return len(values) < 2 or float(np.ptp(values[1:])) < 1e-9


def settled(run: RunData) -> str | None:
    """When clients were grouped, if they were once and for all: in words; None otherwise."""
    moved = 1 + np.flatnonzero((run.assign[1:] != run.assign[:-1]).any(1))
    if len(moved) > 1 or len(run.rounds) < 3 or (len(moved) and moved[0] > 1):
        return None
    return f"in round {run.rounds[moved[0]]}" if len(moved) else "before the first round"


def moments(run: RunData) -> list[int]:
    """The rows of `assign` to show: first, last, and around the changes, thinned evenly."""
    moved = 1 + np.flatnonzero((run.assign[1:] != run.assign[:-1]).any(1))
    rows = sorted({0, len(run.rounds) - 1, *moved.tolist(), *(moved - 1).tolist()})
    if len(rows) > COLUMNS:
        rows = [rows[i] for i in np.linspace(0, len(rows) - 1, COLUMNS).round().astype(int)]
    return rows


def planted_colour(run: RunData) -> Callable[[int], str]:
    """A planted group has the colour of the cluster that is most like it, no two the same."""
    beside = matched(run)
    return lambda group: colour(beside[group])


def matched(run: RunData) -> dict[int, int]:
    """The cluster that goes with each planted group: the best one-to-one matching by clients."""
    assert run.group is not None
    groups, clusters = np.unique(run.planted).tolist(), run.clusters.tolist()
    planted, held = np.equal.outer(groups, run.planted), np.equal.outer(run.held, clusters)
    rows, columns = metrics.best_pairs(planted.astype(int) @ held.astype(int))
    found = {groups[r]: clusters[c] for r, c in zip(rows, columns, strict=True)}
    free = (c for c in range(10_000) if c not in clusters)
    return {g: found[g] if g in found else next(free) for g in groups}
