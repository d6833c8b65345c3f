"""Committed results as Markdown: all tables in one, and each that was measured side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path

from coterie.core.shell import command
from coterie.core.units import seconds
from coterie.studies.reproduction.joining import known
from coterie.studies.reproduction.papers import TABLES
from coterie.studies.reproduction.results import Row
from coterie.studies.reproduction.table import Key, Numbers, Table, Verdict

WIDE = 6  # columns beside the method


def numbers(rows: Sequence[Row]) -> Numbers:
    """What was measured, for the claims."""
    return {r.key: inf if r.measured is None else r.measured for r in rows}


def verdicts(folder: Path, table: Table) -> list[tuple[str, Verdict, str]]:
    """The claims of a table on what was measured."""
    found = numbers(known(folder, table))
    return [(claim.text, *claim.check(found)) for claim in table.claims]


def overview(folder: Path) -> str:
    """A row for each of the tables: what it prints, what can be had, what was measured."""
    lines = [
        "| table | what it shows | prints | data at hand | measured | claims that hold | why not |",
        "| --- | --- | ---: | ---: | ---: | --- | --- |",
    ]
    at_hand = measured = 0
    for table in TABLES.values():
        can = [f for f in table.figures if any(s.has(f) for s in table.settings)]
        keys = {row.key for row in known(folder, table)}
        done = [f for f in can if f[:4] in keys]
        told = [verdict for _, verdict, _ in verdicts(folder, table)]
        tested = [v for v in told if v != "not tested"]
        claims = f"{tested.count('holds')} of {len(tested)}" if tested else "not tested"
        why = "; ".join(f"{d}: {w}" if d else w for d, w in table.absent.items())
        cells = (table.name, table.title, len(table.figures), len(can), len(done))
        held = claims if table.claims else "it makes none"
        lines.append("| " + " | ".join(map(str, (*cells, held, why))) + " |")
        at_hand, measured = at_hand + len(can), measured + len(done)
    share = f"{100 * measured / at_hand:.0f} %" if at_hand else "none"
    lines.append(f"| all | | 1083 | {at_hand} | {measured} ({share}) | | |")
    return "\n".join(lines) + "\n"


def side_by_side(folder: Path, name: str) -> str:
    """One table: for each method paper and measured in every column, then its claims."""
    table = TABLES[name]
    rows, head = known(folder, table), f"**{name}: {table.title}.**"
    if not rows:
        return f"{head} Nothing of it is measured yet: `{command('reproduce', name)}` does.\n"
    tables = [line for some in readable(rows) for line in (*columns(some), "")]
    return "\n".join([head, "", *tables, *claimed(folder, table), "", *how(rows)]) + "\n"


def readable(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """The rows of some columns at a time: those of one data set, as many as a page is wide."""
    for dataset in dict.fromkeys(r.dataset for r in rows):
        mine = [r for r in rows if r.dataset == dataset]
        heads = list(dict.fromkeys((r.setting, r.metric) for r in mine))
        for i in range(0, len(heads), WIDE):
            some = heads[i : i + WIDE]
            yield [r for r in mine if (r.setting, r.metric) in some]


def columns(rows: Sequence[Row]) -> Iterator[str]:
    """A line for each method; a column for each setting and metric, as paper / measured."""
    heads = list(dict.fromkeys((r.dataset, r.setting, r.metric) for r in rows))
    by = {r.key: r for r in rows}
    yield "| method | " + " | ".join(f"{d}, {s}: {m.replace('_', ' ')}" for d, s, m in heads) + " |"
    yield "| --- |" + " ---: |" * len(heads)
    for method in dict.fromkeys(r.method for r in rows):
        found = [by.get(Key(method, *head)) for head in heads]
        yield f"| {method} | " + " | ".join("" if r is None else pair(r) for r in found) + " |"


def pair(row: Row) -> str:
    """A cell: paper / measured, and whether that is within the paper's spread."""
    paper = "–" if row.paper is None else f"{row.paper:.1f}"
    paper += "" if row.paper_std is None else f" ± {row.paper_std:.1f}"
    ours = "never" if row.measured is None else f"**{row.measured:.1f}**"
    ours += "" if row.std is None else f" ± {row.std:.1f}"
    return f"{paper} / {ours}" + (" (within)" if row.within == "yes" else "")


def claimed(folder: Path, table: Table) -> Iterator[str]:
    """The claims, each with its verdict."""
    yield "| claim | verdict | by |"
    yield "| --- | --- | --- |"
    for text, verdict, by in verdicts(folder, table):
        yield f"| {text} | {verdict} | {by} |"


def how(rows: Sequence[Row]) -> Iterator[str]:
    """The commands behind the numbers, with what is cut, the machine and the time."""
    cuts = "; ".join(dict.fromkeys(r.cuts for r in rows if r.cuts)) or "nothing"
    seeds = ", ".join(dict.fromkeys(r.seeds for r in rows))
    spent = {(r.label, r.dataset, r.setting.split(";")[0]): r.seconds or 0.0 for r in rows}
    for line in dict.fromkeys(r.command for r in rows):
        yield f"`{line}`\n"
    where = " and ".join(dict.fromkeys(f"coterie {r.version} on {r.machine}" for r in rows))
    yield (
        f"Seeds: {seeds}. Cut or other than in the paper: {cuts}. {where}, one process; "
        f"{seconds(sum(spent.values()))} in all, beside other work."
    )
