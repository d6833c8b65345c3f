"""The result of a run: its models, everything that was measured, and its page and charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from coterie import engines
from coterie.core.errors import DataError
from coterie.core.model_kind import ModelKind, held_number, held_words, kind_of
from coterie.core.types import Engine, Method, State
from coterie.core.units import count
from coterie.data.population import Population
from coterie.runs.by_class import SHOTS, Counted, counted
from coterie.runs.history import History
from coterie.runs.metrics import PerClient
from coterie.runs.reading import Clusters, Floats, RunReader
from coterie.studies.insight.shots import by_shots
from coterie.tasks.score import Score

if TYPE_CHECKING:
    from coterie.data.population_given import Given, Several
    from coterie.report.run_data import Insight, RunData
    from coterie.studies.finished.placement import Placement

TESTS = 2_000  # at most so many tests of one model on one client, for `Result.insight`


@dataclass(frozen=True)
class Result:
    """A finished run: its models, who holds which, and everything that was measured."""

    method: Method
    population: Population
    fed: Engine
    state: State
    history: History
    summary: Mapping[str, Any]
    folder: Path | None = None
    page: Path | None = None  # report.html, where the run has written one

    def __repr__(self) -> str:
        parts = [count(len(self.population), "client"), count(self.state.round, "round")]
        if self.accuracy.values:
            parts.append(f"accuracy {100 * self.accuracy.mean():.1f} %")
        if self.kind == "clustered":
            parts.append(count(len(set(self.clusters.values())), "cluster"))
        where = f" in {self.folder}" if self.folder else ""
        return f"Result({type(self.method).__name__}: {', '.join(parts)}{where})"

    @property
    def accuracy(self) -> PerClient:
        """Each client's accuracy at the end, as the method is meant to be used."""
        return PerClient(self.history.clients(self.summary["round"], stage=self.summary["stage"]))

    def by_class(self) -> Counted | None:
        """Test samples that are right and wrong at the end, by client and class: `accuracy` of each
        class over all clients; None if `per_class_accuracy` was not among the metrics.
        """
        at, stage = self.summary["round"], self.summary["stage"]
        return counted(self.history, self.population.classes, at, stage)

    def by_shots(self, edges: tuple[float, float] = SHOTS) -> dict[str, float] | None:
        """Accuracy on classes of which a client trains on few (below the first edge), medium and
        many (above the second) samples; None if `per_class_accuracy` was not among the metrics.
        """
        at, stage = self.summary["round"], self.summary["stage"]
        return by_shots(self.history, self.population, at, stage, edges)

    @property
    def kind(self) -> ModelKind:
        """Whose models these are: "shared" by all, "clustered", or "personal"."""
        return kind_of(self.method, self.state)

    @property
    def clusters(self) -> dict[str, int]:
        """Which cluster each client is in; empty where all share one model or each has its own."""
        if self.kind != "clustered":
            return {}
        return {self.fed.names[i]: int(self.state.assign[i]) for i in self.state.placed.tolist()}

    def model(self, client: int | str | None = None, *, cluster: int | None = None) -> nn.Module:
        """The model a client uses, as a plain module: its own layers, and adapted, where it is so.

        It is the one whose accuracy is reported last: the same draws make it again. It takes
        samples that are scaled as the population's are. With `cluster`, the model that its members
        are given.
        """
        from coterie.studies.finished.taking import row_and_owner

        return self.fed.layout.module(row_and_owner(self, client, cluster)[0])

    def save(
        self, path: str | Path, client: int | str | None = None, *, cluster: int | None = None
    ) -> Path:
        """Write the model a client uses, or a cluster's, with all that is needed to use it.

        The name's end is the format: .safetensors, .pt2 or .onnx; `coterie.load_model` reads it.
        """
        from coterie.studies.finished.taking import take

        return take(self, path, client, cluster)

    def place(self, newcomers: Given | Several, epochs: int = 5) -> Placement:
        """Give newcomers a model and let each adapt it: a `Client`, (x, y), with its test set, or
        several of them, in a list or by name. Nobody else moves, and this result stays as it is.
        """
        from coterie.studies.finished.placement import place

        return place(self, newcomers, epochs)

    @cached_property
    def insight(self) -> Insight | None:
        """What only the clients' data can tell; None if they are on the clients' own machines."""
        from coterie.report.run_data import Insight

        clients = self.population.at(self.state.round)
        counts = clients.label_counts()
        if not counts.any():  # a population that cannot see its labels counts none
            return None
        clusters = sorted(set(self.clusters.values()))
        cross = cross_test(self, clusters) if self.kind == "clustered" else None
        return Insight(clients.class_names, counts.numpy(), cross, tuple(clusters))

    def run_data(self, *, insight: bool = True) -> RunData:
        """The run as a report draws it; without `insight`, nothing that takes further tests."""
        from coterie.report import run_data as data

        records = RunReader(self.folder) if self.folder else None
        # An opened run may have gone on since: it is shown as far as this result goes.
        last = self.summary.get("taken", {}).get("of", self.state.round)
        held = records.clusters.until(last) if records else clusters_of(self)
        notes = records.notes if records else {"population": self.population.key}
        run = data.RunData(
            title=records.folder.name if records else type(self.method).__name__,
            settings=records.settings if records else "",
            events=records.events if records else (),
            summary=self.summary,
            **data.measured(self.history, held),
            memory={name: t.numpy() for name, t in self.state.memory.items()},
            models=self.state.k,
            notes=data.without_settings(notes),
            folder=self.folder,
        )
        if not insight:
            return run
        run = data.with_references(run)
        try:
            return data.with_insight(run, self.insight)
        except DataError as error:  # of an opened run, whose data are gone
            return replace(run, missing=error.what)

    def report(self, file: str | Path = "report.html") -> Path:
        """Write the page of this run: one file that opens without a network."""
        from coterie.report import write_result

        return write_result(self, file)

    def plot(self, chart: str = "accuracy") -> Any:
        """A chart of the page as a Plotly figure: accuracy, gains, river, distances, labels, ..."""
        from coterie.report import draw

        return draw(self, chart)

    def _repr_html_(self) -> str:
        from coterie.report import card

        return card(self)


