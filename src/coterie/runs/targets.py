"""Several target accuracies in one table: rounds and bytes that each method needs to reach them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from coterie.core.units import size
from coterie.runs.cell import Cell
from coterie.runs.text_table import TextTable

if TYPE_CHECKING:
    from coterie.runs.comparison import Comparison

WAYS = ("bytes_down", "bytes_up")


def reached(cell: Cell, target: float) -> int | None:
    """The first tested round whose mean accuracy is at least the target; None if there is none."""
    series = cell.history.series("accuracy_mean", cell.stage)
    return next((t for t, v in series.items() if t > 0 and v >= target), None)


def targets(comparison: Comparison, wanted: Sequence[float]) -> TextTable:
    """For each method and target the mean over the seeds that reach it, and how many do."""
    head = [f"{what} {100 * t:g} %" for t in wanted for what in ("rounds to", "bytes to")]
    rows = []
    for label in comparison.methods:
        cells = comparison.of(label)
        line = [label]
        for target in wanted:
            hits = [(c, t) for c in cells if (t := reached(c, target)) is not None]
            line += cost(hits, len(cells))
        if cells:
            rows.append(tuple(line))
    return TextTable("what targets cost: mean over seeds", ("method", *head), tuple(rows))


def cost(hits: Sequence[tuple[Cell, int]], runs: int) -> tuple[str, str]:
    """Rounds and bytes of the runs that reach a target, and how many do where not all."""
    if not hits:
        return "never", "n/a"
    some = f" ({len(hits)}/{runs})" if len(hits) < runs else ""
    rounds = sum(t for _, t in hits) / len(hits)
    sent = sum(c.history.total(way, until=t) for c, t in hits for way in WAYS) / len(hits)
    return f"{rounds:g}{some}", f"{size(sent)}{some}"
