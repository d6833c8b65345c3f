"""The charts of a run: each a small function from `RunData` to a `Drawing`.

A chart that a run has nothing for raises `Absent` with the reason.
"""

from __future__ import annotations

from collections.abc import Callable

from coterie.report.charts import accuracy, clusters, cost, distances, insight, metrics
from coterie.report.charts.drawing import Drawing
from coterie.report.run_data import RunData

CHARTS: dict[str, Callable[[RunData], Drawing]] = {
    chart.__name__: chart
    for chart in (
        *(accuracy.accuracy, accuracy.loss, metrics.metrics, metrics.classes, accuracy.gains),
        *(clusters.river, clusters.sizes),
        *(distances.distances, distances.clients, distances.trajectories),
        *(clusters.agreement, insight.labels, insight.cross),
        *(cost.traffic, cost.time, accuracy.fairness, accuracy.worst),
        *(cost.norms, cost.rejected, cost.uploads),
    )
}
