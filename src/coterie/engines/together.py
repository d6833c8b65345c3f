"""Clients whose tasks go on side by side: what the fast backends have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from coterie.core.client import Client
from coterie.core.errors import YOUR_CODE
from coterie.core.layout import Layout
from coterie.core.types import Reply
from coterie.engines.question import Portion, Question
from coterie.engines.serial import Serial, blaming
from coterie.tasks.solver import Descent
from coterie.tasks.steps import Forward, SteppedTask, Work

Many = Callable[[Any], list[Any]]
AGAIN = 8  # so much cheaper it is to test a client on samples that are read for another


class Together(Serial):
    """Tasks go on from one piece of work to the next; pieces that are alike are done in one go.

    How clients train is the matter of who is derived from it (`train`). A network that it does not
    know is trained one client after another, as `Serial` does it, and `notes` says so; a client
    that it does not take is served as `Serial` serves it, and its reply says why.
    """

    known = False  # whether it can train this network
    together = 2048  # test samples that are read in one go

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    @abstractmethod
    def train(self, descents: Sequence[Descent]) -> list[tuple[Tensor, int]]:
        """What `Descent.run_single` gives each, within rounding: they train alike."""

    def portions(self, question: Question) -> list[Portion]:
        """Of a test, the clients of a model."""
        if not isinstance(question.task, SteppedTask):
            return super().portions(question)
        if question.task.trains is None:
            return readings(question, self.together)
        return self.trainings(question)

    def trainings(self, question: Question) -> list[Portion]:
        """Who trains in one portion: each by itself."""
        return super().portions(question)

    def answer(self, question: Question, places: Sequence[int]) -> list[Reply]:
        """All of them at once: their tasks go on together, from one piece of work to the next."""
        task = question.task
        if not isinstance(task, SteppedTask):
            return super().answer(question, places)
        clients = [question.client(j) for j in places]
        tasks = [
            task.stepwise(client, *question.payload(j), self.layout, question.stream(j))
            for client, j in zip(clients, places, strict=True)
        ]
        replies: dict[int, Reply] = {}
        alone: dict[int, str] = {}
        results: dict[int, Any] = dict.fromkeys(range(len(tasks)))
        while results:
            wanted: dict[int, Work] = {}
            for c, result in results.items():
                with blaming(clients[c], question):
                    try:
                        wanted[c] = tasks[c].send(result)
                    except StopIteration as end:
                        replies[c] = end.value
            results = self.work(wanted, clients, question, alone)
        for c, why in alone.items():
            replies[c] = replace(replies[c], alone=why)
        return [replies[c] for c in range(len(tasks))]

    def work(
        self,
        wanted: dict[int, Work],
        clients: Sequence[Client],
        question: Question,
        alone: dict[int, str],
    ) -> dict[int, Any]:
        """What each task wants done; `alone` is told whom it had to be done for by itself, why."""
        done: dict[int, Any] = {}
        for group, many in self.groups(wanted):
            works = [wanted[c] for c in group]
            if isinstance(works[0], Descent) and works[0].solver.privacy.on:
                alone |= dict.fromkeys(group, "under noise every sample has a gradient of its own")
            drawn = {c: w.rng.get_state() for c in group if isinstance(w := wanted[c], Descent)}
            try:
                done.update(zip(group, many(works), strict=True))
            except YOUR_CODE as cause:  # whose? ask one by one
                for c in group:
                    work = wanted[c]
                    if isinstance(work, Descent):
                        work.rng.set_state(drawn[c])
                    with blaming(clients[c], question):
                        done[c] = work.run_single(self.layout)
                    alone[c] = f"{type(cause).__name__}: {cause}"
        return {c: done[c] for c in wanted}

    def groups(self, wanted: dict[int, Work]) -> list[tuple[list[int], Many]]:
        """Who can be served together, and how."""
        found: dict[tuple[object, ...], list[int]] = {}
        for c, work in wanted.items():
            key: tuple[object, ...] = (None, c)
            if isinstance(work, Descent) and self.known:
                key = Descent, work.solver, work.train, work.client.x.shape[1:]
                if work.solver.privacy.on:  # sample by sample, as only the reference does it
                    key = None, c
            elif isinstance(work, Forward):
                key = Forward, work.row.data_ptr(), work.x.shape[1:]
            found.setdefault(key, []).append(c)
        how: dict[object, Many] = {Descent: self.train, Forward: self.read}
        return [(group, how.get(kind, self.each)) for (kind, *_), group in found.items()]

    def each(self, works: Sequence[Work]) -> list[Any]:
        """One after another, as the reference does it."""
        return [work.run_single(self.layout) for work in works]

    def read(self, forwards: Sequence[Forward]) -> list[Tensor]:
        """What one model says: every sample once, though several clients may be tested on it."""
        sets = {f.x.data_ptr(): f.x for f in forwards}
        said = dict(zip(sets, self.logits(forwards[0].row, list(sets.values())), strict=True))
        return [said[f.x.data_ptr()] for f in forwards]

    def logits(self, row: Tensor, sets: Sequence[Tensor]) -> Sequence[Tensor]:
        """(N, K) for each of some sets of samples."""
        x = torch.cat(list(sets)) if len(sets) > 1 else sets[0]
        if x.ndim == 4:
            x = x.to(memory_format=torch.channels_last)
        found: Sequence[Tensor] = self.layout.predict(row, x).split([len(s) for s in sets])
        return found


def readings(question: Question, together: int) -> list[Portion]:
    """Clients who hold one model together, a number of test samples at a time.

    Those who are tested on the same samples come one after another and share a portion, in which
    these are read once. They are known by where they lie, and memory may have been used again
    since: so they are not free.
    """
    held = question.state.assign[question.cohort].tolist()
    about = [seen(question.clients[i]) for i in question.cohort.tolist()]
    first: dict[int, int] = {}
    for j, (place, _, _) in enumerate(about):
        first.setdefault(place, j)
    portions: list[Portion] = []
    room, last = 0, (-2, -1)
    for j in sorted(range(len(held)), key=lambda j: (held[j], first[about[j][0]])):
        place, tests, others = about[j]
        again = (held[j], place) == last
        if held[j] != last[0] or room <= (-tests if again else 0):
            portions.append([])
            room = together
        portions[-1].append(j)
        room -= others + (tests // AGAIN if again else tests)
        last = held[j], place
    return portions


def seen(client: Client) -> tuple[int, int, int]:
    """Where the samples lie that a client is tested on, how many these are, and how many others."""
    return client.x_test.data_ptr(), len(client.y_test), len(client.y_val)
