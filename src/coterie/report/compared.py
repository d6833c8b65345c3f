"""The page of a comparison, or of a sweep: methods or settings side by side."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coterie.core.units import count, percent, seconds, size
from coterie.methods import METHODS
from coterie.report import facts
from coterie.report.again import commands_of_comparison
from coterie.report.blocks import Block
from coterie.report.charts.compared import CHARTS, labels
from coterie.report.page import Section, draw, html, left_out, save
from coterie.report.verdict import Tile
from coterie.runs.comparison import Comparison, Pair
from coterie.runs.comparison_metrics import tables
from coterie.runs.comparison_text import accuracy, cost, words
from coterie.runs.files import text_of
from coterie.runs.statistics import LEVEL
from coterie.runs.text_table import TextTable

SENTENCE = 40  # letters: a cell of more is read, not compared
TABLES = Block("tables", "The numbers", "Means over seeds; click a head to sort.")
SAID = Block(
    "said",
    "What the tests show",
    "Over clients and over seeds are two questions: whether these clients do better, and whether "
    "other runs would.",
)
TUNING = Block(
    "tuning",
    "What was tried, what was chosen",
    "Each method's candidates on validation data of other seeds than those above, the best first; "
    "how far they are apart is how much the choice mattered. Test data had no say in it.",
)
AGAIN = Block(
    "again", "How to do it again", "With these settings and seeds every run gives the same bits."
)
BLOCKS = (
    Block(
        "curves",
        "Accuracy by round",
        "A line is a method's mean over clients and seeds, and the band around it goes from its "
        "worst seed to its best.",
        (("curves", "Accuracy by round"),),
    ),
    Block(
        "ranks",
        "Mean ranks",
        "The further left the better; methods under one grey bar are not told apart by Nemenyi's "
        "test at the 5 % level.",
        (("ranks", "Critical-difference diagram"),),
    ),
    Block(
        "pairs",
        "Client by client",
        "A point is a client in one seed: to the right of the line it does better than with the "
        "first method. Below, for how many clients each method of a pair is better.",
        (("differences", "Paired differences"), ("wins", "Wins, ties and losses")),
    ),
    Block(
        "cost",
        "Accuracy and bytes",
        "Up and to the left is better; no method beats one on the dotted line in both. Bars are "
        "95 % intervals over seeds.",
        (("pareto", "Accuracy against bytes"),),
    ),
    Block(
        "fairness",
        "How fair they are",
        "A curve that rises late and steeply gives everybody much the same.",
        (("evenness", "Clients at or below an accuracy"),),
    ),
)


def write_comparison(folder: str | Path, file: str | Path | None = None) -> Path:
    """The page of a comparison's folder, finished or not."""
    path = Path(folder)
    return save(comparison_page(Comparison.load(path)), file or path / "report.html")


def comparison_page(found: Comparison) -> str:
    """The page of a comparison."""
    rows = found.table()
    told = words(found, rows)
    missing = [text for text in told if text.startswith("Not done:")]
    charts = [block for block in BLOCKS if rows]
    middle = [Section(b, *draw(b, lambda name: CHARTS[name](found))[:2]) for b in charts]
    both = [accuracy(found, rows), *tables(found.metrics, rows), cost(found, rows)] if rows else []
    shown = tuple(sortable(table) for table in both)
    pairs = found.tests().pairs if len(rows) > 2 else ()
    left = {*missing, *(f"{pair.sentence}." for pair in pairs)}
    rest = [("", text) for text in told if text not in left]
    matrix = (each_against_each(pairs, [r["method"] for r in rows]),) if pairs else ()
    tried = (sortable(found.tuning.table()),) if found.tuning else ()
    sections = [
        Section(TABLES, tables=shown),
        *([Section(TUNING, tables=tried)] if tried else []),
        *middle[:1],
        Section(SAID, lines=tuple(rest), tables=matrix),
        *middle[1:],
        again(found),
    ]
    runs = sum(cell.done for cell in found.cells)
    seeds = count(len(found.seeds), "seed")
    return html(
        title=f"Comparison · {found.folder.name}",
        lead=" · ".join(
            [*about(found), count(len(found.methods), "method"), seeds, count(runs, "run")]
        ),
        sentence=sentence(rows, "the round taken" if found.chosen else "the last round"),
        tiles=tiles(found, rows),
        warnings=missing,
        sections=sections,
        left_out=left_out(sections),
        colours="method",
    )


def sentence(rows: list[dict[str, Any]], when: str = "the last round") -> str:
    """The verdict in a line; never a winner by the best round on test data."""
    if not rows:
        return "No run of this comparison is done yet."
    best, *others = sorted(rows, key=lambda r: -r["accuracy_last"])
    found = f"{best['method']} has the highest mean accuracy in {when}, "
    found += percent(best["accuracy_last"])
    return found + (
        f"; next is {others[0]['method']} with {percent(others[0]['accuracy_last'])}."
        if others
        else "."
    )


