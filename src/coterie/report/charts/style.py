"""What all charts share: one colour for one cluster everywhere, escaped text, a quiet layout.

Everything that is not a cluster's colour comes from the two themes, which are Plotly templates.
"""

from __future__ import annotations

import colorsys
import html
from collections.abc import Sequence
from typing import Any

from coterie.report.charts.drawing import Drawing

# Okabe and Ito's palette, darkened or lightened until every colour reads on white and on black.
PALETTE = (
    "#0077bb",  # blue
    "#ee7733",  # orange
    "#009988",  # teal
    "#cc3399",  # magenta
    "#b8960c",  # mustard
    "#33aadd",  # sky
    "#cc4444",  # red
    "#7a6fd0",  # violet
    "#6a9a3a",  # olive
    "#8c7062",  # brown
)
QUIET = "#8a93a3"  # what belongs to no cluster
SCALE = "Viridis"  # in order for every kind of colour vision, and in print
ACCURACY = {"title": "accuracy", "tickformat": ".0%"}  # an axis
FROM_ZERO = {**ACCURACY, "rangemode": "tozero"}
WIDE = {"least": 640}  # pixels, of a chart with parts side by side: a phone moves it sideways
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif"


UNGROUPED = {  # why a chart of clusters cannot be drawn, by whose models there are
    "personal": "every client has a model of its own; nobody is grouped",
    "shared": "all clients share one model; nobody is grouped",
}


class Absent(Exception):  # noqa: N818  it is not an error: a run need not have everything
    """Why a chart cannot be drawn for a run."""


class Flat(Absent):
    """What a chart would show that is the same in every round: a sentence says as much."""


def colour(cluster: int) -> str:
    """The colour of a cluster, the same in every chart; as many as one asks for.

    >>> colour(0), colour(-1) == QUIET, len({colour(i) for i in range(60)})
    ('#0077bb', True, 60)
    """
    if cluster < 0:
        return QUIET
    if cluster < len(PALETTE):
        return PALETTE[cluster]
    hue = (cluster * 0.618034) % 1  # the golden ratio never comes near the same hue soon again
    light = (0.42, 0.55, 0.66)[cluster % 3]
    r, g, b = (round(255 * c) for c in colorsys.hls_to_rgb(hue, light, 0.55))
    return f"#{r:02x}{g:02x}{b:02x}"


def faded(cluster: int, share: float = 0.35) -> str:
    """The colour of a cluster, but transparent: this share of it is seen."""
    r, g, b = (int(colour(cluster)[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({r},{g},{b},{share})"


def plain(text: object, limit: int = 0) -> str:
    """Text that a chart shows as it is: its labels understand some HTML.

    >>> plain("<b>x"), plain("abcdef", 4)
    ('&lt;b&gt;x', 'abc…')
    """
    words = str(text)
    if limit and len(words) > limit:
        words = words[: limit - 1] + "…"
    return html.escape(words, quote=False)


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
            # Its numbers stand a little below, or the first lies on the lowest of the other axis.
            "xaxis": {**axis, "ticks": "outside", "ticklen": 6, "tickcolor": clear},
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


def by_round(rounds: Sequence[int] | Any) -> dict[str, Any]:
    """The axis of rounds: whole numbers, however few."""
    return {"title": "round", **({"dtick": 1} if len(rounds) <= 12 else {})}


def add_line(drawn: Drawing, x: Any, y: Any, name: str, *, hover: str, **line: Any) -> None:
    """A line of numbers by round; a mark where there is one round alone."""
    drawn.add_scatter(
        x=x.tolist(),
        y=y.tolist(),
        name=name,
        mode="lines" if len(x) > 1 else "markers",
        line=line,
        hovertemplate=hover,
    )


def add_bars(drawn: Drawing, x: list[Any], y: list[Any], color: Any, **more: Any) -> None:
    """Bars in a colour, or each in its own, without a border."""
    drawn.add_bar(x=x, y=y, marker={"color": color, "line": {"width": 0}}, **more)


def figure(**layout: Any) -> Drawing:
    """An empty figure in our layout."""
    above = {"orientation": "h", "traceorder": "normal", "y": 1.02, "yanchor": "bottom", "x": 0}
    base = {
        "height": 380,
        "margin": {"l": 64, "r": 24, "t": 24, "b": 52},
        "hoverlabel": {"namelength": -1},
        "legend": above,
    }
    return Drawing({**base, **layout}, LIGHT)
