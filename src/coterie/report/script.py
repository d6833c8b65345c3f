"""The part of plotly.js that our charts need, a quarter of the whole (made in tools/plotly)."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from coterie.core import storage

TRACES = ("scatter", "bar", "box", "heatmap", "sankey")  # a chart of another kind stays empty


def plotly_js() -> str:
    """The script that draws, to be inlined in a page or served beside one."""
    return (files("coterie.report") / "assets" / "plotly.min.js").read_text()


def write_figure(figure: Any, file: str | Path) -> Path:
    """One figure as a page that needs no network."""
    path = Path(file)
    storage.make_folder(path.parent)
    page: str = figure.to_html(include_plotlyjs=False)
    body = page.replace("<head>", f"<head><script>{plotly_js()}</script>", 1)
    storage.replace_file(path, body.encode())
    return path
