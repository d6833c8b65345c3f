"""A client's data in parts: what is made of some can be checked by the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from coterie.core.answers import Form
from coterie.core.types import Client, Layout
from coterie.tasks.solver import Solver, trained
from coterie.tasks.steps import Stepwise


def halves(client: Client) -> tuple[Client, Client]:
    """A client's even and its odd samples; a single sample is in both."""
    if len(client) < 2:
        return client, client
    x, y = client.x, client.y
    even, odd = (replace(client, x=x[i::2].contiguous(), y=y[i::2].contiguous()) for i in (0, 1))
    return even, odd


def folds(client: Client, n: int) -> Iterator[tuple[Client, Client]]:
    """A client's data in n parts, or as many as there are samples: all but one, and that one."""
    part = torch.arange(len(client)) % n
    for i in range(min(n, len(client))):
        yield of(client, part != i), of(client, part == i)


def of(client: Client, some: Tensor) -> Client:
    """A client that has only these of its samples."""
    return replace(client, x=client.x[some], y=client.y[some])


def as_long(solver: Solver, client: Client) -> Solver:
    """The solver that trains on a half of a client's data for as many steps as on all of them."""
    return replace(solver, steps=solver.most_steps(len(client)))


def in_halves(form: Form) -> Form:
    """The form of an answer that is given for each half."""
    return form._replace(shape=(2, *form.shape))


def trained_halves(
    solver: Solver, client: Client, row: Tensor, upload: str, layout: Layout, rng: torch.Generator
) -> Stepwise[Tensor]:
    """(2, columns): these columns of what the even and the odd samples make of a model.

    Each trains for as many steps as all samples would. How far apart the two are says how far apart
    alike is. A half whose training leaves the finite numbers says nothing: the model as it was.
    """
    rows, columns = [], layout.columns(upload)
    for part in halves(client):
        w, _ = yield from trained(as_long(solver, client), part, row, rng)
        rows.append((w if w.isfinite().all() else row)[columns])
    return torch.stack(rows)
