"""Training of many clients at once: their mini-batches side by side, each with its own weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from coterie.core.client import Client
from coterie.core.layout import Layout
from coterie.engines.chain import Layer
from coterie.engines.stacked.stack import Stack
from coterie.tasks.solver import Batch, Descent, Pass

AHEAD = 4_000_000  # bytes of samples that are fetched at once: little more than is used at once


class Feed:
    """The mini-batches of m clients, step by step. A shorter one is filled up and counts as it is.

    Clients who make more steps come first, so that those still at it are the first ones.
    """

    def __init__(
        self,
        clients: Sequence[Client],
        plans: Sequence[Sequence[Pass]],
        outputs: int,
        weights: Sequence[Tensor | None] = (),
    ) -> None:
        self.samples, self.outputs = [client.x for client in clients], outputs
        sizes = [[size for _, several in plan for size in several] for plan in plans]
        steps = max(map(len, sizes))
        lengths = torch.tensor([s + [0] * (steps - len(s)) for s in sizes])
        self.longest: list[int] = lengths.amax(0).tolist()
        valid = torch.arange(max(self.longest)) < lengths[..., None]
        seen = torch.cat([order for plan in plans for order, _ in plan])
        self.index = torch.zeros(valid.shape, dtype=torch.long)  # into each client's samples
        self.index.masked_scatter_(valid, seen)
        self.labels = torch.empty_like(self.index)
        for client, i, labels in zip(clients, self.index, self.labels, strict=True):
            torch.index_select(client.y, 0, i.flatten(), out=labels.view(-1))
        sample = clients[0].x[0]
        # Of each sample in its client's loss: 1/b, or 0 for filling.
        self.share = valid.to(sample.dtype) / lengths[..., None].clamp(min=1)
        for counts, i, share in zip(weights, self.index, self.share, strict=False):
            if counts is not None:  # of each client's samples, some count for more
                share.mul_(counts[i])
        m, _, b = valid.shape
        ahead = min(steps, max(1, AHEAD // (m * b * sample.nbytes)))
        self.x = sample.new_empty(m, ahead, b, *sample.shape)  # written over and over
        self.fetched = range(0)

    def __call__(self, step: int, m: int) -> Batch:
        """The step's mini-batches of the first m clients: samples, and shares at their labels."""
        if step not in self.fetched:
            self.fetched = range(step, min(step + self.x.shape[1], len(self.longest)))
            self.y = self.fetch(slice(step, self.fetched.stop), m)
        place, b = step - self.fetched.start, self.longest[step]
        return self.x[:m, place, :b], self.y[:m, place, :, :b]

    def fetch(self, steps: slice, m: int) -> Tensor:
        """The samples of some steps at once, and (m, steps, K, B) their shares."""
        index, labels, share = (t[:m, steps] for t in (self.index, self.labels, self.share))
        rows = index.flatten(1)
        places = self.x.flatten(1, 2)[:m, : rows.shape[1]]
        for samples, i, x in zip(self.samples, rows.unbind(), places.unbind(), strict=False):
            torch.index_select(samples, 0, i, out=x)  # from where they lie: no copy of all data
        _, ahead, b = index.shape
        shares = self.x.new_zeros(m, ahead, self.outputs, b)
        return shares.scatter_(2, labels[:, :, None], share[:, :, None])


def descend(
    descents: Sequence[Descent],
    layers: Sequence[Layer],
    layout: Layout,
    outputs: int,
    *,
    channels_last: bool,
) -> list[tuple[Tensor, int]]:
    """What `Descent.run_single` gives each, by one set of operations for all: they train alike."""
    solver = descents[0].solver
    plans = [list(d.passes(layout)) for d in descents]
    taken = [sum(len(sizes) for (_, sizes), _ in plan) for plan in plans]
    order = sorted(range(len(plans)), key=lambda j: -taken[j])  # stable: same order, same bits
    plans, descents = [plans[j] for j in order], [descents[j] for j in order]
    steps = [taken[j] for j in order]
    trained = torch.stack([d.start for d in descents])
    if not steps[0]:
        return undo(order, trained, steps)
    clients = [d.client for d in descents]
    seen = [[one for one, _ in plan] for plan in plans]
    outer = Feed(clients, seen, outputs, [d.weights for d in descents])
    inner = None
    if solver.meta:
        before = [[one for _, one in plan if one is not None] for plan in plans]
        inner = Feed(clients, before, outputs)

    mask = layout.mask(descents[0].train)
    slices = list(layout.slices.values())

    def stacked(rows: Tensor) -> Stack:
        return Stack(layers, slices, rows, mask, channels_last=channels_last)

    stack = stacked(trained)
    state, beside = solver.optimiser.init(stack.w), dict[str, Tensor]()
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
            wider, stack = stack, stacked(trained[:alive])
            state, beside = (narrowed(tensors, wider, stack) for tensors in (state, beside))
        solver.step(
            stack,
            state,
            beside.get("anchor", stack.w),
            outer(step, alive),
            inner(step, alive) if inner else None,
            beside.get("shift"),
        )
    trained[: stack.m] = stack.rows
    return undo(order, trained, steps)


def narrowed(tensors: Mapping[str, Tensor], before: Stack, after: Stack) -> dict[str, Tensor]:
    """Flat tensors of a stack laid out for its first clients alone; single numbers stay."""
    return {
        name: after.laid(before.unlaid(t)[: after.m]) if t.ndim else t
        for name, t in tensors.items()
    }


def undo(order: Sequence[int], rows: Tensor, steps: Sequence[int]) -> list[tuple[Tensor, int]]:
    """Each client's row and steps, back in the order in which they were asked for."""
    where = {j: place for place, j in enumerate(order)}
    return [(rows[where[j]].clone(), steps[where[j]]) for j in range(len(order))]
