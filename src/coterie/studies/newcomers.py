"""Newcomers: clients that come when the training is over, are given a model, and make it theirs.

They take no part in the clustering: whoever was there keeps its model, and the method's `place`
alone decides where a newcomer belongs. As an experiment, some clients are held out and then join,
each with all its samples or with a few of each class, and adapts its model epoch by epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from coterie.core.bounds import dataclass as checked
from coterie.core.client import Client
from coterie.core.errors import DataError
from coterie.core.layout import Layout
from coterie.core.rng import stream
from coterie.core.types import AnswerForm, Method, Reply, State
from coterie.data.dataset import Data, Scaler
from coterie.data.population import Population
from coterie.data.population_given import Given, quarters, unfit
from coterie.engines.front import Front
from coterie.runs.measure import moved
from coterie.runs.metrics import PerClient
from coterie.runs.newcomers import Joined, Row
from coterie.tasks.score import Score, accuracy_and_loss
from coterie.tasks.solver import Solver
from coterie.tasks.steps import Stepwise, logits

if TYPE_CHECKING:
    from coterie.studies.result import Result


@dataclass(frozen=True)
class Placement:
    """Where newcomers were placed, how they do there, and what it cost."""

    names: tuple[str, ...]
    clusters: Mapping[str, int]  # the model each was given; who did not answer has none
    before: PerClient  # accuracy with the model as it was given, of those with test samples
    after: PerClient  # and once adapted
    bytes_down: Mapping[str, int]  # what placing it, without the adaptation, sent to each
    bytes_up: Mapping[str, int]
    layout: Layout = field(repr=False)
    rows: Mapping[str, Tensor] = field(repr=False)  # (2, P) each: as given, and adapted

    def model(self, client: str | int, adapted: bool = True) -> nn.Module:
        """A newcomer's model, as a plain module in evaluation mode."""
        name = self.names[client] if isinstance(client, int) else client
        return self.layout.module(self.rows[name][int(adapted)])


def place(result: Result, newcomers: Given | Sequence[Given], epochs: int = 5) -> Placement:
    """Give newcomers a model of a finished run, and let each train it for some local epochs.

    A newcomer is a `Client`, (x, y) or (x, y, x_test, y_test), its samples scaled like the run's.
    Nothing of the run changes: the same newcomers can come again. With `epochs = 0` none adapts.
    """
    adapt = adaptation(result.method, epochs)
    before = result.state
    fed = joined(result, welcomed(newcomers, result))
    new = fed.clients[len(before.assign) :]
    longer = replace(before, assign=torch.cat([before.assign, torch.full_like(new, -1)]))
    after = result.method.place(longer, fed.at(before.round))
    unmoved(before, after, fed.names)
    down, up = moved(fed.ledger, len(fed.names)).tolist()
    settled = new[after.assign[new] >= 0]
    score = result.method.score
    task = Settle(adapt, score.private, score.train)
    r = fed.at(after.round, "evaluate").ask(settled, task, after)
    names = {i: fed.names[i] for i in new.tolist()}
    there = [names[i] for i in r.clients.tolist()]
    accuracy = r.values[..., 0].tolist() if there else []
    return Placement(
        names=tuple(names.values()),
        clusters={names[i]: int(after.assign[i]) for i in settled.tolist()},
        before=PerClient({n: a[0] for n, a in zip(there, accuracy, strict=True) if a[0] == a[0]}),
        after=PerClient({n: a[1] for n, a in zip(there, accuracy, strict=True) if a[1] == a[1]}),
        bytes_down={name: down[i] for i, name in names.items()},
        bytes_up={name: up[i] for i, name in names.items()},
        layout=fed.layout,
        rows=dict(zip(there, r.extra["models"], strict=True)) if there else {},
    )


