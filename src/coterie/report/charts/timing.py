"""Where the time went."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coterie.report.charts.style import Absent, by_round, figure
from coterie.report.run_data import RunData
from coterie.report.task_words import task_words

SHADES = ("#5b7fa6", "#9a6fb0", "#c98a4b", "#5aa08a", "#b0616f", "#8a93a3")
TESTS, SERVER = "tests", "server: merge, cluster, record"


def time(run: RunData) -> Any:
    """Seconds of each round, stacked by what was done."""
    rounds = spent_by_round(run)
    if not rounds:
        raise Absent("the run has no events that tell its times")
    phases = list(dict.fromkeys(p for spent in rounds.values() for p in spent))
    phases.sort(key=lambda p: (p in (TESTS, SERVER), p == SERVER))
    drawn = figure(
        barmode="stack",
        bargap=0.1,
        hovermode="x unified",
        xaxis=by_round(list(rounds)),
        yaxis={"title": "seconds"},
    )
    for i, phase in enumerate(phases):
        drawn.add_bar(
            x=list(rounds),
            y=[spent.get(phase, 0.0) for spent in rounds.values()],
            name=phase,
            marker={"color": SHADES[i % len(SHADES)], "line": {"width": 0}},
            hovertemplate="%{y:.3f} s",
        )
    return drawn


def spent_by_round(run: RunData) -> dict[int, Mapping[str, float]]:
    """Round -> what was done -> seconds."""
    return {t: parts(e) for t, e in run.round_events.items() if "seconds" in e}


def parts(event: Mapping[str, Any]) -> dict[str, float]:
    """One round's seconds by task, tests, and the rest."""
    asked = event.get("asked", {})
    found = {f"clients: {task_words(task)}": cost["seconds"] for task, cost in asked.items()}
    found[TESTS] = event.get("evaluate_seconds", 0.0)
    found[SERVER] = max(0.0, event["seconds"] - sum(found.values()))
    return found
