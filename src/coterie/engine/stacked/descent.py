"""SGD of many clients at once: their mini-batches side by side, each with its own weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from coterie.client import Client
from coterie.engine.stacked.chain import Layer
from coterie.engine.stacked.stack import Stack
from coterie.layout import Layout
from coterie.solver import Batch, Descent

AHEAD = 16_000_000  # bytes of samples that are fetched at once


class Feed:
    """The mini-batches of m clients, step by step. A shorter one is filled up and counts as it is.

    Clients who make more steps come first, so that those still at it are the first ones.
    """

    def __init__(
        self, clients: Sequence[Client], plans: Sequence[Sequence[Tensor]], classes: int
    ) -> None:
        self.clients, self.classes, self.sample = clients, classes, clients[0].x[0]
        steps = max(map(len, plans))
        lengths = torch.tensor([[i.numel() for i in p] + [0] * (steps - len(p)) for p in plans])
        self.longest: list[int] = lengths.amax(0).tolist()
        valid = torch.arange(max(self.longest)) < lengths[..., None]
        self.index = torch.zeros(valid.shape, dtype=torch.long)  # into each client's samples
        self.index[valid] = torch.cat([i for plan in plans for i in plan])
        self.labels = torch.empty_like(self.index)
        for client, i, labels in zip(clients, self.index, self.labels, strict=True):
            torch.index_select(client.y, 0, i.flatten(), out=labels.view(-1))
        # Of each sample in its client's loss: 1/b, or 0 for filling.
        self.share = valid.to(self.sample.dtype) / lengths[..., None].clamp(min=1)
        step = len(plans) * max(self.longest) * self.sample.nbytes
        self.ahead, self.fetched = max(1, AHEAD // step), range(0)

    def __call__(self, step: int, m: int) -> Batch:
        """The step's mini-batches of the first m clients: samples, and shares at their labels."""
        if step not in self.fetched:
            self.fetched = range(step, min(step + self.ahead, len(self.longest)))
            self.x, self.y = self.fetch(slice(step, self.fetched.stop), m)
        place, b = step - self.fetched.start, self.longest[step]
        return self.x[:m, place, :b], self.y[:m, place, :, :b]

    def fetch(self, steps: slice, m: int) -> Batch:
        """Some steps at once: (m, steps, B, ...) and (m, steps, K, B)."""
        index, labels, share = (t[:m, steps] for t in (self.index, self.labels, self.share))
        x = self.sample.new_empty(*index.shape, *self.sample.shape)
        for client, i, samples in zip(self.clients, index, x, strict=False):
            # From where they lie: no copy of all data.
            torch.index_select(client.x, 0, i.flatten(), out=samples.flatten(0, 1))
        *before, b = index.shape
        shares = x.new_zeros(*before, self.classes, b)
        return x, shares.scatter_(2, labels[:, :, None], share[:, :, None])


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
