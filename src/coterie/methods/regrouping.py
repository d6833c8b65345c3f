"""Other clusters than there are: what clients say of them beforehand, and how they come about.

Who judges a model by its own samples must not have trained it, or everybody would like to be alone.
So the clients of a trial are dealt into two folds, and each compares models of the other fold.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from coterie.core.moments import without_moments
from coterie.core.rng import stream
from coterie.core.types import Federation, Replies, State
from coterie.tasks import Gains, Solver
from coterie.words.grouping import clear
from coterie.words.mixing import mix, within
from coterie.words.server import ServerOptimiser

BY_SIZE = ServerOptimiser()  # one that averages by samples


@dataclass(frozen=True)
class Verdict:
    """What clients would gain, each counted alike, as a part of its loss in [-1, 1]."""

    gain: float  # in the mean over clients
    sure: float  # how clear that is, in standard errors; below 0: how clear the loss
    least: float  # in the mean of the group that gains least
    most: float  # and of the one that gains most


def verdict(r: Replies, labels: Tensor) -> Verdict:
    """What those who answered would gain, who are of the groups `labels`."""
    gains = (r.values[:, 0, 0] / r.extra["loss"].clamp(min=1e-12)).clamp(-1, 1)
    each = [float(gains[labels == s].mean()) for s in labels.unique()]
    return Verdict(float(gains.mean()), clear(gains), min(each), max(each))


def dealt(labels: Tensor, rng: torch.Generator) -> Tensor:
    """(m,) 0 or 1: everybody's fold; each group is dealt out evenly.

    >>> dealt(torch.tensor([0, 0, 1, 1, 1]), torch.Generator()).bincount().tolist()
    [3, 2]
    """
    fold = torch.zeros_like(labels)
    order = torch.randperm(len(labels), generator=rng)
    for s in labels.unique():
        mine = order[labels[order] == s]
        fold[mine] = torch.arange(len(mine)) % 2
    return fold


def trial(
    w: Replies,
    labels: Tensor,
    tuning: Solver,
    fed: Federation,
    server: ServerOptimiser = BY_SIZE,
) -> Verdict | None:
    """Whether clients fare better with the mean of their group than with the mean of all groups.

    Both are means of what clients of the other fold trained. None if nobody answers.
    """
    groups = int(labels.max()) + 1
    fold = dealt(labels, stream(fed.seed, "folds", fed.round))
    everybody = means(w, fold, w.sizes, w.values[:1].repeat(2, 1), server)
    alone = everybody.repeat(groups, 1)  # where a group has nobody in a fold, there is no other
    group = means(w, 2 * labels + fold, w.sizes, alone, server)
    together = State.nobody(everybody, len(fed.clients)).reassign(w.clients, 1 - fold)
    other = group[2 * labels + 1 - fold][:, None]
    r = fed.ask(w.clients, Gains(tuning), together, others=other)
    return verdict(r, labels[torch.isin(w.clients, r.clients)]) if r else None


def means(
    w: Replies, labels: Tensor, sizes: Tensor, keep: Tensor, server: ServerOptimiser
) -> Tensor:
    """(k, P) the mean of each group by size, or a robust one; a group without any has `keep`."""
    if not server.robust:
        return mix(within(labels, sizes, len(keep)), w.values, keep=keep)
    nobody = State.nobody(keep, int(w.clients.max()) + 1)
    return server.merged(nobody.reassign(w.clients, labels), w).models


def divided(
    state: State,
    c: int,
    w: Replies,
    labels: Tensor,
    server: ServerOptimiser = BY_SIZE,
) -> State:
    """Cluster c as several: the largest group keeps its number, each starts from its own mean.

    Members who were not asked stay in c.
    """
    groups = int(labels.max()) + 1
    rank = labels.bincount().argsort(descending=True, stable=True).argsort()
    labels = rank[labels]
    rows = means(w, labels, w.counted(labels), state.models[c].repeat(groups, 1), server)
    models = state.models.clone()
    models[c] = rows[0]
    to = torch.where(labels == 0, c, state.k + labels - 1)
    new = replace(state, models=torch.cat([models, rows[1:]]), memory=without_moments(state.memory))
    return new.reassign(w.clients, to)


def united(state: State, c: int, d: int, row: Tensor) -> State:
    """Clusters c < d as one, c, that holds this model; those behind d move up."""
    models = state.models.clone()
    models[c] = row
    kept = torch.arange(state.k) != d
    assign = torch.where(state.assign == d, c, state.assign)
    assign = assign - (assign > d).long()
    memory = without_moments(state.memory)
    return replace(state, models=models[kept], assign=assign, memory=memory)


def mean_model(state: State, c: int, d: int, sizes: Tensor) -> Tensor:
    """(P,) the mean of two clusters' models, weighted by the samples of their clients."""
    held = state.assign[: len(sizes)]
    weights = torch.stack([sizes[held == i].sum() for i in (c, d)])
    return mix(within(torch.zeros(2, dtype=torch.long), weights, 1), state.models[[c, d]])[0]
