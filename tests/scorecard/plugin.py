"""What the scorecard hears of a test session: the rows of each test, how it ended, its figures."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

FIGURE = "figure"  # the name of the property that a figure travels in, from any process
NEVER = "not run"
WORST = ("failed", "skipped", "passed")


def rows_of(item: pytest.Item) -> list[int]:
    """The rows that a test proves a part of."""
    return sorted({row for mark in item.iter_markers("row") for row in mark.args})


class Scorecard:
    """Collects, in the process that the person started, and writes one file at the end."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.rows: dict[str, list[int]] = {}
        self.ended: dict[str, str] = {}
        self.seconds: dict[str, float] = {}
        self.figures: dict[str, list[dict[str, Any]]] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Remember whose tests there are; a worker process tells it when it ends."""
        self.rows |= {item.nodeid: rows for item in session.items if (rows := rows_of(item))}
        output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["rows"] = self.rows

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Hear from a worker process which tests it knew."""
        self.rows |= (getattr(node, "workeroutput", None) or {}).get("rows", {})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One phase of a test is over: it ended as its worst phase did."""
        # A test that was expected to fail, and did, proves nothing.
        outcome = "failed" if hasattr(report, "wasxfail") else report.outcome
        name = report.nodeid.partition("@")[0]  # with groups, a worker adds the group's name
        before = self.ended.get(name)
        if report.when == "call" or outcome != "passed" or before:
            self.ended[name] = min((outcome, before or "passed"), key=WORST.index)
        self.seconds[name] = self.seconds.get(name, 0.0) + report.duration
        if report.when == "call":
            found = [json.loads(str(v)) for key, v in report.user_properties if key == FIGURE]
            self.figures[name] = found

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write what was heard."""
        if hasattr(session.config, "workeroutput"):
            return
        rows = {name.partition("@")[0]: rows for name, rows in self.rows.items()}
        tests = [
            {
                "test": name,
                "rows": found,
                "ended": self.ended.get(name, NEVER),
                "seconds": round(self.seconds.get(name, 0.0), 3),
                "figures": self.figures.get(name, []),
            }
            for name, found in sorted(rows.items())
        ]
        strange = sorted(name for name in self.ended if name not in rows)
        self.file.write_text(json.dumps({"tests": tests, "strange": strange}, indent=1) + "\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where to write, for whoever runs the scorecard."""
    parser.addoption("--scorecard", metavar="FILE", help="write what the tests of its rows show")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test that is a case of many counts as one: `row(23, counts="damaged files")`."""
    for mark in item.iter_markers("row"):
        if name := mark.kwargs.get("counts"):
            told = json.dumps({"name": name, "value": 1, "by": "sum"})
            item.user_properties.append((FIGURE, told))


def pytest_configure(config: pytest.Config) -> None:
    """Listen only if somebody wants to know."""
    if file := config.getoption("--scorecard"):
        config.pluginmanager.register(Scorecard(Path(file)), "scorecard")


def named(figures: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Figures of several tests put together, by their names."""
    found: dict[str, Any] = {}
    for figure in figures:
        name, value, by = figure["name"], figure["value"], figure["by"]
        if name not in found or by == "last":
            found[name] = value
        else:
            found[name] = {"sum": lambda a, b: a + b, "most": max, "least": min}[by](
                found[name], value
            )
    return found
