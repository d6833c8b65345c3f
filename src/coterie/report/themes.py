"""Light and dark as Plotly templates: everything that is not a cluster's colour comes from here."""

from __future__ import annotations

from typing import Any

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif"


def theme(ink: str, muted: str, grid: str, raised: str) -> dict[str, Any]:
    """A template: text and the main lines in `ink`, the rest quieter."""
    axis = {
        "gridcolor": grid,
        "zerolinecolor": grid,
        "zerolinewidth": 1,
        "linecolor": grid,
        "automargin": True,
        "tickfont": {"color": muted, "size": 12},
        "title": {"font": {"color": muted, "size": 13}, "standoff": 10},
    }
    bar = {
        "outlinewidth": 0,
        "tickfont": {"color": muted, "size": 11},
        "title": {"font": {"color": muted, "size": 12}},
    }
    clear = "rgba(0,0,0,0)"
    return {
        "layout": {
            "font": {"family": FONT, "size": 13, "color": ink},
            "paper_bgcolor": clear,
            "plot_bgcolor": clear,
            "colorway": [ink],
            "xaxis": axis,
            "yaxis": axis,
            "hoverlabel": {"bgcolor": raised, "bordercolor": grid, "font": {"color": ink}},
            "legend": {"bgcolor": clear, "font": {"color": ink, "size": 12}},
            "annotationdefaults": {"font": {"color": muted, "size": 12}},
        },
        "data": {
            "scatter": [{"line": {"color": ink}, "marker": {"color": ink}}],
            "heatmap": [{"colorbar": bar, "hoverongaps": False}],
            "sankey": [{"textfont": {"color": ink, "size": 12, "shadow": "none"}}],
        },
    }


LIGHT = theme(ink="#18202c", muted="#566173", grid="#e4e8ee", raised="#ffffff")
DARK = theme(ink="#e9edf4", muted="#9aa6b8", grid="#2b3442", raised="#1b222d")
