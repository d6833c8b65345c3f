"""What a run cost, in bytes and in seconds, and whether it was well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from coterie.report.charts import style
from coterie.report.charts.accuracy import hues
from coterie.report.charts.drawing import Drawing
from coterie.report.charts.style import Absent, add_bars, by_round, figure, plain
from coterie.report.run_data import RunData

SHADES = ("#5b7fa6", "#9a6fb0", "#c98a4b", "#5aa08a", "#b0616f", "#8a93a3")
TESTS, SERVER = "tests", "server: merge, cluster, record"
BARS = 80  # clients with a bar of their own
ROWS = 40  # clients with a row of their own, those with most rejected replies first
TASKS = {  # what clients are asked, in words: a run's events have the names of the tasks
    "Train": "training",
    "Solver": "training",  # as folders of older versions have it
    "Score": "test",
    "Measured": "test",
    "Validated": "test",
    "VerifiedScore": "test",
    "TrainHalves": "training on each half of the data",
    "Gains": "what other models would save",
    "Histogram": "label counts",
    "Trajectory": "gradient trajectory",
    "Basis": "data subspace",
    "Sparsity": "silent channels",
    "Losses": "loss of each model",
    "Importance": "share of each model",
    "Choose": "choice of a model, training",
    "Pulled": "training towards an anchor",
    "TrainBoth": "training, also of the own model",
    "HessianFree": "meta-training",
    "TrainAndGradients": "training, gradients of each class",
    "PrivateFirst": "training, private layers first",
    "Controlled": "training with control variates",
    "TrainMixed": "training of both models",
    "Envelope": "training near the common model",
    "Heaviest": "test of the model that weighs most",
    "TrainMixture": "training of all models, samples weighted",
    "ScoreMixture": "test of the mixture",
    "FindMixture": "weights of a mixture",
    "TrainAligned": "training of the head, then of the body with features aligned",
    "TrainAggregated": "mixing the common model in, training",
}


def traffic(run: RunData) -> Drawing:
    """Accuracy against all bytes so far, and the bytes of each round."""
    down, up = run.down.sum(1), run.up.sum(1)
    mean = run.series("accuracy_mean")
    if not (down.any() or up.any()):
        raise Absent("nothing was sent")
    drawn = figure(
        meta=style.WIDE,
        xaxis={"title": "bytes so far, both ways", "domain": [0, 0.46], "ticksuffix": "B"},
        yaxis=style.FROM_ZERO,
        xaxis2={"title": "round", "domain": [0.58, 1], "anchor": "y2"},
        yaxis2={"title": "bytes in the round", "anchor": "x2", "ticksuffix": "B"},
        barmode="stack",
        bargap=0.1,
    )
    spent = np.cumsum(down + up)[np.searchsorted(run.rounds, mean.rounds)]
    drawn.add_scatter(
        x=spent.tolist(),
        y=mean.values.tolist(),
        customdata=mean.rounds.tolist(),
        mode="lines+markers",
        marker={"size": 5},
        line={"width": 2.4},
        name="mean accuracy",
        hovertemplate="round %{customdata}: %{y:.1%} after %{x:.3s}B<extra></extra>",
    )
    x = run.rounds.tolist()
    beside = {"xaxis": "x2", "yaxis": "y2", "hovertemplate": "round %{x}: %{y:.3s}B"}
    add_bars(drawn, x, down.tolist(), "#b3bac6", name="down, to clients", **beside)
    add_bars(drawn, x, up.tolist(), "#6b7688", name="up, from clients", **beside)
    return drawn


def uploads(run: RunData) -> Drawing:
    """Bytes that left each client over the whole run; their distribution if there are many."""
    total = run.up.sum(0)
    if not total.any():
        raise Absent("nothing left any client")
    if run.n > BARS:
        drawn = figure(
            xaxis={"title": "bytes that left a client", "ticksuffix": "B"},
            yaxis={"title": "clients"},
            bargap=0.05,
        )
        counts, edges = np.histogram(total, bins=40)
        hover = "about %{x:.3s}B: %{y} clients<extra></extra>"
        middles = ((edges[:-1] + edges[1:]) / 2).tolist()
        add_bars(drawn, middles, counts.tolist(), style.QUIET, hovertemplate=hover)
        return drawn
    order = np.lexsort((np.arange(run.n), run.held if run.clustered else np.zeros(run.n)))
    drawn = figure(
        xaxis={
            "title": "client" + ", by cluster" * run.clustered,
            "tickvals": list(range(run.n)),
            "ticktext": [plain(run.clients[i], 16) for i in order],
        },
        yaxis={"title": "bytes that left it", "ticksuffix": "B"},
    )
    add_bars(
        drawn,
        list(range(run.n)),
        total[order].tolist(),
        hues(run, order),
        text=[plain(run.clients[i]) for i in order],
        textposition="none",
        hovertemplate="client %{text}: %{y:.3s}B<extra></extra>",
    )
    return drawn


def time(run: RunData) -> Drawing:
    """Seconds of each round, stacked by what was done."""
    rounds = {t: parts(e) for t, e in run.round_events.items() if "seconds" in e}
    if not rounds:
        raise Absent("the run has no events that tell its times")
    phases = list(dict.fromkeys(p for spent in rounds.values() for p in spent))
    phases.sort(key=lambda p: (p in (TESTS, SERVER), p == SERVER))
    drawn = figure(
        barmode="stack",
        bargap=0.1,
        hovermode="x unified",
        xaxis=by_round(rounds),
        yaxis={"title": "seconds"},
    )
    for i, phase in enumerate(phases):
        seconds = [spent.get(phase, 0.0) for spent in rounds.values()]
        shade = SHADES[i % len(SHADES)]
        add_bars(drawn, list(rounds), seconds, shade, name=phase, hovertemplate="%{y:.3f} s")
    return drawn


def parts(event: Mapping[str, Any]) -> dict[str, float]:
    """One round's seconds by task, tests, and the rest."""
    asked = event.get("asked", {})
    found = {f"clients: {task_words(task)}": cost["seconds"] for task, cost in asked.items()}
    found[TESTS] = event.get("evaluate_seconds", 0.0)
    found[SERVER] = max(0.0, event["seconds"] - sum(found.values()))
    return found


