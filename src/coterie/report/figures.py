"""Charts without their page: a result's in a notebook, or as files for a paper.

Files are PDF, SVG or PNG, drawn by kaleido in a local Chrome or Chromium.
"""

from __future__ import annotations

import html
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from coterie.core import storage
from coterie.core.errors import ConfigError
from coterie.core.suggest import similar
from coterie.report import verdict
from coterie.report.blocks import BLOCKS
from coterie.report.charts import CHARTS, compared
from coterie.report.charts.drawing import Drawing
from coterie.report.charts.style import Absent
from coterie.report.page import InsightOf, look
from coterie.report.run_data import Reportable
from coterie.runs.comparison import Comparison

KINDS = ("pdf", "svg", "png")
WIDTH = 760  # pixels; a PDF of it fills a column at about half its size
NEED_DATA = ("labels", "cross", "trajectories", "gains", "fairness")  # or runs beside this one


def figures(folder: str | Path, insight: InsightOf | None = None) -> Iterator[tuple[str, Any]]:
    """The charts of a run or a comparison that can be drawn, by name, as Plotly figures."""
    path = Path(folder)
    makers: dict[str, Callable[[], Drawing]]
    if (path / "compare.toml").exists():
        found = Comparison.load(path)
        makers = {name: partial(make, found) for name, make in compared.CHARTS.items()}
    else:
        run = look(path, insight)
        makers = {name: partial(CHARTS[name], run) for b in BLOCKS for name, _ in b.charts}
    for name, make in makers.items():
        try:
            yield name, make().figure()
        except Absent:
            continue  # the page says why


def write_figures(
    folder: str | Path,
    out: Path,
    kinds: Sequence[str] = ("pdf",),
    *,
    insight: InsightOf | None = None,
) -> list[Path]:
    """Write every chart in every kind; returns the files. `insight` is that of `write_run`."""
    for kind in kinds:
        if kind not in KINDS:
            raise ConfigError(
                f"there is no figure as {kind}", code="C001", fix=f"one of {', '.join(KINDS)}"
            )
    kaleido = renderer()
    drawn = list(figures(folder, insight))
    storage.make_folder(out)
    jobs = [
        {
            "fig": figure,
            "path": out / f"{name}.{kind}",
            "opts": {
                "format": kind,
                "width": WIDTH,
                "height": figure.layout.height,
                "scale": 3 if kind == "png" else 1,
            },
        }
        for name, figure in drawn
        for kind in kinds
    ]
    try:
        # MathJax would be fetched from the network, and no chart needs it.
        kaleido.write_fig_from_object_sync(jobs, cancel_on_error=True, kopts={"mathjax": False})
    except Exception as cause:  # it has many ways to say that no browser was found
        raise ConfigError(
            f"no figure could be drawn: {cause or type(cause).__name__}",
            code="C019",
            why="kaleido draws in a Chrome or Chromium, which it did not find or could not start",
            fix="install chromium, or name one in the variable BROWSER_PATH",
        ) from cause
    return [Path(job["path"]) for job in jobs]


def renderer() -> Any:
    """Kaleido, if it is installed."""
    try:
        import kaleido
    except ImportError as cause:
        raise ConfigError(
            "figures as files need the package kaleido",
            code="C019",
            fix='pip install "coterie[figures]", and a Chrome or Chromium; '
            "or save single charts from report.html with their SVG button",
        ) from cause
    for name in ("kaleido", "choreographer", "logistro"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return kaleido


def draw(result: Reportable, name: str) -> Any:
    """A chart of a result by its name, as a Plotly figure."""
    if name not in CHARTS:
        raise ConfigError(
            f"there is no chart {name!r}",
            code="C019",
            fix=similar(name, CHARTS, "one") or f"one of {', '.join(CHARTS)}",
        )
    run = result.run_data(insight=name in NEED_DATA)
    try:
        return CHARTS[name](run).figure()
    except Absent as why:
        raise ConfigError(
            f"this run has no chart {name!r}", code="C019", why=str(why), fix="choose another"
        ) from why


def card(result: Reportable) -> str:
    """The verdict as a piece of HTML."""
    run = result.run_data(insight=False)
    cells = "".join(
        f"<td style='text-align:left;padding:4px 18px 4px 0'><small>{html.escape(t.label)}</small>"
        f"<br><b style='font-size:1.3em'>{html.escape(t.value)}</b>"
        f"<br><small>{html.escape(t.note)}</small></td>"
        for t in verdict.tiles(run)
    )
    told = "".join(f"<li>{html.escape(text)}</li>" for text in verdict.warnings(run))
    return f"<p><b>{html.escape(verdict.sentence(run))}</b></p><table><tr>{cells}</tr></table>" + (
        f"<ul>{told}</ul>" if told else ""
    )
