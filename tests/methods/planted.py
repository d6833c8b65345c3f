"""Federations with groups that a method must find, and runs to compare."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from coterie.core.client import Client
from coterie.core.layout import Layout
from coterie.core.loop import run
from coterie.core.rng import stream
from coterie.core.types import State
from coterie.engines.front import Front
from coterie.words.grouping import canonical
from tests.tiny import CLASSES, FEATURES, federation, network


def states(method: Any, fed: Any, rounds: int) -> list[State]:
    """The state after init and after every round."""
    return list(run(method, fed, rounds))


def groups_of(state: State) -> list[int]:
    """Who shares a model with whom, counted in order of first appearance."""
    return canonical(state.assign).tolist()


def interleaved(n: int = 12, groups: int = 3) -> tuple[Front, list[int]]:
    """A tiny federation whose groups take turns by client id, and the group of each client."""
    order = torch.arange(n).view(groups, -1).T.flatten()
    fed = federation(n, groups)
    fed.population = [fed.population[i] for i in order.tolist()]
    fed.names = [fed.names[i] for i in order.tolist()]
    fed.sizes = fed.sizes[order]
    return fed, (order * groups // n).tolist()


def subspace_client(i: int, group: int, turn: Tensor | None = None) -> Client:
    """A client whose samples lie in the half of the coordinates that belongs to its group."""
    rng = stream(0, "subspace", i)
    x = 0.05 * torch.randn(60, FEATURES, generator=rng)
    half = slice(0, FEATURES // 2) if group == 0 else slice(FEATURES // 2, FEATURES)
    x[:, half] += 2 * torch.rand(60, FEATURES // 2, generator=rng)
    if turn is not None:
        x = x @ turn
    y = torch.randint(0, CLASSES, (60,), generator=rng)
    return Client(x[:40], y[:40], x[40:], y[40:], name=str(i))


def subspaces(n: int = 8, newcomers: int = 0) -> tuple[Front, list[int]]:
    """Clients of two groups, in turns, whose data lie in two subspaces."""
    truth = [i % 2 for i in range(n + newcomers)]
    people = [subspace_client(i, g) for i, g in enumerate(truth)]
    return Front(people, Layout(network()), classes=CLASSES, seed=3), truth
