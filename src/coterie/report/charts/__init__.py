"""The charts of a run: each a small function from `RunData` to a Plotly figure.

A chart that a run has nothing for raises `Absent` with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from coterie.report.charts.style import Absent, colour

if TYPE_CHECKING:
    from coterie.report.run_data import RunData

# name -> module of this package; the function has the chart's name.
CHARTS = {
    "accuracy": "learning",
    "loss": "learning",
    "gains": "gains",
    "river": "river",
    "sizes": "river",
    "distances": "distances",
    "clients": "distances",
    "trajectories": "trajectories",
    "agreement": "agreement",
    "labels": "labels",
    "cross": "cross",
    "traffic": "traffic",
    "time": "timing",
    "fairness": "fairness",
    "worst": "fairness",
    "norms": "health",
    "rejected": "health",
    "uploads": "uploads",
}


def chart(name: str) -> Callable[[RunData], Any]:
    """The function that draws a chart."""
    module = import_module(f"coterie.report.charts.{CHARTS[name]}")
    found: Callable[[RunData], Any] = getattr(module, name)
    return found


__all__ = ["CHARTS", "Absent", "chart", "colour"]