def task_words(task: str) -> str:
    """A task for people; one that is not ours keeps the name of its class.

    >>> task_words("Solver"), task_words("MyOwn")
    ('training', 'MyOwn')
    """
    return TASKS.get(task, task)


def norms(run: RunData) -> Drawing:
    """The norms of updates, where the method reports them."""
    names = {"mean_norm": "norm of the mean update", "max_norm": "largest norm of an update"}
    found = {name: run.series(metric, "clusters") for metric, name in names.items()}
    if not any(len(s.rounds) for s in found.values()):
        raise Absent("this method does not report the sizes of updates")
    drawn = figure(
        hovermode="x unified",
        xaxis=by_round(run.rounds),
        yaxis={"title": "norm", "rangemode": "tozero"},
    )
    for dash, (name, series) in zip(("solid", "dash"), found.items(), strict=True):
        x, y = series.rounds.tolist(), series.values.tolist()
        drawn.add_scatter(x=x, y=y, name=name, line={"dash": dash, "width": 2.4})
    return drawn


def rejected(run: RunData) -> Drawing:
    """When whose reply was rejected."""
    events = run.happened("rejected")
    if not events:
        raise Absent("no reply was rejected")
    counts = Counter(e["client"] for e in events)
    rows = {name: i for i, (name, _) in enumerate(counts.most_common(ROWS))}
    some = [e for e in events if e["client"] in rows]
    left = len(counts) - len(rows)
    drawn = figure(
        height=180 + 20 * len(rows),
        xaxis={"title": "round", "rangemode": "tozero"},
        yaxis={
            "title": "client" + f" ({left} more not shown)" * (left > 0),
            "tickvals": list(rows.values()),
            "ticktext": [plain(name, 22) for name in rows],
            "range": [len(rows) - 0.4, -0.6],
        },
    )
    drawn.add_scatter(
        x=[e["round"] for e in some],
        y=[rows[e["client"]] for e in some],
        mode="markers",
        marker={"symbol": "x", "size": 9, "color": style.colour(6)},
        text=[f"client {plain(e['client'])}: {plain(e['why'])}" for e in some],
        hovertemplate="round %{x}, %{text}<extra></extra>",
        showlegend=False,
    )
    return drawn
