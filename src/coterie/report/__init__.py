"""One self-contained page for a run or a comparison, and its charts as Plotly figures."""

from __future__ import annotations

from coterie.report.reading import RunData, read

__all__ = ["RunData", "read"]
