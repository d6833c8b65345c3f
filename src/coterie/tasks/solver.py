"""The local solver: SGD as PyTorch does it, with the terms that the methods add."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from coterie.core.bounds import Count, Decay, NonNegative, Positive, Whole, dataclass
from coterie.core.client import Client
from coterie.core.flat_module import Net
from coterie.core.layout import Layout
from coterie.core.types import Reply
from coterie.tasks.steps import SteppedTask, Stepwise, logits

Batch = tuple[Tensor, Tensor]  # samples and labels
Pass = tuple[Tensor, list[int]]  # which samples in which order, and the mini-batches' sizes


def momentum_step(
    w: Tensor, g: Tensor, v: Tensor, lr: float, momentum: float, *, exact: bool = True
) -> None:
    """v <- momentum v + g; w <- w - lr v, in place: no dampening, no Nesterov.

    Without momentum v is left alone: two passes over all numbers less. One less if the product and
    the sum may be rounded together, where PyTorch's own step rounds both.

    >>> w, v = torch.tensor([1.0]), torch.tensor([0.5])
    >>> momentum_step(w, torch.tensor([1.0]), v, lr=0.1, momentum=0.5)
    >>> v.tolist(), w.tolist()
    ([1.25], [0.875])
    """
    if momentum:
        g = v.mul_(momentum).add_(g) if exact else torch.add(g, v, alpha=momentum, out=v)
    w.add_(g, alpha=-lr)


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
class Solver(SteppedTask):
    """SGD on the client's own data, starting from the model it is sent.

    What may be sent beside the model: `anchor`, the point the proximal term pulls to (default: the
    model itself); `epochs`, this client's own number of epochs; `start`, where one that continues
    shall start this time.
    """

    lr: Positive = 0.01  # learning rate
    momentum: Decay = 0.0  # PyTorch's; the buffer starts at zero in every call
    weight_decay: NonNegative = 0.0  # L2 penalty, added to the gradient
    epochs: Count = 1  # passes over the client's data
    steps: Whole = 0  # if given, this many mini-batches instead of epochs
    batch: Whole = 32  # mini-batch size, a short last one is kept; 0: all data at once
    prox: NonNegative = 0.0  # strength of the pull towards the anchor
    meta: NonNegative = 0.0  # rate of an inner step before each gradient: first-order MAML
    train: str = "all"  # the columns that learn: all, head, body, or names of layers
    upload: str = "all"  # the columns that are sent back
    private: str = "none"  # the columns that never leave the client, which remembers its own
    continues: bool = False  # start from what this client trained last, not from what it is sent
    report: tuple[Literal["loss", "steps"], ...] = ()  # small numbers sent along

    @property
    def download(self) -> str:
        """Everything the client does not hold itself."""
        return "none" if self.continues else f"~{self.private}"

    @property
    def trains(self) -> Solver:
        """Itself."""
        return self

    def answer_form(self, layout: Layout) -> Mapping[str, tuple[str, tuple[int, ...]]]:
        """The columns that are sent back, and the numbers sent along."""
        shared = self.upload if self.private == "none" else f"~{self.private}"
        row = layout.initial[layout.columns(shared)]
        dtype = str(row.dtype).removeprefix("torch.")
        extra: dict[str, tuple[str, tuple[int, ...]]] = {
            f"extra.{name}": ("float32", ()) for name in self.report
        }
        return {"value": (dtype, tuple(row.shape)), **extra}

    def stepwise(
        self,
        client: Client,
        models: Tensor,
        sent: Mapping[str, Tensor],
        layout: Layout,
        rng: torch.Generator,
    ) -> Stepwise[Reply]:
        """Train, keep what is private, and send back the columns asked for."""
        w, taken = yield from self.trained(
            client,
            sent.get("start", self.start(client, models, layout)),
            rng,
            anchor=sent.get("anchor"),
            epochs=int(sent["epochs"]) if "epochs" in sent else None,
        )
        extra: dict[str, Tensor] = {}
        if "loss" in self.report:
            extra["loss"] = F.cross_entropy((yield from logits(w, client.x)), client.y)
        if "steps" in self.report:
            extra["steps"] = torch.tensor(float(taken))
        keep = {}
        if self.private != "none":
            keep["private"] = w[layout.columns(self.private)].clone()
        if self.continues:
            keep["model"] = w
        shared = self.upload if self.private == "none" else f"~{self.private}"
        return Reply(w[layout.columns(shared)], extra, keep)

    def start(self, client: Client, received: Tensor, layout: Layout) -> Tensor:
        """(P,) the row training starts from."""
        if self.continues:
            return client.memory.get("model", layout.initial)
        return own_row(client, received, self.private, layout)

    def trained(
        self,
        client: Client,
        start: Tensor,  # (P,)
        rng: torch.Generator,
        *,
        anchor: Tensor | None = None,  # (P,) what the proximal term pulls to; default: the start
        shift: Tensor | None = None,  # (trainable,) added to every gradient
        epochs: int | None = None,
    ) -> Stepwise[tuple[Tensor, int]]:
        """The trained row (P,) and the number of steps it took."""
        w, taken = yield Descent(self, client, start, rng, anchor, shift, epochs)
        return w, taken

    def passes(
        self, client: Client, layout: Layout, rng: torch.Generator, epochs: int | None = None
    ) -> Iterator[Pass]:
        """What a client's training sees, pass by pass: drawn when it is asked for."""
        return passes(
            len(client),
            self.batch or len(client),
            rng,
            epochs=self.epochs if epochs is None else epochs,
            steps=self.steps if epochs is None else 0,  # a client's own epochs come first
            least=2 if layout.has_batch_norm else 1,
        )

    def plan(self, client: Client, layout: Layout, rng: torch.Generator) -> Iterator[Tensor]:
        """The samples of each mini-batch of one training, in the order in which they are seen."""
        return chain.from_iterable(map(batches, self.passes(client, layout, rng)))

    def step(
        self,
        net: Net,
        v: Tensor,
        anchor: Tensor,
        batch: Batch,
        inner: Batch | None = None,
        shift: Tensor | None = None,
    ) -> None:
        """One step on a mini-batch, in place: gradient, terms, momentum."""
        g = net.grad
        w = net.w[: len(g)]
        if inner is None:
            net.gradient(*batch)
        else:  # the gradient is taken where an inner step leads, and applied where we are
            here = w.clone()
            net.gradient(*inner)
            w.add_(g, alpha=-self.meta)
            net.gradient(*batch)
            w.copy_(here)
        if shift is not None:
            g.add_(shift)
        self.apply(net, v, anchor)

    def apply(self, net: Net, v: Tensor, anchor: Tensor) -> None:
        """Add the terms to the gradient that `net` holds, and take the step, in place."""
        g = net.grad
        w = net.w[: len(g)]
        if self.weight_decay:
            g.add_(w, alpha=self.weight_decay)
        if self.prox:
            pull(g, w, anchor, self.prox)
        if net.mask is not None:
            g.mul_(net.mask)  # what does not learn must not decay or be pulled either
        momentum_step(w, g, v, self.lr, self.momentum, exact=net.exact)


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

    def run_single(self, layout: Layout) -> tuple[Tensor, int]:
        """The trained row (P,) and the number of steps it took."""
        solver = self.solver
        net = layout.flat(self.start, train=solver.train)
        v = torch.zeros_like(net.grad)
        anchor = (self.start if self.anchor is None else self.anchor)[: layout.trainable]
        taken = 0
        with net.drawing(self.rng):
            x, y = self.client.x, self.client.y
            for i, before in self.plan(layout):
                inner = None if before is None else (x[before], y[before])
                solver.step(net, v, anchor, (x[i], y[i]), inner, self.shift)
                taken += 1
        return net.w.clone(), taken

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


def own_row(client: Client, received: Tensor, private: str, layout: Layout) -> Tensor:
    """(P,) what was received, and the client's own numbers elsewhere; at first the initial ones."""
    if private == "none":
        return received
    row = layout.initial.clone()
    row[layout.columns(f"~{private}")] = received
    if "private" in client.memory:
        row[layout.columns(private)] = client.memory["private"]
    return row
