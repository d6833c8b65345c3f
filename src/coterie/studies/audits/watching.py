"""A federation whose uploads are kept for whoever audits them, and what was asked in a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from coterie.audit.uploads import Upload, what_of
from coterie.core.client import Client
from coterie.core.types import Replies, State, Task
from coterie.engines.front import Front
from coterie.engines.question import Question

Open = dict[int, tuple[Client, Tensor, dict[str, Tensor]]]  # by client: what it has and was sent


@dataclass(frozen=True)
class Traffic:
    """How often a task was answered in a run."""

    first: int  # round; 0: before the first
    rounds: int
    answers: int


class Watched(Front):
    """A federation that keeps what some of its clients sent: to each task first, and last.

    Views made by `at` share what was kept.
    """

    def __init__(self, *args: Any, who: Iterable[int] = (), **how: Any) -> None:
        super().__init__(*args, **how)
        self.who = frozenset(who)
        self.first: dict[str, list[Upload]] = {}
        self.last: dict[str, list[Upload]] = {}
        self.open: Open = {}
        self.asked: list[tuple[str, int, int]] = []  # what, in which round, how many answers

    def question(
        self, cohort: Tensor, task: Task, state: State, send: Mapping[str, Tensor]
    ) -> Question:
        """The same question; who is asked is remembered as it is now."""
        asked = super().question(cohort, task, state, send)
        self.open.clear()
        for j, i in enumerate(cohort.tolist()):
            if i in self.who:
                self.open[i] = (asked.client(j), *asked.payload(j))
        return asked

    def ask(self, cohort: Tensor, task: Task, state: State, **send: Tensor) -> Replies:
        """The same answers; those of the watched are kept."""
        replies = super().ask(cohort, task, state, **send)
        if self.purpose != "train":
            return replies
        kept = [
            Upload(
                task,
                self.round + 1,
                i,
                *self.open[i],
                replies.values[j],
                {name: t[j] for name, t in replies.extra.items()},
            )
            for j, i in enumerate(replies.clients.tolist())
            if i in self.open
        ]
        what = what_of(task)
        self.asked.append((what, self.round + 1, len(replies)))
        if kept:
            self.first.setdefault(what, kept)
            self.last[what] = kept
        return replies

    @property
    def traffic(self) -> dict[str, Traffic]:
        """How often each was answered."""
        return summed(self.asked)


def from_events(events: Mapping[int, Mapping[str, Any]]) -> dict[str, Traffic]:
    """The same from the records of a run."""
    return summed(
        (task, round, int(cost["clients"]))
        for round, event in sorted(events.items())
        for task, cost in event.get("asked", {}).items()
    )


def told_by(played: Mapping[str, Traffic], recorded: Mapping[str, Traffic]) -> dict[str, Traffic]:
    """How often each was sent: by the records of a run, which know tasks by their names alone."""
    names = [what.partition(" ")[0] for what in played]
    return {
        what: recorded[name] if name in recorded and names.count(name) == 1 else how
        for (what, how), name in zip(played.items(), names, strict=True)
    }


def summed(rows: Iterable[tuple[str, int, int]]) -> dict[str, Traffic]:
    """Rounds and answers by task.

    >>> summed([("Train", 1, 5), ("Train", 2, 4)])
    {'Train': Traffic(first=1, rounds=2, answers=9)}
    """
    by_task: dict[str, dict[int, int]] = {}
    for task, round, answers in rows:
        seen = by_task.setdefault(task, {})
        seen[round] = seen.get(round, 0) + answers
    return {
        task: Traffic(min(seen), len(seen), sum(seen.values())) for task, seen in by_task.items()
    }


def some_of(sizes: Tensor, most: int) -> list[int]:
    """At most so many clients, from the smallest to the largest: the smallest leaks most.

    >>> some_of(torch.tensor([30, 10, 20]), 2)
    [1, 0]
    """
    order = sizes.argsort(stable=True)
    if len(order) > most:
        order = order[torch.linspace(0, len(order) - 1, most).round().long()]
    found: list[int] = order.tolist()
    return found
