"""Placing newcomers: whoever comes when the training is over is given a model, and adapts it.

They take no part in the clustering: whoever was there keeps its model, and the method's `place`
alone decides where a newcomer belongs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from coterie.core.bounds import dataclass as checked
from coterie.core.client import Client, Clients
from coterie.core.errors import DataError
from coterie.core.layout import Layout
from coterie.core.model_kind import ModelKind
from coterie.core.rng import stream
from coterie.core.types import AnswerForm, Engine, Known, Method, Replies, Reply, Sent, State
from coterie.data.dataset import Data, Scaler
from coterie.data.population_given import Given, Several, numbered, quarters, unfit
from coterie.engines.front import Front
from coterie.models.spec import ModelSpec
from coterie.runs.measure import moved
from coterie.runs.metrics import PerClient
from coterie.studies.finished.opened import OpenedPopulation
from coterie.tasks.score import Score, accuracy_and_loss
from coterie.tasks.solver import Solver
from coterie.tasks.steps import Stepwise, logits

if TYPE_CHECKING:
    from coterie.studies.run.result import Result


@dataclass(frozen=True)
class Placement:
    """Where newcomers were placed, how they do there, and what it cost."""

    names: tuple[str, ...]
    kind: ModelKind  # whose models they were given: of a cluster, the shared one, or their own
    clusters: Mapping[str, int]  # of each; empty without clusters, and who did not answer has none
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


def place(result: Result, newcomers: Given | Several, epochs: int = 5) -> Placement:
    """Give newcomers a model of a finished run, and let each train it for some local epochs.

    A newcomer is a `Client`, (x, y) or (x, y, x_test, y_test), its samples scaled like the run's;
    several come in a list, or by name.
    Nothing of the run changes: the same newcomers can come again. With `epochs = 0` none adapts.
    """
    fed = joined(result, welcomed(newcomers, result))
    them = arrive(result.method, result.state, fed)
    r = them.asked(Settle, result.method, epochs)
    names, kind = {i: fed.names[i] for i in them.new.tolist()}, result.kind
    settled = them.settled.tolist() if kind == "clustered" else []
    there = [names[i] for i in r.clients.tolist()]
    accuracy = r.values[..., 0].tolist() if there else []
    return Placement(
        names=tuple(names.values()),
        kind=kind,
        clusters={names[i]: int(them.state.assign[i]) for i in settled},
        before=PerClient({n: a[0] for n, a in zip(there, accuracy, strict=True) if a[0] == a[0]}),
        after=PerClient({n: a[1] for n, a in zip(there, accuracy, strict=True) if a[1] == a[1]}),
        bytes_down={name: them.down[i] for i, name in names.items()},
        bytes_up={name: them.up[i] for i, name in names.items()},
        layout=fed.layout,
        rows=dict(zip(there, r.extra["models"], strict=True)) if there else {},
    )


@dataclass(frozen=True)
class Arrived:
    """Newcomers at the end of a federation, each with the model that the method gave it."""

    fed: Engine
    state: State
    new: Tensor  # (m,) their ids
    down: Sequence[int]  # bytes that placing them sent to each client, by id
    up: Sequence[int]

    @property
    def settled(self) -> Tensor:
        """Those who answered and were given a model."""
        return self.new[self.state.assign[self.new] >= 0]

    def tested(self, method: Method) -> Replies:
        """How they do as the method tests anybody: after its own adaptation, if it has one."""
        fed = self.fed.at(self.state.round, "evaluate")
        return fed.ask(self.settled, method.score, self.state)

    def asked(self, kind: type[Score], method: Method, epochs: int) -> Replies:
        """How they do with the model they were given, and after so many epochs of adaptation."""
        task = kind(adaptation(method, epochs), method.score.private, method.score.train)
        return self.fed.at(self.state.round, "evaluate").ask(self.settled, task, self.state)


def arrive(method: Method, before: State, fed: Engine) -> Arrived:
    """Let a method place those at the end of `fed` whom the state does not know yet."""
    new = fed.clients[len(before.assign) :]
    longer = replace(before, assign=torch.cat([before.assign, torch.full_like(new, -1)]))
    after = method.place(longer, fed.at(before.round))
    unmoved(before, after, fed.names)
    return Arrived(fed, after, new, *moved(fed.ledger, len(fed.names)).tolist())


@checked(frozen=True)
class Settle(Score):
    """Test the model a newcomer was given and what adaptation makes of it, and show both.

    The reply is (2, 2) as that of `Score`, the rows alike where nothing adapts; `models` (2, P).
    """

    def answer_form(self, known: Known) -> AnswerForm:
        """The scores, and the two models."""
        scores, model = super().answer_form(known)["value"], known.layout.form()
        return {
            "value": scores._replace(shape=(2, 2)),
            "extra.models": model._replace(shape=(2, *model.shape)),
        }

    def stepwise(
        self, client: Client, models: Tensor, sent: Sent, layout: Layout, rng: torch.Generator
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
    usual: Solver = getattr(method, "solver", Solver())
    own = method.score.trains
    own = own if isinstance(own, Solver) else usual
    # An epoch is as many steps for everybody, also where a method adapts on all samples at once.
    return replace(own, batch=usual.batch, epochs=epochs, steps=0, meta=0.0) if epochs else None


def welcomed(newcomers: Given | Several, result: Result) -> list[Client]:
    """Newcomers as clients, each with a name of its own and samples that the run's models take."""
    clients = []
    known = set(result.fed.names)
    shape = result.population.shape
    for name, one in several(newcomers):
        if name in known:
            raise unfit(name, "another client has this name", "give it a name of its own")
        known.add(name)
        brought = quarters(one, name)
        x, x_test = brought.x, brought.x_test
        if x.shape[1:] != shape or x_test.shape[1:] != shape:
            shapes = f"samples of shape {tuple(x.shape[1:])}, the run's have {tuple(shape)}"
            raise unfit(name, shapes, "bring samples of the run's shape")
        y, y_test = numbered(brought, result.population.class_names, name)
        clients.append(Client(x, y, x_test, y_test, name))
    return clients


