"""The atlas as tables: all kinds in one, one kind, what methods cost, and how safe each is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from coterie.core.units import size
from coterie.runs.statistics import LEVEL, holm, wilcoxon
from coterie.runs.text_table import TextTable
from coterie.studies.atlas.findings import Finding, Runs, Standing, common, levels, scores
from coterie.studies.atlas.grid import Place
from coterie.studies.atlas.results import Results

USUAL = ("fedavg", "fedavg-ft")  # what nobody should be below


def overview(found: Sequence[Finding]) -> TextTable:
    """A row for each kind of difference."""
    head = ("kind", "best", "accuracy", "above FedAvg", "level with it", "clearly below FedAvg")
    rows = tuple(
        (
            f.kind,
            f.best.method,
            percent(f.best.accuracy),
            points(f.best.over.get("fedavg")),
            ", ".join(f.level[1:]) or "nobody",
            ", ".join(s.method for s in f.standings if "fedavg" in s.below) or "nobody",
            ", ".join(s.method for s in f.standings if "local" in s.below) or "nobody",
            f"{f.runs}",
        )
        for f in found
    )
    title = "who is best where: accuracy in %, mean over places and seeds"
    return TextTable(title, (*head, "clearly below Local", "runs"), rows)


def standings(found: Finding) -> TextTable:
    """A row for each method in one kind, the best first; at the end who is told the groups."""
    extra = found.standings + ((found.ceiling,) if found.ceiling else ())
    head = ("method", "accuracy", "behind", "level", "level in places", "to FedAvg", "to Local")
    rows = tuple(standing(s, len(found.places)) for s in extra)
    title = f"{found.kind} ({found.what})"
    return TextTable(title, (*head, "bytes", "training", "all right", "right again"), rows)


def standing(s: Standing, places: int) -> tuple[str, ...]:
    """One method in one kind; bytes and training are those of FedAvg times this."""
    return (
        s.method,
        percent(s.accuracy),
        points(-s.behind),
        "yes" if s.level else "no",
        f"{s.level_in}/{places}",
        *(points(s.over.get(b)) + " (below)" * (b in s.below) for b in ("fedavg", "local")),
        times(s.bytes),
        times(s.work),
        share(s.right),
        share(s.recovered),
    )


def by_place(results: Results, found: Finding) -> TextTable:
    """A row for each place and role, a column for each method."""
    runs, _ = common(results.at(found.kind))
    methods = [s.method for s in found.standings] + (
        [found.ceiling.method] if found.ceiling else []
    )
    rows = []
    for place in found.places:
        mine = [run for (at, _), run in runs.items() if at == place]
        means = [fmean(run[m].accuracy or 0.0 for run in mine) for m in methods]
        role = results.atlas.role(place)
        rows.append((f"{place.data} {place.size}", role, f"{len(mine)}", *map(percent, means)))
    return TextTable(
        f"{found.kind}: place by place, mean over seeds",
        ("place", "role", "seeds", *methods),
        tuple(rows),
    )


def costs(results: Results, found: Sequence[Finding]) -> TextTable:
    """What each method costs, over all kinds."""
    mine = {m: [s for f in found for s in f.standings if s.method == m] for m in methods_of(found)}
    rows = []
    for method, some in mine.items():
        done = [r for r in results.of("result") if r.method == method and r.up is not None]
        sent = fmean((r.up or 0) + (r.down or 0) for r in done) if done else 0.0
        spent = fmean(r.seconds or 0.0 for r in done) if done else 0.0
        bytes_, work = (
            [v for s in some if (v := getattr(s, name)) is not None] for name in ("bytes", "work")
        )
        rows.append(
            (
                method,
                times(fmean(bytes_) if bytes_ else None),
                times(fmean(work) if work else None),
                size(sent),
                f"{spent:.1f} s",
            )
        )
    head = ("method", "bytes", "training", "sent in a run", "time of a run")
    return TextTable("what it costs: FedAvg's times this, mean over kinds", head, tuple(rows))


def safety(results: Results, found: Sequence[Finding], role: str = "") -> TextTable:
    """How safe each method is over all places, or those of a role.

    The largest loss is that against the better of FedAvg and FedAvg with fine-tuning in a place.
    """
    runs = {
        key: run
        for f in found
        for key, run in common(results.at(f.kind))[0].items()
        if role in ("", results.atlas.role(key[0]))
    }
    places = list(dict.fromkeys(place for place, _ in runs))
    told = [m for m in results.atlas.methods if results.atlas.contestant(m).planted]
    rows = tuple(
        (m, *row) for m in methods_of(found) if (row := tuple(safe(results, runs, places, m, told)))
    )
    head = ("method", "level with the best", "largest loss", "level with the oracle")
    title = f"how safe each is, place by place{f' ({role})' if role else ''}"
    return TextTable(title, (*head, "one cluster if nothing differs", "groups found"), rows)


def safe(
    results: Results, runs: Runs, places: Sequence[Place], m: str, told: Sequence[str]
) -> Iterator[str]:
    """The numbers of one method: level with the best, largest loss, level with who is told."""
    mine = {key: run for key, run in runs.items() if m in run}
    here = [p for p in places if any(at == p for at, _ in mine)]
    if not here:
        return
    some = {p: {k: r for k, r in mine.items() if k[0] == p} for p in here}
    level = [m in levels(of, [x for x in first(of) if x not in told])[p] for p, of in some.items()]
    yield f"{sum(level)}/{len(level)}"
    lost = [loss for of in some.values() if (loss := behind_usual(of, m)) is not None]
    yield points(-max(0.0, max(lost))) if lost else "n/a"
    oracle = next((t for t in told if any(t in r for r in mine.values())), "")
    both = [of for of in some.values() if oracle and oracle in first(of)]
    yield f"{sum(as_good(of, m, oracle) for of in both)}/{len(both)}" if both else "n/a"
    plain = [r[m] for (p, _), r in mine.items() if p.kind in ("none", "quantity")]
    known = [row.clusters == 1 for row in plain if row.clusters is not None]
    yield f"{sum(known)}/{len(known)}" if known else "n/a"
    kinds = results.atlas.kinds
    planted = [r[m] for (p, _), r in mine.items() if kinds[p.kind].planted]
    right = [row.right >= len(row.scores) for row in planted if row.right is not None]
    yield f"{sum(right)}/{len(right)}" if right else "n/a"


def first(runs: Runs) -> list[str]:
    """The methods of some runs."""
    return list(next(iter(runs.values())))


def behind_usual(runs: Runs, m: str) -> float | None:
    """How far a method is behind the better of FedAvg and FedAvg with fine-tuning in a place."""
    usual = [u for u in USUAL if u in first(runs)]
    if not usual or m in USUAL:
        return None
    mean = {x: fmean(run[x].accuracy or 0.0 for run in runs.values()) for x in (m, *usual)}
    return max(mean[u] for u in usual) - mean[m]


def as_good(runs: Runs, m: str, oracle: str) -> bool:
    """Whether a method is not clearly below who is told the groups, over clients and seeds."""
    test = wilcoxon(*scores(runs, m, oracle), m, oracle)
    (p,) = holm([test.p])
    return p is None or p >= LEVEL or test.difference >= 0


def methods_of(found: Sequence[Finding]) -> list[str]:
    """The methods of all kinds, in the order of how often they are level with the best."""
    often: dict[str, int] = {}
    for f in found:
        for s in f.standings:
            often[s.method] = often.get(s.method, 0) + s.level
    return sorted(often, key=lambda m: -often[m])


def percent(value: float) -> str:
    """An accuracy."""
    return f"{100 * value:.1f}"


def points(value: float | None) -> str:
    """A difference of accuracies.

    >>> points(0.0312), points(None), points(-0.0)
    ('+3.1', 'n/a', '+0.0')
    """
    return "n/a" if value is None else f"{100 * value + 0.0:+.1f}"


def times(value: float | None) -> str:
    """A factor."""
    return "n/a" if value is None else f"x {value:.2f}"


def share(value: float | None) -> str:
    """A share of runs."""
    return "" if value is None else f"{100 * value:.0f} %"
