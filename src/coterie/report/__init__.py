"""One self-contained page for a run or a comparison, and its charts as Plotly figures.

May touch: core, words, methods, runs, audit.
"""

from __future__ import annotations

from coterie.report.compared import write_comparison
from coterie.report.figures import card, draw
from coterie.report.page import write_result, write_run
from coterie.report.run_data import RunData, read

__all__ = ["RunData", "card", "draw", "read", "write_comparison", "write_result", "write_run"]