def several(newcomers: Given | Several) -> Iterator[tuple[str, Given]]:
    """Newcomers with their names, also one that came alone."""
    if isinstance(newcomers, Client):
        newcomers = [newcomers]
    if not len(newcomers):
        raise DataError("there are no newcomers", code="D043", fix="bring at least one")
    if isinstance(newcomers, Mapping):
        yield from ((str(name), one) for name, one in newcomers.items())
        return
    many = isinstance(newcomers[0], Client | tuple | list)
    for i, one in enumerate(newcomers if many else [tuple(newcomers)]):
        yield (one.name if isinstance(one, Client) else "") or f"newcomer-{i}", one


def joined(result: Result, new: Sequence[Client]) -> Front:
    """The federation with newcomers at its end; what the others remember, they still do."""
    old = result.population.at(result.state.round)
    names = [*result.fed.names, *(c.name for c in new)]
    fed = Front(
        Together(old, new),
        result.fed.layout,
        classes=result.fed.classes,
        seed=result.fed.seed,
        sizes=torch.cat([old.sizes, torch.tensor([float(len(c)) for c in new]).double()]),
        names=names,
        public=lambda: result.fed.public,
        columns={} if isinstance(old, OpenedPopulation) else old.columns_of(names),
    )
    fed.restore(result.fed.memories())
    return fed


class Together(Clients):
    """Clients and newcomers behind them; nobody's data are made before they are asked for."""

    def __init__(self, old: Sequence[Client], new: Sequence[Client]) -> None:
        self.old, self.new = old, new

    def __len__(self) -> int:
        return len(self.old) + len(self.new)

    def client(self, i: int) -> Client:
        """The client of a place, counted from 0."""
        return self.old[i] if i < len(self.old) else self.new[i - len(self.old)]


def unmoved(before: State, after: State, names: Sequence[str]) -> None:
    """Refuse a placement in which anybody who had a model has another one now."""
    old = before.placed
    moved = (before.of(old) != after.of(old)).any(1) | (before.assign[old] != after.assign[old])
    if moved.any():
        who = ", ".join(names[i] for i in old[moved].tolist())
        raise ValueError(f"place must leave those alone who hold a model; it moved {who}")


def arrivals(
    data: Data,
    known: ModelSpec | Data,
    scaler: Scaler,
    *,
    name: str,
    test_share: float,
    seed: int,
    taken: Collection[str] = (),
) -> Iterator[Client]:
    """Newcomers out of data: one for each owner, or one alone where the data name none.

    `known` has the shape and the classes of the run, and `scaler` its numbers. Classes are
    matched by name, and names that are `taken` are not given again. Who brings no test set is
    tested on `test_share` of its samples.
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
        called = name if owner < 0 else data.owner_name(owner)
        if owner >= 0 and (not data.owners or called in taken):
            called = f"{name}-{called}"  # a number alone is no name, and two cannot share one
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
