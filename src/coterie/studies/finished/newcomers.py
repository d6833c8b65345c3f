"""Newcomers as an experiment: some clients are held out, and join when the training is over.

They are never seen before: not in training, not in clustering. Then each is placed by the method,
with all its samples or with a few of each class, and adapts its model epoch by epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from coterie.core.client import Client
from coterie.core.errors import DataError
from coterie.core.model_kind import WORDS, kind_of
from coterie.core.rng import stream
from coterie.core.types import Method
from coterie.data.population import Population
from coterie.runs.newcomers import Joined, Row
from coterie.studies.finished.placement import Arrived, arrive, joined, welcomed
from coterie.tasks.score import Score

if TYPE_CHECKING:
    from coterie.studies.run.result import Result


def hold_out(population: Population, share: float, seed: int) -> tuple[Population, list[int]]:
    """The clients without a random share of them, and who those are: at least one on each side."""
    if population.partition.moves is not None:
        fix = "leave drift out of partition.kind, or newcomers.share; +arrivals goes with drift"
        raise DataError("newcomers cannot be held out of clients that drift", code="D043", fix=fix)
    kept, late = drawn(len(population), share, seed)
    return remaining(population, kept), late.tolist()


def drawn(n: int, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Who stays and who is held out of n clients: at least one on each side."""
    if n < 2:
        raise DataError(
            "one client alone cannot have newcomers", code="D043", fix="use more clients"
        )
    count = min(n - 1, max(1, round(share * n)))
    order = torch.randperm(n, generator=stream(seed, "held out"))
    return order[count:].sort().values, order[:count].sort().values


def remaining(population: Population, who: Tensor) -> Population:
    """The population of these clients alone; their names, groups and samples stay their own."""
    how, kept = population.partition, who.tolist()
    fewer = replace(
        how,
        train=tuple(how.train[i] for i in kept),
        test=tuple(how.test[i] for i in kept),
        validation=tuple(how.validation[i] for i in kept if how.validation),
        names=tuple(how.names[i] for i in kept),
        angle=how.angle[who],
        group=None if how.group is None else how.group[who],
        relabel=None if how.relabel is None else how.relabel[who],
        shift=None if how.shift is None else how.shift[who],
        arrives=None if how.arrives is None else how.arrives[who],
        arguments={**how.arguments, "remaining": [how.names[i] for i in kept]},
    )
    return Population(population.data, fewer, public=population.public)


def join(
    result: Result,
    newcomers: Sequence[Client],
    groups: Sequence[int] | None = None,
    *,
    epochs: int = 5,
    shots: Sequence[int] = (),
) -> Joined:
    """Let newcomers join a finished run: with all their samples after 0, 1, ... `epochs` epochs of
    adaptation, and with so many `shots` of each class before and after it.
    """
    seed = result.fed.seed
    rows: list[Row] = []
    for k in (None, *shots):
        clients = [few(c, k, seed) for c in newcomers] if k else list(newcomers)
        them = arrive(result.method, result.state, joined(result, welcomed(clients, result)))
        for e in range(epochs + 1) if k is None else sorted({0, epochs}):
            for i, row in enumerate(measured(them, result.method, e)):
                group = None if groups is None else int(groups[i])
                right = belongs(result, group, row.cluster)
                rows.append(row._replace(group=group, right=right, shots=k))
    return Joined(tuple(rows))


def measured(them: Arrived, method: Method, epochs: int) -> list[Row]:
    """A row for each newcomer after so many epochs on all its samples; no planted group is known.

    Only scores are asked for: what a newcomer makes of its model stays with it.
    """
    r = them.asked(Score, method, epochs) if epochs else them.tested(method)
    scores = dict(zip(r.clients.tolist(), r.values[:, -1, 0].tolist(), strict=True)) if r else {}
    word: Any = WORDS.get(kind_of(method, them.state))
    rows = []
    for i in them.new.tolist():
        cluster, score = int(them.state.assign[i]), scores.get(i, torch.nan)
        rows.append(
            Row(
                them.fed.names[i],
                None,
                None if cluster < 0 else word or cluster,
                None,
                None,
                int(them.fed.sizes[i]),
                epochs,
                score if score == score else None,  # no test samples, no accuracy
                them.down[i],
                them.up[i],
            )
        )
    return rows


def belongs(result: Result, group: int | None, cluster: int | str | None) -> bool | None:
    """Whether most of a cluster are of a newcomer's group; None where that has no meaning."""
    trained = result.population.at(result.state.round).group
    known = set() if trained is None else set(trained.tolist())
    likely = majority(result).get(cluster) if isinstance(cluster, int) else None
    return group == likely if group in known and likely is not None else None


def majority(result: Result) -> dict[int, int]:
    """The commonest planted group in each cluster; none where everybody shares one model."""
    group = result.population.at(result.state.round).group
    labels = result.state.assign
    found = labels[labels >= 0].unique().tolist()
    if group is None or len(found) < 2:
        return {}
    return {c: int(group[labels == c].mode().values) for c in found}


def few(client: Client, shots: int, seed: int) -> Client:
    """The client with so many samples of each class that it has, drawn at random."""
    order = torch.randperm(len(client), generator=stream(seed, "shots", shots, client.name))
    kept = [order[client.y[order] == k][:shots] for k in client.y.unique()]
    index = torch.cat(kept).sort().values
    return replace(client, x=client.x[index], y=client.y[index])
