"""What left a client: answers as the server saw them, taken apart and sorted by kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from coterie.core.layout import Layout
from coterie.core.types import Client, Reply, Task
from coterie.tasks import SGD, Basis, Histogram, Schedule, Solver, Train, Trajectory

Kind = Literal["weights", "last layer", "gradient", "class counts", "forces", "subspace", "numbers"]
TELLS: dict[Kind, str] = {  # what each kind may tell, in words
    "weights": "samples, labels, who was trained on",
    "last layer": "labels, roughly",
    "gradient": "samples, labels",
    "class counts": "labels, exactly",
    "forces": "the set of classes, exactly",
    "subspace": "what samples look like",
    "numbers": "not attacked; a few tell fit or who is alike, a table may tell more",
}
SIGNED: dict[type[Task], Kind] = {
    Histogram: "class counts",
    Trajectory: "forces",
    Basis: "subspace",
}


@dataclass(frozen=True)
class Upload:
    """One answer of one client, and all that the server had sent for it."""

    task: Task
    round: int
    place: int  # the client's id
    client: Client  # as it was when it was asked
    models: Tensor  # what it received
    sent: Mapping[str, Tensor]
    value: Tensor
    extra: Mapping[str, Tensor]

    @property
    def what(self) -> str:
        """The task, and the columns of the model that it sends where these are not all."""
        return what_of(self.task)

    def start(self, layout: Layout) -> Tensor:
        """(P,) the model that its training started from, as the server knows it."""
        if "start" in self.sent:
            return self.sent["start"]
        if isinstance(self.task, Train):
            return self.task.start(self.client, self.models, layout)
        if self.models.shape == (layout.size,):
            return self.models
        if self.models.ndim == 2 and self.models.shape[1] == layout.size:
            return self.models[int(self.extra.get("choice", torch.tensor(0)))]
        own = self.client.memory.get("private", self.client.memory.get("model"))
        return own if own is not None and own.shape == (layout.size,) else layout.initial

    def again(self, layout: Layout, rng: torch.Generator, samples: int = 1) -> Upload:
        """What the same task sends for a client that holds its first samples alone, and steps once.

        The setting in which gradients leak most: all of them in one plain step of SGD.
        """
        few = replace(self.client, x=self.client.x[:samples], y=self.client.y[:samples])
        task: Any = self.task
        if isinstance(solver := getattr(task, "solver", None), Solver):
            task = replace(task, solver=one_step(solver))
        sent = {name: t for name, t in self.sent.items() if name != "epochs"}
        reply: Reply = task(few, self.models, sent, layout, rng)
        return replace(self, task=task, client=few, value=reply.value, extra=reply.extra)


def what_of(task: Task) -> str:
    """The name of a task, and the columns that it sends where these are not all.

    >>> what_of(Train()), what_of(Train(upload="head"))
    ('Train', 'Train (head)')
    """
    columns = getattr(task, "shared", getattr(task, "upload", "all"))
    return type(task).__name__ + (f" ({columns})" if columns not in ("all", "~none") else "")


def one_step(solver: Solver) -> Solver:
    """The recipe of one plain step on all samples, with what protects them left as it is."""
    return replace(
        solver,
        optimiser=SGD(),
        epochs=1,
        steps=1,
        batch=0,
        meta=0.0,
        prox=0.0,
        clip=0.0,
        schedule=Schedule(),
    )


@dataclass(frozen=True)
class Part:
    """One tensor of an answer."""

    name: str  # "", or the name of what was sent along with the answer
    kind: Kind
    value: Tensor
    columns: str = ""  # of weights and gradients: which columns of a model they are

    @property
    def bytes(self) -> int:
        """What it weighs on its way."""
        return self.value.nbytes


def parts_of(upload: Upload, layout: Layout, classes: int) -> list[Part]:
    """An answer taken apart."""
    named = {"": upload.value, **upload.extra}
    return [part_of(upload.task, name, t, layout, classes) for name, t in named.items()]


def part_of(task: Task, name: str, t: Tensor, layout: Layout, classes: int) -> Part:
    """One tensor with its kind: told by the task that is known, or else by its form."""
    if not name and type(task) in SIGNED:
        return Part(name, SIGNED[type(task)], t)
    for columns in wordings(task, layout):
        if t.ndim and t.is_floating_point() and t.shape[-1] == layout.form(columns).shape[0]:
            if name and t.shape[-1] > classes:
                return Part(name, "gradient", t, columns)
            if t.shape[-1] > classes:
                return Part(name, "last layer" if columns == "head" else "weights", t, columns)
    counted = t.ndim and t.shape[-1] == classes and bool((t >= 0).all() and (t == t.round()).all())
    return Part(name, "class counts" if counted else "numbers", t)


def wordings(task: Task, layout: Layout) -> Iterator[str]:
    """Columns that an answer may have, the likeliest first."""
    for name in ("shared", "upload"):
        if isinstance(said := getattr(task, name, None), str):
            yield said
    yield from ("all", "params")
    if layout.head_name is not None:
        yield from ("head", "body")