def cross_test(result: Result, clusters: Sequence[int]) -> Floats:
    """(k, k) mean accuracy: every cluster's clients (row) with every cluster's model (column).

    One model alone is not tested again: it has no other to be compared with.
    """
    table: Floats = np.full((len(clusters), len(clusters)), np.nan)
    if len(clusters) < 2:
        return table
    state = result.state
    # The run's own engine has let its workers go; a few tests are not worth starting them again.
    fed = engines.build("serial", result.population, result.fed.layout, result.fed.seed)
    fed.restore(result.fed.memories())
    most = max(1, TESTS // len(clusters) ** 2)  # clients of each cluster
    members = {c: (state.assign == c).nonzero().flatten()[:most] for c in clusters}
    some = torch.cat(list(members.values())).sort().values
    task = Score(private=result.method.score.private)
    for j, model in enumerate(clusters):
        lent = state.reassign(some, torch.full_like(some, model))
        replies = fed.at(state.round, "evaluate").ask(some, task, lent)
        accuracy = replies.values[:, 0, 0]
        for i, cluster in enumerate(clusters):
            theirs = accuracy[torch.isin(replies.clients, members[cluster])]
            table[i, j] = float(theirs[~theirs.isnan()].mean())
    return table


def clusters_of(result: Result) -> Clusters:
    """Who held which model in each round of a run without a folder, as far as its history tells."""
    names = tuple(result.fed.names)
    rounds = np.array(sorted({row.round for row in result.history}), np.int64)
    assign = np.full((len(rounds), len(names)), -1, np.int64)
    row_of = {int(t): r for r, t in enumerate(rounds)}
    column_of = {name: i for i, name in enumerate(names)}
    for row in result.history:
        if row.client and row.cluster:
            i = column_of[row.client]
            assign[row_of[row.round], i] = held_number(row.cluster, i)
    words = held_words(result.kind, result.state.assign.tolist())
    assign[-1] = [held_number(word, i) for i, word in enumerate(words)]
    groups = [g.numpy() for t in rounds if (g := result.population.at(int(t)).group) is not None]
    return Clusters(names, rounds, assign, np.stack(groups) if groups else None)
