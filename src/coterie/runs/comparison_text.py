"""A comparison in words: two tables, the local work, and what the tests show."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from coterie.core.units import count, size
from coterie.runs import comparison_metrics
from coterie.runs.history import csv_lines
from coterie.runs.text_table import TextTable, tex

if TYPE_CHECKING:
    from coterie.runs.comparison import Comparison

# Columns that differ each time, whatever else is the same.
TIMES = ("seconds", "seconds_clients", "seconds_tests", "seconds_server")


def written(comparison: Comparison, format: str) -> str:
    """The tables and sentences in one of the formats; as CSV, the table alone."""
    if format == "csv":
        return csv(comparison)
    rows = comparison.table()
    tables = [accuracy(comparison, rows), cost(comparison, rows)] if rows else []
    tables[1:1] = comparison_metrics.tables(comparison.metrics, rows)
    tables += [planted(rows)] if any(row["clusters_correct"] is not None for row in rows) else []
    tables += [joining(rows)] if rows and comparison.newcomers else []
    parts = [t.to(format) for t in tables]
    sentences = words(comparison, rows)
    match format:
        case "html":
            parts += [f"<p>{html.escape(line)}</p>" for line in sentences]
        case "latex":
            parts += [tex(line) for line in sentences]
        case "md":
            parts.append("\n".join(f"- {line}" for line in sentences))
        case _:
            parts.append("\n".join(sentences))
    return "\n\n".join(parts)


def csv(comparison: Comparison, times: bool = True) -> str:
    """Every column of the table with every digit."""
    rows = comparison.table()
    head = [c for c in (rows[0] if rows else {}) if times or c not in TIMES]
    lines = [["" if row[c] is None else row[c] for c in head] for row in rows]
    return csv_lines([head, *lines]).rstrip("\n")


def accuracy(comparison: Comparison, rows: list[dict[str, Any]]) -> TextTable:
    """Accuracy under its three names, and how it is spread over clients."""
    k = comparison.last_k
    head: tuple[str, ...] = (
        "method",
        "round taken" if comparison.chosen else "last round",
        f"last {count(k, 'round')}",
        "top 5 rounds",
        "std clients",
        "worst",
        "bottom 5",
        "bottom 10 %",
    )
    shown: list[tuple[str, ...]] = [
        (
            row["method"],
            *(margin(row, f"accuracy_{name}") for name in ("last", f"last_{k}", "top_5")),
            *(percent(row[name]) for name in ("std_clients", "worst", "bottom_5", "bottom_10pct")),
        )
        for row in rows
    ]
    if comparison.tuning:
        head = (head[0], "chosen", *head[1:])  # early: a narrow page cuts the end off
        both = zip(shown, rows, strict=True)
        shown = [(name, row["chosen"], *line) for (name, *line), row in both]
    runs = {row["runs"] for row in rows}
    seeds = (f"{min(runs)} to " if len(runs) > 1 else "") + count(max(runs, default=0), "seed")
    ends = ", ± 95 % interval" if max(runs, default=0) > 1 else ""
    return TextTable(f"accuracy in %: mean over clients and {seeds}{ends}", head, tuple(shown))


def cost(comparison: Comparison, rows: list[dict[str, Any]]) -> TextTable:
    """Clusters, what was sent, what was computed, and what a target cost."""
    target = comparison.target
    head = ["method", "models", "ARI", "sent up", "sent down", "local work", "samples", "time"]
    if target is not None:
        head[3:3] = [f"rounds to {100 * target:g} %", "bytes to it"]
    lines = []
    for row in rows:
        line = [
            row["method"],
            models(row),
            "n/a" if row["ari"] is None else f"{row['ari']:.2f}",
            size(row["bytes_up"]),
            size(row["bytes_down"]),
            work(row),
            f"{row['samples']:,.0f}",
            f"{row['seconds']:.1f} s",
        ]
        if target is not None:
            some = f" ({row['reached']}/{row['runs']})" if row["reached"] < row["runs"] else ""
            never = row["reached"] == 0
            line[3:3] = (
                ["never", "n/a"]
                if never
                else [number(row["rounds_to_target"]) + some, size(row["bytes_to_target"]) + some]
            )
        lines.append(tuple(line))
    return TextTable("models and cost of a run: mean over seeds", tuple(head), tuple(lines))


def models(row: Mapping[str, Any]) -> str:
    """Whose models a method makes, and of clusters how many.

    >>> models({"models": "clustered", "clusters": 4.0}), models({"models": "personal"})
    ('4 clusters', 'own')
    """
    if row["models"] in ("shared", "personal"):
        return {"shared": "1 for all", "personal": "own"}[row["models"]]
    many = number(row["clusters"])  # a mean over seeds
    return f"{many} {'cluster' if many == '1' else 'clusters'}"


def planted(rows: list[dict[str, Any]]) -> TextTable:
    """How the clusters of each method fit the planted groups, and when they were final."""
    head = ("method", "clusters", "clients right", "ARI", "final after round")
    lines = tuple(
        (
            row["method"],
            *(number(row[name]) for name in ("clusters", "clusters_correct")),
            "n/a" if row["ari"] is None else f"{row['ari']:.2f}",
            number(row["settled"]),
        )
        for row in rows
        if row["clusters_correct"] is not None
    )
    return TextTable("clusters and the planted groups: mean over seeds", head, lines)


def joining(rows: list[dict[str, Any]]) -> TextTable:
    """How those did who were held out."""
    head = ("method", "as given", "adapted", "right cluster")
    names = ("newcomers_given", "newcomers_adapted", "newcomers_assigned")
    lines = tuple((row["method"], *(percent(row[name]) for name in names)) for row in rows)
    return TextTable("newcomers in %: mean over newcomers and seeds", head, lines)


def words(comparison: Comparison, rows: list[dict[str, Any]]) -> list[str]:
    """What was equal, what the tests show, and what they do not."""
    out = [equal_terms(comparison), equal_work(rows)] if rows else []
    out += comparison.tuning.sentences() if rows and comparison.tuning else []
    for cell in comparison.missing:
        why = comparison.failed.get(cell.folder.name, "").split("\n")[0]
        out.append(f"Not done: {cell.label}, seed {cell.seed}{f': {why}' if why else ''}.")
    if len(rows) > 1:
        found = comparison.tests()
        if found.seeds:
            every = (found.friedman_clients, found.friedman_seeds)
            out += [f"{pair.sentence}." for pair in found.pairs]
            out += [f"{test.sentence[:1].upper()}{test.sentence[1:]}." for test in every if test]
            out += comparison_metrics.sentences(comparison)
            out.append(found.caveat)
    return out


def equal_terms(comparison: Comparison) -> str:
    """What the methods share, as it was checked."""
    methods, seeds = count(len(comparison.methods), "method"), count(len(comparison.seeds), "seed")
    return (
        f"Same clients, initial weights and draws for all {methods} in each of {seeds} "
        "(SHA-256 of clients and weights compared)."
    )


def equal_work(rows: list[dict[str, Any]]) -> str:
    """Whether everybody trains as much in a round."""
    kinds: dict[str, list[str]] = {}
    for row in rows:
        how = f", {row['recipe']}" * bool(row["recipe"])
        told = f"{work(row)}, learning rate {row['lr']:g}{how}"
        kinds.setdefault(told, []).append(row["method"])
    own = {row["method"]: row["own_work"] for row in rows if row["own_work"]}
    besides = "".join(f" Besides, {m}: {text}." for m, text in own.items())
    if len(kinds) == 1:
        return f"Equal local work: {next(iter(kinds))}, for every client drawn.{besides}"
    told = "; ".join(f"{', '.join(methods)}: {text}" for text, methods in kinds.items())
    return f"Local work differs: {told}.{besides}"


def work(row: Mapping[str, Any]) -> str:
    """Local work in a round.

    >>> work({"epochs": 2, "steps": 0, "batch": 32, "participation": 0.5})
    '2 epochs of 32, 50 % drawn'
    """
    many = count(row["steps"], "step") if row["steps"] else count(row["epochs"], "epoch")
    batch = row["batch"] or "all"
    part = row["participation"]
    return f"{many} of {batch}" + ("" if part in (None, 1) else f", {100 * part:g} % drawn")


def margin(row: Mapping[str, Any], name: str) -> str:
    """A mean in percent with its interval."""
    half = row[f"{name}_interval"]
    return percent(row[name]) + ("" if half is None else f" ± {100 * half:.1f}")


def percent(share: float | None) -> str:
    """A share in percent, without the sign.

    >>> percent(0.713), percent(None)
    ('71.3', 'n/a')
    """
    return "n/a" if share is None or share != share else f"{100 * share:.1f}"


def number(value: float | None) -> str:
    """A mean of whole numbers.

    >>> number(4.0), number(4.333), number(None)
    ('4', '4.3', 'n/a')
    """
    return "n/a" if value is None else f"{value:.1f}".removesuffix(".0")
