"""The stacked backend: clients side by side in one set of operations, in this process."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from coterie.core.client import Client
from coterie.core.layout import Layout
from coterie.core.types import Reply
from coterie.engines.question import Portion, PortionedBackend, Question
from coterie.engines.serial import answer_alone, blaming
from coterie.engines.stacked import shape
from coterie.engines.stacked.chain import Layer, NotStackableError, chain
from coterie.engines.stacked.descent import descend
from coterie.engines.stacked.stack import Stack
from coterie.tasks.solver import Descent
from coterie.tasks.steps import Forward, SteppedTask, Stepwise, Work

Together = Callable[[Any], list[Any]]
TOGETHER = 2048  # test samples that are read in one go


class Stacked(PortionedBackend):
    """Clients train side by side, in one set of operations. Within rounding it is `Serial`.

    A network that is no straight line of layers it knows is trained one client after another, as
    `Serial` does it, and `notes` says so.
    """

    def __init__(self, layout: Layout, samples: Tensor, *, workers: int = 1) -> None:
        """`samples` are a few of any client, on which the layers are tried out."""
        self.layout = layout
        self.workers = workers  # how many of it there are, so that each gets its share of a cohort
        self.layers: list[Layer] | None = None
        try:
            layers = chain(layout)
            self.outputs = agree(layers, layout, samples)
            self.layers = layers
        except NotStackableError as why:
            self.notes = (f"clients train one after another, not stacked: {why}",)

    def portions(self, question: Question) -> list[Portion]:
        """As many stacks as there are workers, or a multiple; for tests, the clients of a model."""
        solver, m = question.task.trains, len(question.cohort)
        if not isinstance(question.task, SteppedTask) or (solver and self.layers is None):
            return [[j] for j in range(m)]
        if solver is None:
            return readings(question)
        widest = self.width(question, solver.batch) if m else 1
        order = question.sizes.argsort(descending=True, stable=True).tolist()
        rounds = -(-m // (widest * self.workers))
        count = min(m, rounds * self.workers)
        return [sorted(order[i::count]) for i in range(count)]

    def width(self, question: Question, batch: int) -> int:
        """How many clients stand side by side."""
        sample = tuple(question.clients[0].x.shape[1:])
        largest = int(batch or question.sizes.max())
        return shape.width(self.layers or [], sample, largest, self.layout.size)

    def answer(self, question: Question, places: Sequence[int]) -> list[Reply]:
        """All of them at once: their tasks go on together, from one piece of work to the next."""
        task = question.task
        if not isinstance(task, SteppedTask):
            return [answer_alone(question, j) for j in places]
        clients = [question.client(j) for j in places]
        tasks = [
            task.stepwise(client, *question.payload(j), self.layout, question.stream(j))
            for client, j in zip(clients, places, strict=True)
        ]
        return self.advance(tasks, clients, question)

    def advance(
        self, tasks: Sequence[Stepwise[Reply]], clients: Sequence[Client], question: Question
    ) -> list[Reply]:
        """Every client's task to its end, all in step."""
        replies: dict[int, Reply] = {}
        results: dict[int, Any] = dict.fromkeys(range(len(tasks)))
        while results:
            wanted: dict[int, Work] = {}
            for c, result in results.items():
                with blaming(clients[c], question):
                    try:
                        wanted[c] = tasks[c].send(result)
                    except StopIteration as end:
                        replies[c] = end.value
            results = self.work(wanted, clients, question)
        return [replies[c] for c in range(len(tasks))]

    def work(
        self, wanted: dict[int, Work], clients: Sequence[Client], question: Question
    ) -> dict[int, Any]:
        """What each task wants done: trainings stacked, readings of one model in one go."""
        done: dict[int, Any] = {}
        for group, together in self.groups(wanted):
            works = [wanted[c] for c in group]
            drawn = [w.rng.get_state() for w in works if isinstance(w, Descent)]
            try:
                done.update(zip(group, together(works), strict=True))
            except (RuntimeError, ValueError, IndexError):  # whose data is it? ask one by one
                for work, draws in zip(works, drawn, strict=False):
                    cast(Descent, work).rng.set_state(draws)
                for c in group:
                    with blaming(clients[c], question):
                        done[c] = wanted[c].run_single(self.layout)
        return {c: done[c] for c in wanted}

    def groups(self, wanted: dict[int, Work]) -> list[tuple[list[int], Together]]:
        """Who can be served together, and how."""
        found: dict[tuple[object, ...], list[int]] = {}
        for c, work in wanted.items():
            key: tuple[object, ...] = (None, c)
            if isinstance(work, Descent) and self.layers is not None:
                key = Descent, work.solver, work.train, work.client.x.shape[1:]
            elif isinstance(work, Forward):
                key = Forward, work.row.data_ptr(), work.x.shape[1:]
            found.setdefault(key, []).append(c)
        how: dict[object, Together] = {Descent: self.train, Forward: self.read}
        return [(group, how.get(kind, self.each)) for (kind, *_), group in found.items()]

    def each(self, works: Sequence[Work]) -> list[Any]:
        """One after another, as the reference does it."""
        return [work.run_single(self.layout) for work in works]

    def train(self, descents: Sequence[Descent]) -> list[tuple[Tensor, int]]:
        """A stack at a time, no wider than its largest mini-batch allows."""
        assert self.layers is not None
        sample = tuple(descents[0].client.x.shape[1:])
        batch = descents[0].solver.batch or max(len(d.client) for d in descents)
        alone = shape.goes_alone(self.layers, sample, batch)
        wide = shape.width(self.layers, sample, batch, self.layout.size)
        return [
            result
            for i in range(0, len(descents), wide)
            for result in descend(
                descents[i : i + wide],
                self.layers,
                self.layout,
                self.outputs,
                channels_last=alone,
            )
        ]

    def read(self, forwards: Sequence[Forward]) -> list[Tensor]:
        """Every sample once, though several clients may be tested on it."""
        sets = {f.x.data_ptr(): f.x for f in forwards}
        x = torch.cat(list(sets.values())) if len(sets) > 1 else forwards[0].x
        if x.ndim == 4:
            x = x.to(memory_format=torch.channels_last)
        logits = self.layout.predict(forwards[0].row, x)
        parts = dict(zip(sets, logits.split([len(s) for s in sets.values()]), strict=True))
        return [parts[f.x.data_ptr()] for f in forwards]


