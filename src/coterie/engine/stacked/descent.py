"""SGD of many clients at once: their mini-batches side by side, each with its own weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from coterie.client import Client
from coterie.engine.stacked.chain import Layer
from coterie.engine.stacked.stack import Stack
from coterie.layout import Layout
from coterie.solver import Batch, Descent

AHEAD = 8_000_000  # bytes of samples that are fetched at once


class Feed:
    """The mini-batches of m clients, step by step. A shorter one is filled up and counts as it is.

    Clients who make more steps come first, so that those still at it are the first ones.
    """

    def __init__(
        self, clients: Sequence[Client], plans: Sequence[Sequence[Tensor]], classes: int
    ) -> None:
        self.clients, self.classes, self.sample = clients, classes, clients[0].x[0]
        lengths = [[i.numel() for i in plan] for plan in plans]
        steps, widest = max(map(len, lengths)), max(map(max, filter(None, lengths)))
        index = torch.full((len(plans), steps, widest), -1)  # into each client's samples
        for j, plan in enumerate(plans):
            if plan:  # none: no epochs for this client
                table = pad_sequence(list(plan), batch_first=True, padding_value=-1)
                index[j, : len(plan), : table.shape[1]] = table
        valid = index >= 0
        length = valid.sum(2, keepdim=True)
        self.index = index.clamp(min=0)
        # Of each sample in its client's loss: 1/b, or 0 for filling.
        self.share = valid.to(self.sample.dtype) / length.clamp(min=1)
        self.longest: list[int] = length.amax(0).flatten().tolist()
        step = len(plans) * widest * self.sample.nbytes
        self.ahead, self.fetched = max(1, AHEAD // step), range(0)

    def __call__(self, step: int, m: int) -> Batch:
        """The step's mini-batches of the first m clients: samples, and shares at their labels."""
        if step not in self.fetched:
            self.fetched = range(step, min(step + self.ahead, len(self.longest)))
            self.x, self.y = self.fetch(slice(step, self.fetched.stop), m)
        place, b = step - self.fetched.start, self.longest[step]
        return self.x[:m, place, :b], self.y[:m, place, :b]

    def fetch(self, steps: slice, m: int) -> Batch:
        """Some steps at once: (m, steps, B, ...) and (m, steps, B, K)."""
        index, share = self.index[:m, steps], self.share[:m, steps]
        x = self.sample.new_empty(*index.shape, *self.sample.shape)
        labels = torch.empty_like(index)
        for j, client in enumerate(self.clients[:m]):  # from where they lie: no copy of all data
            i = index[j].flatten()
            torch.index_select(client.x, 0, i, out=x[j].flatten(0, 1))
            torch.index_select(client.y, 0, i, out=labels[j].flatten())
        shares = x.new_zeros(*index.shape, self.classes)
        return x, shares.scatter_(3, labels[..., None], share[..., None])


def descend(
    descents: Sequence[Descent], layers: Sequence[Layer], layout: Layout, *, channels_last: bool
) -> list[tuple[Tensor, int]]:
    """What `Descent.alone` gives each, by one set of operations for all; they share a solver."""
    solver = descents[0].solver
    plans = [list(d.plan(layout)) for d in descents]
    order = sorted(range(len(plans)), key=lambda j: -len(plans[j]))  # stable: same order, same bits
    plans, descents = [plans[j] for j in order], [descents[j] for j in order]
    steps = [len(plan) for plan in plans]
    trained = torch.stack([d.start for d in descents])
    if not steps[0]:
        return undo(order, trained, steps)
    clients = [d.client for d in descents]
    classes = len(layout.predict(layout.initial, clients[0].x[:1])[0])
    outer = Feed(clients, [[i for i, _ in plan] for plan in plans], classes)
    inner = None
    if solver.meta:
        before = [[i for _, i in plan if i is not None] for plan in plans]
        inner = Feed(clients, before, classes)

    mask = layout.mask(solver.train)
    slices = list(layout.slices.values())

    def stacked(rows: Tensor) -> Stack:
        return Stack(layers, slices, rows, mask, channels_last=channels_last)

    stack = stacked(trained)
    beside = {"v": torch.zeros_like(stack.w)}
    if solver.prox:
        anchors = [d.start if d.anchor is None else d.anchor for d in descents]
        beside["anchor"] = stack.laid(torch.stack(anchors))
    if any(d.shift is not None for d in descents):
        none = torch.zeros_like(descents[0].start)
        beside["shift"] = stack.laid(
            torch.stack([none if d.shift is None else d.shift for d in descents])
        )
    for step in range(steps[0]):
        alive = sum(n > step for n in steps)
        if alive < stack.m:  # the others are done
            trained[: stack.m] = stack.rows
            rows = {name: stack.unlaid(flat)[:alive] for name, flat in beside.items()}
            stack = stacked(trained[:alive])
            beside = {name: stack.laid(t) for name, t in rows.items()}
        solver.step(
            stack,
            beside["v"],
            beside.get("anchor", stack.w),
            outer(step, alive),
            inner(step, alive) if inner else None,
            beside.get("shift"),
        )
    trained[: stack.m] = stack.rows
    return undo(order, trained, steps)


def undo(order: Sequence[int], rows: Tensor, steps: Sequence[int]) -> list[tuple[Tensor, int]]:
    """Each client's row and steps, back in the order in which they were asked for."""
    where = {j: place for place, j in enumerate(order)}
    return [(rows[where[j]].clone(), steps[where[j]]) for j in range(len(order))]
