"""The page of the atlas, its page of documentation, and its advice, from the results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

from coterie.core.units import count
from coterie.report.atlas import Region, write_atlas
from coterie.report.verdict import Tile
from coterie.studies.atlas import tables
from coterie.studies.atlas.findings import Finding, findings
from coterie.studies.atlas.grid import FILE
from coterie.studies.atlas.results import Results


def write_page(results: Results, file: Path, command: str) -> Path:
    """Write the page of all results there are."""
    found = findings(results)
    rows = list(results.of("result"))
    best = tables.methods_of(found)
    roles = {row.role for row in rows}
    lead = [
        count(len(found), "kind of difference", "kinds of difference"),
        count(len({row.place for row in rows}), "place"),
        count(len({row.method for row in rows}), "method"),
        count(len(rows), "run"),
        f"grid version {results.atlas.version}",
    ]
    often = {m: sum(m in f.level for f in found) for m in best}
    return write_atlas(
        file,
        lead=" · ".join(lead),
        sentence=f"{best[0]} is level with the best in {often[best[0]]} of {len(found)} kinds."
        if best
        else "There are too few results to compare methods.",
        tiles=[
            Tile(m, f"{often[m]} of {len(found)}", "kinds: level with the best") for m in best[:4]
        ],
        regions=[region(results, f) for f in found],
        bytes={m: fmean(known) for m in best if (known := prices(found, m))},
        overview=tables.overview(found),
        safety=[tables.safety(results, found, role) for role in sorted(roles)],
        costs=tables.costs(results, found),
        warnings=list(caveats(results, found)),
        texts=[("Command", command), ("The grid", FILE.read_text(encoding="utf-8"))],
    )


def region(results: Results, found: Finding) -> Region:
    """A kind as it is drawn."""
    everybody = found.standings + ((found.ceiling,) if found.ceiling else ())
    return Region(
        found.kind,
        found.what,
        found.advice,
        {s.method: 100 * max(0.0, s.behind) for s in everybody},
        [tables.standings(found), tables.by_place(results, found)],
    )


def prices(found: Sequence[Finding], method: str) -> list[float]:
    """What a method sends in each kind, FedAvg's bytes being 1."""
    return [s.bytes for f in found for s in f.standings if s.method == method and s.bytes]


def caveats(results: Results, found: Sequence[Finding]) -> Iterator[str]:
    """What a reader must know of these results."""
    if results.cut:
        yield f"A cut grid: {results.cut}."
    missing = [kind for kind in results.atlas.kinds if kind not in {f.kind for f in found}]
    if missing:
        yield f"No results yet: {', '.join(missing)}."
    for f in found:
        if f.sparse:
            few = ", ".join(f"{m} ({count(n, 'run')})" for m, n in f.sparse.items())
            yield f"{f.kind}: too few runs to compare: {few}."
    diverged = [row for row in results.of("result") if row.accuracy is None]
    if diverged:
        who = sorted({row.method for row in diverged})
        yield f"{count(len(diverged), 'run')} diverged with every setting tried: {', '.join(who)}."


def text(results: Results, format: str = "text") -> str:
    """The tables of all kinds, and the advice."""
    found = findings(results)
    if not found:
        return "There are too few results to compare methods."
    parts = [tables.overview(found).to(format)]
    parts += [tables.safety(results, found, role).to(format) for role in roles(results)]
    parts.append(tables.costs(results, found).to(format))
    parts.append("\n".join(f"{f.kind}: {f.advice}" for f in found))
    return "\n\n".join(parts)


def roles(results: Results) -> list[str]:
    """The roles that results have."""
    return sorted({row.role for row in results.of("result")})


def markdown(results: Results) -> str:
    """The atlas for docs/atlas.md: all kinds, how safe each method is, costs, and each kind."""
    found = findings(results)
    if not found:
        return "There are no results yet: `coterie atlas` makes them.\n"
    parts = [tables.overview(found).to("md")]
    parts += [tables.safety(results, found, role).to("md") for role in roles(results)]
    parts.append(tables.costs(results, found).to("md"))
    for f in found:
        parts += [f"### {f.kind}", f"{f.what[0].upper()}{f.what[1:]}. {f.advice}"]
        parts += [tables.standings(f).to("md"), tables.by_place(results, f).to("md")]
    parts += [f"- {caveat}" for caveat in caveats(results, found)]
    return "\n\n".join(parts) + "\n"
