"""One HTML file with everything in it: no request leaves the reader's machine."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from coterie.core import storage
from coterie.core.errors import CoterieError
from coterie.core.units import count
from coterie.report import facts, verdict
from coterie.report.again import command_of_run
from coterie.report.blocks import BLOCKS, Block
from coterie.report.charts import CHARTS
from coterie.report.charts.drawing import Drawing
from coterie.report.charts.style import DARK, LIGHT, Absent, Flat
from coterie.report.run_data import (
    Insight,
    Reportable,
    RunData,
    read,
    with_insight,
    with_references,
)
from coterie.report.script import plotly_js

# Who can read the clients' data of a run's folder again; it raises a CoterieError if it cannot.
InsightOf = Callable[[Path], Insight | None]


class Drawn(NamedTuple):
    """A chart of the page, drawn: its figure as JSON."""

    key: str
    title: str
    json: str


class Picture(NamedTuple):
    """A sample beside what somebody made of it: images as data, and what is said of them."""

    original: str
    guess: str
    title: str
    note: str


class Section(NamedTuple):
    """A block as it is filled: charts, tables, texts, and what it has not."""

    block: Block
    charts: tuple[Drawn, ...] = ()
    absent: tuple[str, ...] = ()
    tables: tuple[facts.SortableTable, ...] = ()
    lines: tuple[tuple[str, str], ...] = ()  # names and values
    texts: tuple[tuple[str, str], ...] = ()  # titles and code
    pictures: tuple[Picture, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is nothing but reasons; no news of health is good news."""
        return self.block.key != "health" and not (
            self.charts or self.tables or self.lines or self.texts or self.pictures
        )


def write_run(
    folder: str | Path, file: str | Path | None = None, *, insight: InsightOf | None = None
) -> Path:
    """The page of a run's folder, beside its records unless `file` says otherwise.

    What only the clients' data can tell is on it if `insight` says who reads them.
    """
    return save(run_page(look(folder, insight)), file or Path(folder) / "report.html")


def write_result(result: Reportable, file: str | Path) -> Path:
    """The page of a result in hand."""
    return save(run_page(result.run_data()), file)


def look(folder: str | Path, insight: InsightOf | None = None) -> RunData:
    """Everything that a folder tells of its run; what cannot be told is named in `missing`."""
    run = with_references(read(folder))
    if insight is None:
        return run
    try:
        found = None if run.remote else insight(Path(folder))
    except CoterieError as error:
        return replace(run, missing=error.what)
    return with_insight(run, found)


def save(page: str, file: str | Path) -> Path:
    """Write a page, whole or not at all."""
    path = Path(file)
    storage.make_folder(path.parent)
    storage.replace_file(path, page.encode())
    return path


def run_page(run: RunData) -> str:
    """The page of a run."""
    about = facts.entry(run)
    lead = [count(run.n, "client"), count(run.rounds[-1] if len(run.rounds) else 0, "round")]
    theirs = {"data": {"source": "the clients' own data"}, "partition": {}}  # the file's are not
    lead += facts.terms({**run.config, **theirs} if run.remote else run.config)
    lead += [about.summary] if about else []
    return html(
        title=f"{run.method} · {run.title}" if run.title != run.method else run.method,
        lead=" · ".join(lead),
        sentence=verdict.sentence(run),
        tiles=verdict.tiles(run),
        warnings=verdict.warnings(run),
        sections=(filled := [section(run, block) for block in BLOCKS]),
        left_out=left_out(filled),
        colours="cluster",
    )


def section(run: RunData, block: Block) -> Section:
    """A block of the page, filled with what this run has for it."""
    drawn, absent, said = draw(block, lambda name: CHARTS[name](run))
    if block.key == "privacy":
        about, table = facts.entry(run), facts.asked(run)
        sent = about.uploads if about else "see the method's own documentation"
        tables = tuple(filter(None, (table, facts.spent(run))))
        lines = ((f"{run.method} uploads", sent), *facts.noise(run))
        return Section(block, drawn, absent, tables, lines=lines)
    if block.key == "newcomers":
        if run.joined is None:
            return Section(block, absent=("Nobody was held out (newcomers.share).",))
        return Section(block, tables=(facts.newcomers(run.joined),))
    if block.key == "people":
        return Section(block, tables=(facts.people(run),))
    if block.key == "again":
        texts = [("Command", command_of_run(run))]
        texts += [("Settings (run.toml)", run.settings)] if run.settings else []
        texts += [("Citation (BibTeX)", facts.bibtex(facts.entry(run)))]
        return Section(block, lines=tuple(facts.versions(run)), texts=tuple(texts))
    return Section(block, drawn, absent, lines=said)


def left_out(sections: list[Section]) -> list[tuple[str, str]]:
    """The blocks that have nothing to show, and why; health says so in its own place."""
    return [(s.block.title, " ".join(s.absent)) for s in sections if s.empty]


def draw(
    block: Block, make: Callable[[str], Drawing]
) -> tuple[tuple[Drawn, ...], tuple[str, ...], tuple[tuple[str, str], ...]]:
    """The charts of a block, why others are not there, and what is said instead of a flat one."""
    drawn, absent, said = [], [], []
    for name, title in block.charts:
        try:
            drawn.append(Drawn(name, title, figure_json(make(name))))
        except Flat as text:
            said.append((title, f"{text}."))
        except Absent as why:
            absent.append(f"{title}: {why}.")
    return tuple(drawn), tuple(absent), tuple(said)


def figure_json(drawn: Drawing) -> str:
    """A chart without its theme, which the page has; safe inside a script element."""
    return embedded({"data": drawn.data, "layout": drawn.layout})


def embedded(value: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(short(value), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def short(value: Any) -> Any:
    """Plain values; numbers with six digits, which is more than a screen shows; null for NaN."""
    if isinstance(value, Mapping):
        return {str(k): short(v) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [short(v) for v in value]
    if isinstance(value, float | np.floating):
        number = float(value)
        if not math.isfinite(number):
            return None
        number = float(f"{number:.6g}")
        return int(number) if number.is_integer() and abs(number) < 1e15 else number
    return int(value) if isinstance(value, np.integer) else value


def html(**content: Any) -> str:
    """The page. Everything is escaped but our own script, style and JSON."""
    from jinja2 import Environment, StrictUndefined

    assets = files("coterie.report") / "assets"
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    template = environment.from_string((assets / "page.html").read_text())
    return template.render(
        **content,
        style=(assets / "page.css").read_text(),
        script=(assets / "page.js").read_text(),
        plotly=plotly_js(),
        themes=embedded({"light": LIGHT, "dark": DARK}),
    )
