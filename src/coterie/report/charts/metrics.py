"""Metrics beside accuracy and loss: by round, and class by class."""

from __future__ import annotations

import re

from coterie.report.charts import style
from coterie.report.charts.drawing import Drawing
from coterie.report.charts.style import ACCURACY, Absent, add_line, colour, plain
from coterie.report.run_data import RunData
from coterie.runs.comparison_metrics import of_run, said


def metrics(run: RunData) -> Drawing:
    """The mean over clients of each further metric, by round."""
    names = of_run({metric: None for stage, metric in run.whole if stage == run.stage})
    names = [name for name in names if len(run.series(f"{name}_mean").rounds)]
    if not names:
        raise Absent("evaluate.metrics asks for nothing beside accuracy and loss")
    drawn = style.figure(hovermode="x unified", xaxis=style.by_round(run.tested))
    for i, name in enumerate(names):
        look = {"color": colour(i), "width": 2.4}
        add_line(drawn, *run.series(f"{name}_mean"), plain(said(name)), hover="%{y:.3f}", **look)
    return drawn.update_yaxes(title="mean over clients")


def classes(run: RunData) -> Drawing:
    """The accuracy of each class at the end, over the test samples of all clients."""
    found = {
        int(of[1]): float(series.values[-1])
        for (stage, metric), series in run.whole.items()
        if stage == run.stage and (of := re.fullmatch(r"class_(\d+)_accuracy", metric))
    }
    if not found:
        raise Absent("per_class_accuracy is not among evaluate.metrics")
    known = run.insight.classes if run.insight else ()
    names = [plain(known[k] if k < len(known) else f"{k}", 24) for k in found]
    drawn = style.figure(
        height=120 + 24 * len(found),
        xaxis={**ACCURACY, "range": [0, 1]},
        yaxis={"autorange": "reversed", "type": "category", "title": "class", "showgrid": False},
        showlegend=False,
    )
    return drawn.add_bar(
        x=list(found.values()),
        y=names,
        orientation="h",
        name="accuracy",
        marker={"color": colour(0), "line": {"width": 0}},
        hovertemplate="class %{y}: %{x:.1%}<extra></extra>",
    )
