"""A population: data and a partition, seen as a sequence of clients."""

from __future__ import annotations

import hashlib
import html
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from coterie.core import checks
from coterie.core.client import NONE, Client, Clients
from coterie.core.units import count
from coterie.data.course import Course
from coterie.data.dataset import Data, Scaling, scale
from coterie.data.joined import fits, merged
from coterie.data.kinds import Kind
from coterie.data.partition import From, Partition, Test, divide, reserve
from coterie.data.population_given import Several, facts, given
from coterie.data.seen import seen_by

HELD = 2**30  # bytes of copies of samples that a population keeps


class Population(Clients):
    """n clients. A client's tensors are made when it is first asked for, and kept.

    Clients that are tested on the same samples share one test tensor. Nothing is copied where a
    client's samples lie side by side. Of copies, `HELD` bytes are kept and no more: with more data
    than that, clients that come later are made anew each time, which takes microseconds.
    """

    remote = False  # whether the clients' data are on machines of their own

    def __init__(
        self,
        data: Data,
        partition: Partition,
        *,
        public: Tensor | None = None,
        made: str | None = None,
        recipe: Mapping[str, Any] | None = None,
    ) -> None:
        fits(data, partition)
        self.data, self.partition, self.public = merged(data, partition), partition, public
        self._made = made  # what else the tensors follow from, if their numbers need not be read
        self.recipe = recipe  # what `partition` and `load` were asked, where that makes it again
        self._clients: dict[int, Client] = {}
        self._held = 0  # bytes of samples copied and kept
        self._later: tuple[float, Population] | None = None  # as it is at another phase
        self._tests: dict[bytes, tuple[Tensor, Tensor]] = {}

    @classmethod
    def of(
        cls,
        clients: Several,
        classes: int | Sequence[str] | None = None,
        *,
        group: Sequence[int] | None = None,
        columns: Mapping[str, Sequence[object]] | None = None,
        test_share: float = 0.2,
        validation_share: float = 0.0,
        public: Tensor | None = None,
    ) -> Population:
        """The population of clients brought along: each a `Client`, (x, y) or with its test set.

        They come in a list, or by name. Of an (x, y), `test_share` is kept to test the client; with
        0 nobody is tested who brought no test set. Of what is left, `validation_share` is held back
        from training, to choose by. `classes` says how many there are or names them,
        and labels then are places among them, from 0 on; left out, every value is a class.
        `columns` is what else is known of each client: {"region": ["north", "south"]}.

        >>> x, y = torch.zeros(3, 2), torch.tensor([1, 2, 2])
        >>> clients = Population.of({"lyon": (x, y, x, y), "oslo": (x, y, x[:1], y[:1])})
        >>> clients.names, clients.class_names, clients.label_counts().tolist()
        (('lyon', 'oslo'), ('1', '2'), [[1, 2], [1, 2]])
        """
        data, how = given(clients, classes, group, test_share, validation_share)
        return cls(replace(data, about=facts(columns or {}, how.names)), how, public=public)

    def __len__(self) -> int:
        return len(self.partition)

    def client(self, i: int) -> Client:
        """The client of a place, counted from 0."""
        client = self._clients.get(i)
        if client is None:
            x, y = seen_by(self.partition, "train", i, self.data.x, self.data.y)
            x_val, y_val = self._validation_of(i)
            client = Client(x, y, *self._test_of(i), name=self.names[i], x_val=x_val, y_val=y_val)
            for part in (x, x_val):
                self._held += 0 if shares(part, self.data.x) else part.nbytes
            if self._held <= HELD:
                self._clients[i] = client
        return client

    def __repr__(self) -> str:
        groups = "" if self.group is None else f" in {count(int(self.group.max()) + 1, 'group')}"
        kept = sum(map(len, self.partition.validation))
        held = f"validation {kept:,} · " if kept else ""
        return (
            f"Population({self.data.name}: {count(len(self), 'client')}{groups}, "
            f"train {int(self.sizes.sum()):,} · {held}test {sum(map(len, self.partition.test)):,}, "
            f"smallest {int(self.sizes.min()):,})"
        )

    def at(self, round: int) -> Population:
        """The population as it is after so many rounds of training: drift may have changed it."""
        phase = self.course.phase(round)
        if not phase:
            return self
        if self._later is None or self._later[0] != phase:
            now = self.partition.at(round)
            later = Population(self.data, now, public=self.public, made=self._made)
            self._later = phase, later
        return self._later[1]

    def away(self, round: int) -> Tensor | None:
        """(n,) who has not come yet after so many rounds; None if everybody is there."""
        if self.arrives is None:
            return None
        away = self.arrives > max(round, 0)
        return away if bool(away.any()) else None

    @property
    def arrives(self) -> Tensor | None:
        """(n,) the round from which on each client is there; None: all of them from the start."""
        return self.partition.arrives

    @property
    def course(self) -> Course:
        """When samples change hands."""
        return self.partition.course

    @property
    def names(self) -> tuple[str, ...]:
        """Of the clients: 0, 1, ... or their owners' names."""
        return self.partition.names

    @cached_property
    def sizes(self) -> Tensor:
        """(n,) training samples of each client, float64."""
        return torch.tensor([len(t) for t in self.partition.train], dtype=torch.float64)

    @property
    def group(self) -> Tensor | None:
        """(n,) the planted group of each client, where there is one."""
        return self.partition.group

    @property
    def columns(self) -> Mapping[str, Sequence[str]]:
        """What the clients come with: of each column, the value of every client."""
        return self.columns_of(self.names)

    def columns_of(self, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """What is known of these, each by its name; of others nothing, "".

        Where the owners of the data are not the clients, nothing is known of anybody.
        """
        own = self.partition.arguments.get("kind", {}).get("kind") in ("natural", "given")
        about = self.data.about if own else {}
        return {c: tuple(values.get(n, "") for n in names) for c, values in about.items()}

    @property
    def classes(self) -> int:
        """How many classes the labels have."""
        return len(self.data.classes)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes."""
        return self.data.classes

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return self.data.shape

    @property
    def scaling(self) -> Mapping[str, Any]:
        """How the stored numbers became the clients': how, peak, mean and std, as JSON has them."""
        return self.data.scaler.plain()

    @property
    def moves_at(self) -> int:
        """The round from which on clients have others' samples; 0: they never do."""
        return self.partition.moves_at

    @property
    def validates(self) -> bool:
        """Whether clients hold back samples to choose by."""
        return bool(self.partition.validation)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was repaired, left out or reduced."""
        return self.partition.notes

    @cached_property
    def key(self) -> str:
        """SHA-256 of all that the clients' tensors follow from."""
        made = self.data.fingerprint if self._made is None else self._made
        return hashlib.sha256(f"{self.partition.key} {made}".encode()).hexdigest()

    def label_counts(self) -> Tensor:
        """(n, K) training samples of each label, as the client itself names the labels."""
        who = torch.arange(len(self)).repeat_interleave(self.sizes.long())
        y = self.data.y[torch.cat(self.partition.train)]
        if self.partition.relabel is not None:
            seen = self.partition.seen.get("train")
            y = self.partition.relabel[who if seen is None else torch.cat(seen), y]
        cells = torch.bincount(who * self.classes + y, minlength=len(self) * self.classes)
        return cells.view(len(self), self.classes)

    def plot(self) -> Any:
        """A plotly figure of who holds how many samples of which label, sorted by group."""
        import plotly.graph_objects as go

        counts, names, group = self.label_counts(), self.names, self.group
        order = torch.arange(len(self)) if group is None else group.argsort(stable=True)
        shown = [html.escape(name, quote=False) for name in names]  # a label understands some HTML
        rows = [shown[i] if group is None else f"{shown[i]} (group {int(group[i])})" for i in order]
        figure = go.Figure(
            go.Heatmap(
                z=counts[order].tolist(),
                x=[html.escape(name, quote=False) for name in self.class_names],
                y=rows,
                colorscale="Viridis",
                zmin=0,
                zmax=int(counts.max()),  # without it, Plotly begins at the smallest count
                colorbar={"title": "samples"},
                hovertemplate="client %{y}<br>label %{x}<br>%{z:,} samples<extra></extra>",
            )
        )
        return figure.update_layout(
            title=f"{count(len(names), 'client')}, {count(int(counts.sum()), 'training sample')}",
            xaxis={"title": "label", "type": "category"},
            yaxis={"title": "client", "type": "category", "autorange": "reversed"},
        )

    def _validation_of(self, i: int) -> tuple[Tensor, Tensor]:
        """What client i holds back from its training, as it sees it."""
        if not self.partition.validation:
            return NONE
        return seen_by(self.partition, "validation", i, self.data.x, self.data.y)

    def _test_of(self, i: int) -> tuple[Tensor, Tensor]:
        """The test set of client i, made once for all clients that have the same."""
        x, y, index = self.data.x, self.data.y, self.partition.test[i]
        if self.partition.test_source == "official":
            assert self.data.x_test is not None
            assert self.data.y_test is not None
            x, y = self.data.x_test, self.data.y_test
        relabel = self.partition.relabel
        digest = hashlib.sha256(index.numpy().tobytes())
        digest.update(f"{float(self.partition.angle[i])}".encode())
        for rows in (relabel, self.partition.shift):
            digest.update(b"" if rows is None else rows[i].numpy().tobytes())
        if seen := self.partition.seen.get("test"):
            digest.update(seen[i].numpy().tobytes())
        key = digest.digest()
        if key in self._tests:
            return self._tests[key]
        made = seen_by(self.partition, "test", i, x, y)
        self._held += 0 if shares(made[0], x) else made[0].nbytes
        if self._held <= HELD:
            self._tests[key] = made
        return made


def partition(
    data: Any,
    kind: Kind | str | Mapping[str, Any] = "iid",
    clients: int | None = 20,
    seed: int = 0,
    *,
    test: Test = "own",
    test_share: float | None = None,
    validation_share: float = 0.0,
    pool: From = "train",
    scaling: Scaling = "standard",
    public: int = 0,
) -> Population:
    """The clients among whom `data` is divided.

    `data` is a `Data` or anything `load` reads; `kind` a kind of partition, its text, or a table;
    `test`, `test_share`, `validation_share` and `pool` are those of `divide`. `public` samples of
    each class are set aside for the server first. Scaling uses the numbers of the training set, for
    everyone alike.

    >>> partition("digits", "rotation", clients=4).group.tolist()
    [0, 1, 2, 3]
    """
    checks.whole(1 if clients is None else clients, "clients", 1)
    if not isinstance(data, Data):
        from coterie.data.load import load

        data = load(data)
    source, scaled, samples = data.source, scale(data, scaling), None
    if public:
        data = reserve(data, public, seed)[0]
        scaled, samples, _ = reserve(scaled, public, seed)
    how = divide(
        data,
        kind,
        clients,
        seed,
        test=test,
        test_share=test_share,
        pool=pool,
        validation_share=validation_share,
    )
    recipe = (
        None
        if source is None
        else {
            "data": source,
            "kind": how.arguments["kind"],
            "clients": clients,
            "seed": seed,
            "test": test,
            "test_share": test_share,
            **({"validation_share": validation_share} if validation_share else {}),
            "pool": pool,
            "scaling": scaling,
            "public": public,
        }
    )
    made = f"{scaling} {public} {seed}"
    return Population(scaled, how, public=samples, made=made, recipe=recipe)


def shares(part: Tensor, whole: Tensor) -> bool:
    """Whether one tensor is a view of the other's memory."""
    return part.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()
