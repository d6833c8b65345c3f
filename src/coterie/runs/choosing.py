"""Which round is taken: the best one on validation data. What is tested has no say in it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from coterie.core import best_by
from coterie.core.best_by import Stop
from coterie.core.types import VALIDATION
from coterie.runs.history import Row


class Taken(NamedTuple):
    """The best round, and the number that says so."""

    round: int
    value: float


class Chooser:
    """Follows the rounds of a run and knows the best so far; without a `Stop` it chooses none.

    It reads the rows of stage "validation" and no others, and follows from them alone: a run that
    goes on is shown its history and then chooses as if it had never stopped.

    >>> def seen(t, accuracy, stage):
    ...     return Row(t, "", "", stage, "accuracy_mean", accuracy)
    >>> rows = [seen(1, 0.7, "validation"), seen(1, 0.5, "before")]
    >>> rows += [seen(2, 0.6, "validation"), seen(2, 0.9, "before")]
    >>> chooser = Chooser(Stop(patience=1), rows)
    >>> chooser.best, chooser.over(2)
    (Taken(round=1, value=0.7), True)
    """

    def __init__(self, stop: Stop | None, rows: Iterable[Row] = ()) -> None:
        self.stop = stop
        self.best: Taken | None = None
        self.see(rows)

    def see(self, rows: Iterable[Row]) -> bool:
        """Look at what was measured; whether there is a better round than before. Of two that are
        equal the earlier is taken; round 0, before any training, never is."""
        if self.stop is None:
            return False
        metric, better = best_by.full(self.stop.metric), False
        for row in rows:
            if row.client or row.stage != VALIDATION or row.metric != metric or row.round < 1:
                continue
            now = best_by.value(metric, row.value)
            if now == now and (self.best is None or now > best_by.value(metric, self.best.value)):
                self.best, better = Taken(row.round, row.value), True
        return better

    def over(self, round: int) -> bool:
        """Whether there were rounds enough without a better one."""
        if self.stop is None or self.best is None or not self.stop.patience:
            return False
        return round - self.best.round >= self.stop.patience


def taken(stop: Stop | None, rows: Iterable[Row]) -> Taken | None:
    """The round that a run of this history is taken at; None: its last one."""
    return Chooser(stop, rows).best
