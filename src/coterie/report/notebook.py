"""A result in a notebook: a card of its numbers, and its charts by name."""

from __future__ import annotations

import html
from typing import Any

from coterie.core.errors import ConfigError
from coterie.core.suggest import similar
from coterie.report import verdict
from coterie.report.charts import CHARTS, Absent, chart
from coterie.report.run_data import Reportable

NEED_DATA = ("labels", "cross", "trajectories", "gains", "fairness")  # or runs beside this one


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
        return chart(name)(run)
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
