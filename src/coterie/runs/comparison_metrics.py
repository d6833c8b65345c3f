"""Metrics beside accuracy in a comparison: their columns, their table, and what the tests show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from coterie.core.best_by import full
from coterie.core.metric_names import CLASSES, METRICS, less_is_better
from coterie.runs import statistics
from coterie.runs.text_table import TextTable

if TYPE_CHECKING:
    from coterie.runs.comparison import Cell, Comparison


def measured(cells: Sequence[Cell]) -> tuple[str, ...]:
    """The metrics beside accuracy and loss that every one of some runs has, by name."""
    found = [of_run(cell.numbers) for cell in cells]
    return tuple(name for name in (found[0] if found else ()) if all(name in f for f in found))


def of_run(numbers: Mapping[str, Any]) -> list[str]:
    """The metrics among the numbers at the end of a run.

    >>> of_run({"accuracy_mean": 0.5, "clients": 4.0, "auc_mean": 0.7, "auc_clients": 4.0})
    ['auc']
    """
    several = [key.removesuffix("_clients") for key in numbers if key.endswith("_clients")]
    return [*several, *([CLASSES] if CLASSES in numbers else [])]


def columns(cells: Sequence[Cell], metrics: Sequence[str]) -> dict[str, Any]:
    """The mean of each metric over the seeds of a method, and the half-width of its interval."""
    row: dict[str, Any] = {}
    for name in metrics:
        over = statistics.interval([cell.numbers[full(name)] for cell in cells])
        row |= {name: over.mean, f"{name}_interval": over.half}
    return row


def tables(metrics: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[TextTable]:
    """The table of the further metrics; none where none was measured."""
    if not metrics or not rows:
        return []
    head = ("method", *(said(name) for name in metrics))
    lines = tuple((row["method"], *(shown(row, name) for name in metrics)) for row in rows)
    less = [said(name) for name in metrics if less_is_better(name)]
    better = f"; less is better for {', '.join(less)}" if less else ""
    return [TextTable(f"other metrics: mean over clients and seeds{better}", head, lines)]


def said(name: str) -> str:
    """A metric in words; a function of one's own by its name.

    >>> said("macro_f1"), said("top_two")
    ('macro-F1', 'top_two')
    """
    words = {"macro_f1": "macro-F1", "auc": "AUC", CLASSES: "accuracy by class"}
    return words.get(name, name.replace("_", " ") if name in METRICS else name)


def shown(row: Mapping[str, Any], name: str) -> str:
    """A mean with its interval."""
    half = row[f"{name}_interval"]
    return f"{row[name]:.3f}" + ("" if half is None else f" ± {half:.3f}")


def sentences(comparison: Comparison) -> Iterator[str]:
    """What the tests show by each further metric: all methods together, or the two there are."""
    for name in comparison.metrics:
        if name == CLASSES:
            continue  # it is of the federation, not of a client
        found = comparison.tests(name)
        every = [test for test in (found.friedman_clients, found.friedman_seeds) if test]
        for test in every or found.pairs:
            yield f"By {said(name)}: {test.sentence}."
