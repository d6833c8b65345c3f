"""A chart in Plotly's terms, as plain lists and dictionaries: what the page's script draws.

Plotly's own objects look at every key in hundreds of classes, which takes longer than a short
training. They are made for whoever wants one (`figure`), and the tests hold every chart to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self


class Drawing:
    """Traces and a layout, with the few verbs of a Plotly figure that charts use."""

    def __init__(self, layout: Mapping[str, Any], template: Mapping[str, Any]) -> None:
        self.data: list[dict[str, Any]] = []
        self.layout: dict[str, Any] = settled(layout)
        self.template = template  # the theme; a page has its own and takes none from here

    def figure(self) -> Any:
        """The same as an object of Plotly's, which refuses whatever Plotly does not know."""
        import plotly.graph_objects as go

        return go.Figure(self.data, {**self.layout, "template": self.template})

    def add(self, kind: str, trace: Mapping[str, Any]) -> Self:
        """A trace of some kind."""
        self.data.append({"type": kind, **settled(trace)})
        return self

    def add_scatter(self, **trace: Any) -> Self:
        """Lines, marks, or both."""
        return self.add("scatter", trace)

    def add_bar(self, **trace: Any) -> Self:
        """Bars."""
        return self.add("bar", trace)

    def add_box(self, **trace: Any) -> Self:
        """A box for the spread of numbers."""
        return self.add("box", trace)

    def add_heatmap(self, **trace: Any) -> Self:
        """A matrix of colours."""
        return self.add("heatmap", trace)

    def add_sankey(self, **trace: Any) -> Self:
        """Streams between nodes."""
        return self.add("sankey", trace)

    def add_annotation(self, **annotation: Any) -> Self:
        """A text at some place."""
        self.layout.setdefault("annotations", []).append(settled(annotation))
        return self

    def add_vline(self, x: float, **line: Any) -> Self:
        """A line from the bottom to the top."""
        return self.add_shape({"x0": x, "x1": x, "xref": "x"}, "y", line)

    def add_hline(self, y: float, **line: Any) -> Self:
        """A line from the left to the right."""
        return self.add_shape({"y0": y, "y1": y, "yref": "y"}, "x", line)

    def add_shape(self, at: Mapping[str, Any], along: str, line: Mapping[str, Any]) -> Self:
        """A line at some place, along the whole of the other axis."""
        span = {f"{along}0": 0, f"{along}1": 1, f"{along}ref": f"{along} domain"}
        shape = {"type": "line", **at, **span, "line": dict(line)}
        self.layout.setdefault("shapes", []).append(shape)
        return self

    def update_layout(self, **layout: Any) -> Self:
        """Put these into the layout, leaving what is beside them."""
        merge(self.layout, settled(layout))
        return self

    def update_xaxes(self, **axis: Any) -> Self:
        """Put these into every horizontal axis."""
        return self.update_axes("xaxis", axis)

    def update_yaxes(self, **axis: Any) -> Self:
        """Put these into every vertical axis."""
        return self.update_axes("yaxis", axis)

    def update_axes(self, kind: str, axis: Mapping[str, Any]) -> Self:
        """Put these into every axis of a kind; there is one at least."""
        for name in {kind, *(key for key in self.layout if key.startswith(kind))}:
            self.update_layout(**{name: axis})
        return self


def settled(given: Mapping[str, Any]) -> dict[str, Any]:
    """A copy as Plotly's script wants it: nothing that is None, and titles as tables.

    >>> settled({"range": None, "xaxis": {"title": "round"}, "x": [None]})
    {'xaxis': {'title': {'text': 'round'}}, 'x': [None]}
    """
    found = {}
    for key, value in given.items():
        if isinstance(value, Mapping):
            found[key] = settled(value)
        elif value is not None:
            found[key] = {"text": value} if key == "title" else value
    return found


def merge(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Put one tree into another; where both have a table, into that."""
    for key, value in more.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            merge(into[key], value)
        else:
            into[key] = value