@checked(frozen=True)
class Settle(Score):
    """Test the model a newcomer was given and what adaptation makes of it, and show both.

    The reply is (2, 2) as that of `Score`, the rows alike where nothing adapts; `models` (2, P).
    """

    def answer_form(self, layout: Layout) -> AnswerForm:
        """The scores, and the two models."""
        dtype, (size,) = layout.form()
        return {"value": ("float64", (2, 2)), "extra.models": (dtype, (2, size))}

    def stepwise(
        self,
        client: Client,
        models: Tensor,
        sent: Mapping[str, Tensor],
        layout: Layout,
        rng: torch.Generator,
    ) -> Stepwise[Reply]:
        """Test, train, test."""
        given, *_ = rows = yield from self.rows(client, models, layout, rng)
        shown = torch.stack([given, rows[-1]])
        scores = []
        for row in shown:
            said = yield from logits(row, client.x_test)
            scores.append(accuracy_and_loss(said, client.y_test))
        return Reply(torch.stack(scores), {"models": shown})


def adaptation(method: Method, epochs: int) -> Solver | None:
    """How a newcomer trains: as the method adapts anybody, or else as its clients train."""
    own = method.score.trains
    if not isinstance(own, Solver):
        own = getattr(method, "solver", Solver())
    return replace(own, epochs=epochs, steps=0, meta=0.0) if epochs else None


def welcomed(newcomers: Given | Sequence[Given], result: Result) -> list[Client]:
    """Newcomers as clients, each with a name of its own and samples that the run's models take."""
    clients = []
    known = set(result.fed.names)
    shape, classes = result.population.shape, result.population.classes
    for i, one in enumerate(several(newcomers)):
        name = (one.name if isinstance(one, Client) else "") or f"newcomer-{i}"
        if name in known:
            raise unfit(name, "another client has this name", "give it a name of its own")
        known.add(name)
        x, y, x_test, y_test = quarters(one, name)
        if x.shape[1:] != shape or x_test.shape[1:] != shape:
            shapes = f"samples of shape {tuple(x.shape[1:])}, the run's have {tuple(shape)}"
            raise unfit(name, shapes, "bring samples of the run's shape")
        highest = int(torch.cat([y, y_test]).max())
        if highest >= classes:
            raise unfit(name, f"label {highest} with {classes} classes", "number them as the run")
        clients.append(Client(x, y, x_test, y_test, name))
    return clients


def several(newcomers: Given | Sequence[Given]) -> Sequence[Given]:
    """A sequence of newcomers, also of one that came alone."""
    if isinstance(newcomers, Client):
        return [newcomers]
    if not len(newcomers):
        raise DataError("there are no newcomers", code="D043", fix="bring at least one")
    many = isinstance(newcomers[0], Client | tuple | list)
    return newcomers if many else [tuple(newcomers)]


def joined(result: Result, new: Sequence[Client]) -> Front:
    """The federation with newcomers at its end; what the others remember, they still do."""
    old = result.population.at(result.state.round)
    fed = Front(
        [*old, *new],
        result.fed.layout,
        classes=result.fed.classes,
        seed=result.fed.seed,
        names=[*result.fed.names, *(c.name for c in new)],
        public=result.fed.public,
    )
    fed.restore(result.fed.memories())
    return fed


def unmoved(before: State, after: State, names: Sequence[str]) -> None:
    """Refuse a placement in which anybody who had a model has another one now."""
    old = before.placed
    moved = (before.of(old) != after.of(old)).any(1) | (before.assign[old] != after.assign[old])
    if moved.any():
        who = ", ".join(names[i] for i in old[moved].tolist())
        raise ValueError(f"place must leave those alone who hold a model; it moved {who}")