def readings(question: Question) -> list[Portion]:
    """Clients who hold one model together, a number of test samples at a time."""
    held = question.state.assign[question.cohort]
    portions: list[Portion] = []
    room, last = 0, -2
    for j in held.argsort(stable=True).tolist():
        i, model = int(question.cohort[j]), int(held[j])
        if model != last or room <= 0:
            portions.append([])
            room, last = TOGETHER, model
        portions[-1].append(j)
        room -= len(question.clients[i].y_test)
    return portions


def agree(layers: Sequence[Layer], layout: Layout, x: Tensor) -> int:
    """One gradient both ways: a network that only looks like its layers is found out here.

    Of one that is what it looks like, the number of its outputs.
    """
    rng = torch.Generator().manual_seed(0)
    rows = layout.initial + 0.01 * torch.randn(2, layout.size, generator=rng).to(layout.dtype)
    plain = copy.deepcopy(layout)
    outputs = plain.predict(rows[0], x).shape[1]
    y = torch.randint(outputs, (len(x),), generator=rng)
    share = x.new_zeros(outputs, len(x)).scatter_(0, y[None], 1 / len(x))
    expected = []
    for row in rows:
        net = plain.flat(row)
        with net.drawing(rng):
            net.gradient(x, y)
        expected.append(net.grad.clone())
    slices = list(layout.slices.values())
    for chosen, last in ((rows, False), (rows[:1], True)):
        stack = Stack(layers, slices, chosen, channels_last=last)
        m = len(chosen)
        try:
            stack.gradient(torch.stack([x] * m), share.expand(m, *share.shape))
        except RuntimeError as cause:
            raise NotStackableError(f"its layers do not fit together: {cause}") from cause
        want = torch.stack(expected[:m])
        tolerance = 1e-4 * want.abs().max() if layout.dtype == torch.float32 else 1e-9
        if not torch.allclose(stack.unlaid(stack.grad), want, rtol=1e-4, atol=float(tolerance)):
            raise NotStackableError("its gradient is not that of its layers")
    return outputs
