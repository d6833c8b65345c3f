"""Local training: its recipe, and the piece of work that follows it on one client's data."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from math import ceil

import torch
from torch import Tensor

from coterie.core.bounds import Count, NonNegative, Positive, Whole, dataclass
from coterie.core.flat_module import FlatModule, Net
from coterie.core.types import Client, Layout, Release, Sendable
from coterie.tasks.optimiser import SGD, Optimiser
from coterie.tasks.private import Privacy, drawn, private_gradient, rate_of
from coterie.tasks.schedule import Schedule
from coterie.tasks.steps import Stepwise

Batch = tuple[Tensor, ...]  # samples and labels, and how much each counts if not all do alike
Pass = tuple[Tensor, list[int]]  # which samples in which order, and the mini-batches' sizes


def pull(g: Tensor, w: Tensor, anchor: Tensor, strength: float) -> None:
    """g <- g + strength (w - anchor), in place: the gradient of (strength/2) |w - anchor|^2.

    >>> g = torch.tensor([0.0])
    >>> pull(g, torch.tensor([3.0]), torch.tensor([1.0]), strength=0.5)
    >>> g.tolist()
    [1.0]
    """
    g.add_(w - anchor, alpha=strength)


def passes(
    n: int, size: int, rng: torch.Generator, *, epochs: int = 1, steps: int = 0, least: int = 1
) -> Iterator[Pass]:
    """One pass over the samples after another, reshuffled every time; short batches are kept.

    With `steps`, goes round until there were that many mini-batches. `least` is the smallest one a
    network can train on (2 with batch normalisation): a shorter last one joins the one before it.

    >>> [sizes for _, sizes in passes(5, 2, torch.Generator(), epochs=1)]
    [[2, 2, 1]]
    >>> [sizes for _, sizes in passes(5, 2, torch.Generator(), steps=4)]
    [[2, 2, 1], [2]]
    >>> [sizes for _, sizes in passes(5, 2, torch.Generator(), least=2)]
    [[2, 3]]
    """
    whole, rest = divmod(n, max(size, 1))
    sizes = [size] * whole + [rest] * (rest > 0 or not n)  # of nothing, one that is empty
    if len(sizes) > 1 and sizes[-1] < least:
        sizes[-2:] = [sum(sizes[-2:])]
    given, epoch = 0, 0
    while (given < steps) if steps else (epoch < epochs):
        order = torch.randperm(n, generator=rng)
        kept = sizes[: steps - given] if steps else sizes
        yield order[: sum(kept)], kept
        given, epoch = given + len(kept), epoch + 1


def batches(one: Pass) -> Sequence[Tensor]:
    """The samples of each mini-batch of a pass."""
    order, sizes = one
    found: Sequence[Tensor] = order.split(sizes)
    return found


@dataclass(frozen=True)
class Solver(Sendable):
    """The recipe of local training: how long, on what mini-batches, with which terms and optimiser.

    It is plain data. What is trained with it, and what becomes of the result, is a task's matter.
    """

    lr: Positive = 0.01  # learning rate
    optimiser: Optimiser = SGD()  # how gradients move the weights
    epochs: Count = 1  # passes over the client's data
    steps: Whole = 0  # if given, this many mini-batches instead of epochs
    batch: Whole = 32  # mini-batch size, a short last one is kept; 0: all data at once
    prox: NonNegative = 0.0  # strength of the pull towards the anchor
    meta: NonNegative = 0.0  # rate of an inner step before each gradient: first-order MAML
    clip: NonNegative = 0.0  # the norm to which a longer gradient is shortened; 0: never
    schedule: Schedule = Schedule()  # of the learning rate, over the rounds
    privacy: Privacy = Privacy()  # noise that hides a single sample; without: none

    @property
    def unprotected(self) -> Solver:
        """The same recipe without noise, for a training of which nothing is ever sent."""
        return dataclasses.replace(self, privacy=Privacy()) if self.privacy.on else self

    def at(self, round: int, rounds: int) -> Solver:
        """The recipe of one round, of so many that are planned: the schedule as a plain rate.

        >>> Solver(lr=0.5, schedule=Schedule("exponential", decay=0.5)).at(2, 9) == Solver(lr=0.125)
        True
        """
        if not self.schedule.varies:
            return self
        rate = self.lr * self.schedule(round, rounds)
        return dataclasses.replace(self, lr=rate, schedule=Schedule())

    def passes(
        self, client: Client, layout: Layout, rng: torch.Generator, epochs: int | None = None
    ) -> Iterator[Pass]:
        """What a client's training sees, pass by pass: drawn when it is asked for.

        Under noise, each sample is drawn by itself for every step, as its account has it.
        """
        if self.privacy.on:
            n = len(client)
            picks = list(drawn(n, rate_of(self.batch, n), self.most_steps(n, epochs), rng))
            return iter([(torch.cat(picks), [len(pick) for pick in picks])])
        return passes(
            len(client),
            self.batch or len(client),
            rng,
            epochs=self.epochs if epochs is None else epochs,
            steps=self.steps if epochs is None else 0,  # a client's own epochs come first
            least=2 if layout.has_batch_norm else 1,
        )

    def most_steps(self, samples: int, epochs: int | None = None) -> int:
        """More steps than this no client with so many samples takes.

        >>> Solver(epochs=2, batch=32).most_steps(100), Solver(steps=5).most_steps(100)
        (8, 5)
        """
        if self.steps and epochs is None:
            return self.steps
        whole = self.epochs if epochs is None else epochs
        return whole * ceil(max(samples, 1) / (self.batch or max(samples, 1)))

    def release(self, samples: int, epochs: int | None = None) -> Release:
        """What one training of a client of so many samples spends of its privacy.

        >>> Solver(epochs=2, batch=32, privacy=Privacy(noise=1.5)).release(100)
        Release(rate=0.32, noise=1.5, times=8)
        """
        rate = rate_of(self.batch, samples)
        return Release(rate, self.privacy.noise, self.most_steps(samples, epochs))

    def seen(self, sizes: Tensor, epochs: Tensor | None = None) -> Tensor:
        """(m,) how many samples a training of clients of these sizes sees, one after another.

        >>> Solver(steps=5, batch=4).seen(torch.tensor([6, 100])).tolist()  # 4 2, 4 2, 4
        [16, 20]
        >>> Solver(epochs=2, meta=0.1).seen(torch.tensor([6])).tolist()  # twice: the inner steps
        [24]
        """
        n = sizes.long()
        each = n * (self.epochs if epochs is None else epochs.long())
        if self.steps and epochs is None:
            batch = torch.full_like(n, self.batch) if self.batch else n.clamp(min=1)
            a_pass = ((n + batch - 1) // batch).clamp(min=1)
            each = self.steps // a_pass * n + torch.minimum(self.steps % a_pass * batch, n)
        return each * (2 if self.meta else 1)

    def plan(self, client: Client, layout: Layout, rng: torch.Generator) -> Iterator[Tensor]:
        """The samples of each mini-batch of one training, in the order in which they are seen."""
        return chain.from_iterable(map(batches, self.passes(client, layout, rng)))

    def step(
        self,
        net: Net,
        state: Mapping[str, Tensor],
        anchor: Tensor,
        batch: Batch,
        inner: Batch | None = None,
        shift: Tensor | None = None,
    ) -> None:
        """One step on a mini-batch, in place: gradient, terms, optimiser."""
        g = net.grad
        w = net.w[: len(g)]
        if inner is None:
            net.gradient(*batch)
        else:  # the gradient is taken where an inner step leads, and applied where we are
            here = w.clone()
            net.gradient(*inner)
            if net.mask is not None:
                g.mul_(net.mask)  # what does not learn stays where it is in the inner step, too
            w.add_(g, alpha=-self.meta)
            net.gradient(*batch)
            w.copy_(here)
        if shift is not None:
            g.add_(shift)
        self.apply(net, state, anchor)

    def apply(self, net: Net, state: Mapping[str, Tensor], anchor: Tensor) -> None:
        """Add the terms to the gradient that `net` holds, and take the step, in place."""
        g = net.grad
        w = net.w[: len(g)]
        if not self.clip:
            self.optimiser.penalise(w, g)
        if self.prox:
            pull(g, w, anchor, self.prox)
        if net.mask is not None:
            g.mul_(net.mask)  # what does not learn must not decay or be pulled either
        if self.clip:  # as in PyTorch: of the loss with its terms, before the weights decay
            net.clip(self.clip)
            self.optimiser.penalise(w, g)
            if net.mask is not None:
                g.mul_(net.mask)
        here = w.clone() if net.mask is not None and not stays(self.optimiser) else None
        self.optimiser.step(w, g, state, self.lr, exact=net.exact)
        if here is not None and net.mask is not None:
            w.copy_(torch.where(net.mask > 0, w, here))


def stays(optimiser: Optimiser) -> bool:
    """Whether an optimiser leaves alone what has no gradient; one that does not say may not."""
    return bool(getattr(optimiser, "stays", False))


def equal_steps(solver: Solver, epochs: int, sizes: Tensor) -> Solver:
    """The solver with as many steps for everybody as the median client makes in these epochs.

    With equal epochs, clients of unequal sizes differ by how long they trained before they differ
    by what they hold.
    """
    batch = solver.batch or int(sizes.max())
    return dataclasses.replace(solver, steps=epochs * ceil(float(sizes.median()) / batch))


@dataclasses.dataclass(frozen=True)
class Descent:
    """One training of one client, from a row: the piece of work that takes nearly all the time."""

    solver: Solver
    client: Client
    start: Tensor  # (P,)
    rng: torch.Generator
    anchor: Tensor | None = None  # (P,) what the proximal term pulls to; None: the start
    shift: Tensor | None = None  # (trainable,) added to every gradient
    epochs: int | None = None  # this client's own
    train: str = "all"  # the columns that learn: all, head, body, or names of layers
    weights: Tensor | None = None  # (n_i,) how much each sample counts; None: each as much

    def run_single(self, layout: Layout) -> tuple[Tensor, int]:
        """The trained row (P,) and the number of steps it took."""
        solver = self.solver
        net = layout.flat(self.start, train=self.train)
        state = solver.optimiser.init(net.grad)
        anchor = (self.start if self.anchor is None else self.anchor)[: layout.trainable]
        taken = 0
        with net.drawing(self.rng):
            x, y = self.client.x, self.client.y
            for i, before in self.plan(layout):
                if solver.privacy.on:
                    self.blur(net, layout, i)
                    solver.apply(net, state, anchor)
                    taken += 1
                    continue
                inner = None if before is None else (x[before], y[before])
                counts = () if self.weights is None else (self.weights[i],)
                solver.step(net, state, anchor, (x[i], y[i], *counts), inner, self.shift)
                taken += 1
        return net.w.clone(), taken

    def blur(self, net: FlatModule, layout: Layout, i: Tensor) -> None:
        """Put the gradient on these samples into `net`, under noise."""
        if self.shift is not None or self.weights is not None or self.solver.meta:
            raise ValueError("noise does not cover shifted, weighted or inner gradients")
        x, y, n = self.client.x[i], self.client.y[i], len(self.client)
        expected = max(1.0, rate_of(self.solver.batch, n) * n)
        private_gradient(net, layout, x, y, expected, self.solver.privacy, self.rng)

    def passes(self, layout: Layout) -> Iterator[tuple[Pass, Pass | None]]:
        """What is seen, pass by pass, and with MAML what the inner steps see."""

        def drawn() -> Iterator[Pass]:
            return self.solver.passes(self.client, layout, self.rng, self.epochs)

        inner: Iterator[Pass | None] = drawn() if self.solver.meta else repeat(None)
        return zip(drawn(), inner, strict=False)

    def plan(self, layout: Layout) -> Iterator[tuple[Tensor, Tensor | None]]:
        """The samples of each step, and with MAML those of its inner step."""
        for outer, inner in self.passes(layout):
            before: Iterable[Tensor | None] = repeat(None) if inner is None else batches(inner)
            yield from zip(batches(outer), before, strict=False)


def trained(
    solver: Solver,
    client: Client,
    start: Tensor,  # (P,)
    rng: torch.Generator,
    *,
    train: str = "all",  # the columns that learn
    anchor: Tensor | None = None,  # (P,) what the proximal term pulls to; default: the start
    shift: Tensor | None = None,  # (trainable,) added to every gradient
    epochs: int | None = None,  # this client's own
    weights: Tensor | None = None,  # (n_i,) how much each sample counts
) -> Stepwise[tuple[Tensor, int]]:
    """The trained row (P,) and the number of steps it took, as a step of a task."""
    w, taken = yield Descent(solver, client, start, rng, anchor, shift, epochs, train, weights)
    return w, taken