def tiles(found: Comparison, rows: list[dict[str, Any]]) -> list[Tile]:
    """The best of each kind."""
    if not rows:
        return []
    accurate = max(rows, key=lambda r: r["accuracy_last"])
    fair = max(rows, key=lambda r: r["bottom_10pct"])
    quick = min(rows, key=lambda r: r["seconds"])
    best = [
        Tile("highest accuracy", percent(accurate["accuracy_last"]), accurate["method"]),
        Tile("best worst tenth", percent(fair["bottom_10pct"]), fair["method"]),
    ]
    if senders := [row for row in rows if row["bytes"]]:
        cheap = min(senders, key=lambda r: r["bytes"])
        alone = [row["method"] for row in rows if not row["bytes"]]
        note = f"; {', '.join(alone)} sends nothing" if alone else ""
        best.append(Tile("fewest bytes", size(cheap["bytes"]), cheap["method"] + note))
    return [*best, Tile("shortest run", seconds(quick["seconds"]), quick["method"])]


def about(found: Comparison) -> list[str]:
    """The data, the partition, the network and the clients that the methods share."""
    done = [cell for cell in found.cells if cell.done]
    words = facts.terms(next(iter(found.asked["experiments"].values())))
    start = next((e for cell in done for e in cell.events if e["event"] == "start"), {})
    if words and "parameters" in start:
        network = start.get("network", words[-1])  # that was chosen, if none was named
        words[-1] = f"{network} ({count(start['parameters'], 'parameter')})"
    words += [count(start["clients"], "client")] if "clients" in start else []
    return words + ([count(start["rounds"], "round")] if "rounds" in start else [])


def each_against_each(pairs: Sequence[Pair], methods: list[str]) -> facts.SortableTable:
    """A matrix of the mean differences in points, each method (row) minus each other (column)."""
    seeds = max(pair.seeds.n for pair in pairs)
    found = {}
    for pair in pairs:
        points, sure = 100 * pair.clients.difference, below(pair.clients_holm)
        star = "*" * (sure + (sure and pair.seeds.enough and below(pair.seeds_holm)))
        for a, b, sign, won in (
            (pair.first, pair.second, 1, pair.seeds.wins),
            (pair.second, pair.first, -1, pair.seeds.losses),
        ):
            text = f"{sign * points + 0.0:+.1f}{star} ({won}/{pair.seeds.n})"
            found[a, b] = facts.Cell(text, sign * points)
    nothing = facts.Cell("–", right=True)
    rows = tuple((facts.Cell(a), *(found.get((a, b), nothing) for b in methods)) for a in methods)
    note = (
        "row minus column in points, mean over clients and seeds, and in how many of "
        f"{count(seeds, 'seed')} the row is better; * p < 0.05 over clients, ** over seeds, too "
        "(Wilcoxon signed-rank, adjusted by Holm among all pairs)"
    )
    return facts.SortableTable("Each against each", ("", *methods), rows, note)


def below(p: float | None) -> bool:
    """Whether a p value is below the level of 5 %."""
    return p is not None and p < LEVEL


def sortable(table: TextTable) -> facts.SortableTable:
    """A table of text whose cells sort by the number they begin with; sentences stand left."""
    long = {i for row in table.rows for i, text in enumerate(row) if len(text) > SENTENCE}
    rows = tuple(
        tuple(
            facts.Cell(text) if i == 0 or i in long else facts.Cell(text, amount(text), True)
            for i, text in enumerate(row)
        )
        for row in table.rows
    )
    return facts.SortableTable(table.title, table.head, rows)


def amount(text: str) -> float | None:
    """The number a cell begins with, in its unit.

    >>> amount("92.1 ± 0.3"), amount("1.5 MB"), amount("1,200"), amount("n/a")
    (92.1, 1500000.0, 1200.0, None)
    """
    found = re.match(r"(-?[\d,]*\.?\d+)\s*(kB|MB|GB|TB)?", text)
    if not found:
        return None
    unit = {"kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}.get(found[2] or "", 1.0)
    return float(found[1].replace(",", "")) * unit


def again(found: Comparison) -> Section:
    """Where it came from, and what to cite."""
    text = text_of(found.folder / "compare.toml")
    names = [re.split(r"[:\[( ]", label)[0] for label in labels(found)]
    cited = dict.fromkeys(facts.bibtex(METHODS.get(name)) for name in names)
    entries = dict.fromkeys(entry for bib in cited for entry in bib.split("\n\n"))
    folders = "\n".join(
        f"{cell.folder.name}  {'done' if cell.done else 'not done'}" for cell in found.cells
    )
    texts = (
        *commands_of_comparison(found).items(),
        ("Runs", folders),
        ("What was asked (compare.toml)", text),
        ("Citation (BibTeX)", "\n\n".join(entries)),
    )
    return Section(AGAIN, texts=texts)
