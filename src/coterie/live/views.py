"""What the page is made of: itself, its style, the figures of a run and the curve of a client."""

from __future__ import annotations

import contextlib
import html
import json
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from coterie.core.errors import CoterieError

if TYPE_CHECKING:
    from coterie.report.charts.drawing import Drawing
    from coterie.report.run_data import RunData

SHOWN = ("accuracy", "river", "distances")
Stamp = tuple[tuple[int, int], ...]


class Views:
    """The views of one folder; what was drawn is kept until the records change."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lock = threading.Lock()
        self.seen: tuple[Stamp, RunData] | None = None
        self.drawn: tuple[Stamp, str] | None = None

    def page(self, token: str) -> str:
        """The page itself, with nothing in it but the name of the run."""
        text = (files("coterie.live") / "assets" / "live.html").read_text()
        return Template(text).substitute(
            token=html.escape(token), title=html.escape(self.folder.resolve().name)
        )

    def style(self) -> str:
        """The report's style, and what the view has beside it."""
        report = (files("coterie") / "report" / "assets" / "page.css").read_text()
        return report + (files("coterie.live") / "assets" / "live.css").read_text()

    def plotly(self) -> str:
        """The script that draws the charts.

        Read as a file: what imports it would race with the thread that imports the charts.
        """
        return (files("coterie") / "report" / "assets" / "plotly.min.js").read_text()

    def figures(self) -> str:
        """The charts, the clients and the themes, as JSON; as they were if nothing changed."""
        step_back()
        with self.lock:
            stamp = stamped(self.folder)
            if self.drawn is None or self.drawn[0] != stamp:
                try:
                    self.drawn = stamp, overview(self.run())
                except (CoterieError, OSError, LookupError, ValueError) as why:
                    # No run yet, or read in the middle of a write: the page asks again.
                    return json.dumps({"busy": f"{type(why).__name__}: {why}"})
            return self.drawn[1]

    def client(self, number: int) -> str | None:
        """One client's curve, as JSON; None if there is no such client."""
        with self.lock:
            run = self.run()
        if number >= run.n:
            return None
        from coterie.report.charts.accuracy import of_client

        return drawn(lambda: of_client(run, number))

    def run(self) -> RunData:
        """The records as they are now. The checkpoint is read again only when clients moved."""
        from coterie.report.run_data import read, with_memory

        stamp = stamped(self.folder)
        if self.seen and self.seen[0] == stamp:
            return self.seen[1]
        run = read(self.folder, memory=False)
        known = self.seen[1] if self.seen else None
        if known and known.memory and len(run.assign) and same(run, known):
            run = replace(run, memory=known.memory, models=known.models, notes=known.notes)
        else:
            run = with_memory(run)
        self.seen = stamp, run
        return run


def step_back() -> None:
    """Let training come first: this thread draws with what it leaves (where threads can)."""
    with contextlib.suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)


def stamped(folder: Path) -> Stamp:
    """What tells whether the records changed: their sizes and times."""
    found = []
    for name in ("metrics.csv", "clusters.csv", "events.jsonl", "summary.json"):
        try:
            about = (folder / name).stat()
        except FileNotFoundError:
            continue
        found.append((about.st_size, about.st_mtime_ns))
    return tuple(found)


def same(a: RunData, b: RunData) -> bool:
    """Whether everybody holds the same model in the last round of both."""
    return len(b.assign) > 0 and a.assign[-1].tolist() == b.assign[-1].tolist()


def overview(run: RunData) -> str:
    """Everything that the page draws."""
    from coterie.report.charts import CHARTS
    from coterie.report.charts.style import DARK, LIGHT, colour
    from coterie.report.page import embedded

    held = run.assign[-1].tolist() if len(run.assign) else []
    if not run.clustered:  # one colour for all: nobody is grouped
        held = [min(h, 0) for h in held]
    about = {
        "method": run.method,
        "clients": list(run.clients),
        "held": held,
        "accuracy": run.final.tolist(),
        "colours": {c: colour(c) for c in sorted(set(held))},
        "kind": run.kind,
        "themes": {"light": LIGHT, "dark": DARK},
    }
    charts = ",".join(f'"{name}":{drawn(partial(small, CHARTS[name], run))}' for name in SHOWN)
    return f'{{"about":{embedded(about)},"charts":{{{charts}}}}}'


def small(make: Callable[[RunData], Drawing], run: RunData) -> Drawing:
    """A chart of the report in half its width."""
    drawing = make(run)
    return drawing.update_layout(height=min(drawing.layout["height"], 500))


def drawn(make: Callable[[], Drawing]) -> str:
    """A figure as JSON, or why there is none."""
    from coterie.report.charts.style import Absent
    from coterie.report.page import embedded, figure_json

    try:
        return figure_json(make())
    except Absent as why:
        return embedded({"absent": str(why)})