def arrivals(
    data: Data, known: Data, scaler: Scaler, *, name: str, test_share: float, seed: int
) -> Iterator[Client]:
    """Newcomers out of data: one for each owner, or one alone where the data name none.

    `known` is what the run was made of, as stored, and `scaler` has its numbers. Classes are
    matched by name. Who brings no test set is tested on `test_share` of its samples.
    """
    if data.shape != known.shape:
        raise DataError(
            f"the samples of {data.name} have shape {data.shape}, the run's {known.shape}",
            code="D018",
            where=data.name,
            fix="bring samples of the run's shape",
        )
    place = positions(data, known.classes)
    test = None if data.x_test is None or data.y_test is None else (data.x_test, data.y_test)
    owners = [-1] if data.owner is None else data.owner.unique().tolist()
    for owner in owners:
        called = name if owner < 0 else f"{name}-{owner}"
        mine = slice(None) if data.owner is None else data.owner == owner
        x, y = scaler(data.x[mine]), place[data.y[mine]]
        if test and (data.owner is None or data.owner_test is not None):
            tested = slice(None) if data.owner_test is None else data.owner_test == owner
            yield Client(x, y, scaler(test[0][tested]), place[test[1][tested]], called)
            continue
        held = min(round(test_share * len(y)), len(y) - 1)  # one sample at least is trained on
        order = torch.randperm(len(y), generator=stream(seed, "newcomer", called))
        out, kept = order[:held].sort().values, order[held:].sort().values
        yield Client(x[kept], y[kept], x[out], y[out], called)


def positions(data: Data, classes: Sequence[str]) -> Tensor:
    """(K,) the run's label of each class of the data, by name; -1 for one that nobody holds.

    Where the run has words and the data numbers, a number is a position in the run's classes.
    """
    numbers = all(c.isdigit() for c in data.classes) and not any(c.isdigit() for c in classes)
    at = {str(i) if numbers else c: i for i, c in enumerate(classes)}
    held = torch.cat([data.y] if data.y_test is None else [data.y, data.y_test]).unique()
    for k in held.tolist():
        if data.classes[k] not in at:
            raise DataError(
                f"the run has no class {data.classes[k]!r}",
                code="D012",
                where=data.name,
                why=f"its {len(classes)} classes are {', '.join(classes[:12])}"
                f"{', ...' * (len(classes) > 12)}",
                fix="leave the samples of this class out, or name the classes as the run does",
            )
    return torch.tensor([at.get(c, -1) for c in data.classes])


def hold_out(population: Population, share: float, seed: int) -> tuple[Population, list[int]]:
    """The clients without a random share of them, and who those are: at least one on each side."""
    n = len(population)
    if n < 2:
        raise DataError(
            "one client alone cannot have newcomers", code="D043", fix="use more clients"
        )
    if population.partition.moves is not None:
        fix = "leave drift out of partition.kind, or newcomers.share"
        raise DataError("newcomers cannot be held out of clients that drift", code="D043", fix=fix)
    count = min(n - 1, max(1, round(share * n)))
    order = torch.randperm(n, generator=stream(seed, "held out"))
    return remaining(population, order[count:].sort().values), order[:count].sort().values.tolist()


def remaining(population: Population, who: Tensor) -> Population:
    """The population of these clients alone; their names, groups and samples stay their own."""
    how, kept = population.partition, who.tolist()
    fewer = replace(
        how,
        train=tuple(how.train[i] for i in kept),
        test=tuple(how.test[i] for i in kept),
        names=tuple(how.names[i] for i in kept),
        angle=how.angle[who],
        group=None if how.group is None else how.group[who],
        relabel=None if how.relabel is None else how.relabel[who],
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
        them = [few(c, k, seed) for c in newcomers] if k else list(newcomers)
        for e in range(epochs + 1) if k is None else sorted({0, epochs}):
            rows += measured(result, them, groups, k, e)
    return Joined(tuple(rows))


def measured(
    result: Result,
    newcomers: Sequence[Client],
    groups: Sequence[int] | None,
    shots: int | None,
    epochs: int,
) -> list[Row]:
    """A row for each newcomer."""
    placed = place(result, newcomers, epochs)
    kind = majority(result)
    trained = result.population.at(result.state.round).group
    there = set() if trained is None else set(trained.tolist())
    rows = []
    for i, client in enumerate(newcomers):
        name, group = client.name, None if groups is None else int(groups[i])
        cluster = placed.clusters.get(name)
        likely = None if cluster is None else kind.get(cluster)
        right = group == likely if group in there and likely is not None else None
        accuracy = placed.after.values.get(name)
        down, up = placed.bytes_down[name], placed.bytes_up[name]
        rows.append(
            Row(name, group, cluster, right, shots, len(client), epochs, accuracy, down, up)
        )
    return rows


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
