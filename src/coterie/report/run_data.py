"""A run as plain arrays: everything that a chart is drawn from, of a folder or of a result."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from coterie.core.model_kind import ModelKind, declared, kind_from_shape
from coterie.methods import METHODS, find
from coterie.runs import newcomers
from coterie.runs.files import understanding
from coterie.runs.history import Row
from coterie.runs.reading import Clusters, Event, Floats, Ints, RunReader, ended, round_events

REFERENCES = ("local", "fedavg")  # what a reader compares with
TABLES = ("data", "evaluate", "engine", "newcomers", "train")  # of run.toml, where it has them


class Series(NamedTuple):
    """A number of the whole federation by round."""

    rounds: Ints
    values: Floats


@dataclass(frozen=True)
class Insight:
    """What only the clients' data can tell of a run with k clusters and C classes."""

    classes: tuple[str, ...]  # C
    counts: Ints  # (n, C) training samples of each label
    cross: Floats | None  # (k, k) mean accuracy on clients of a cluster (row) of each model
    clusters: tuple[int, ...] = ()  # k


@dataclass(frozen=True)
class RunData:
    """A run of n clients: R recorded rounds, T of them tested; NaN where nothing was measured."""

    title: str
    settings: str  # the text of run.toml; "" without a folder
    events: tuple[Event, ...]
    summary: Mapping[str, Any]
    clients: tuple[str, ...]  # n
    rounds: Ints  # (R,)
    assign: Ints  # (R, n) the model a client holds; -1: none yet
    group: Ints | None  # (R, n) the planted groups
    tested: Ints  # (T,)
    accuracy: Mapping[str, Floats]  # stage -> (T, n)
    loss: Mapping[str, Floats]  # stage -> (T, n)
    whole: Mapping[tuple[str, str], Series]  # (stage, metric), for the federation
    down: Floats  # (R, n) bytes to each client
    up: Floats  # (R, n) bytes from each client
    memory: Mapping[str, NDArray[Any]]  # what the method keeps: distance, trajectories, ...
    models: int  # how many there are; 0: not known
    notes: Mapping[str, Any]  # versions, threads and hashes of the last checkpoint
    folder: Path | None = None
    baselines: Mapping[str, Floats] = field(default_factory=dict)  # method -> (n,) at its end
    curves: Mapping[str, Series] = field(default_factory=dict)  # and its mean by round
    insight: Insight | None = None  # what only the clients' data can tell
    missing: str = ""  # why there is no insight
    amiss: tuple[str, ...] = ()  # what is damaged in the folder, and was done without

    @property
    def n(self) -> int:
        """How many clients there are."""
        return len(self.clients)

    @property
    def stage(self) -> str:
        """The last stage at which clients are tested: the method as it is meant to be used."""
        return list(self.accuracy)[-1] if self.accuracy else "before"

    @property
    def final(self) -> Floats:
        """(n,) accuracy at the end."""
        table = self.accuracy.get(self.stage)
        if table is None or not len(table):
            return np.full(self.n, np.nan)
        final: Floats = (last_known(table) if self.fills else table)[self.end(self.tested)]
        return final

    @property
    def taken(self) -> Mapping[str, Any] | None:
        """Which round was chosen on validation data, and by what; None: the last one counts."""
        return self.summary.get("taken")

    def end(self, rounds: Ints) -> int:
        """The place among some rounds of the one that counts: that was taken, or the last."""
        if self.taken is None or self.taken["round"] not in rounds:
            return -1
        return int(np.searchsorted(rounds, self.taken["round"]))

    @property
    def held(self) -> Ints:
        """(n,) the model that each client holds in the end; -1: none."""
        found: Ints = self.assign[self.end(self.rounds)]
        return found

    @property
    def planted(self) -> Ints:
        """(n,) the planted group of each client then; only where groups are planted."""
        assert self.group is not None
        found: Ints = self.group[self.end(self.rounds)]
        return found

    def value(self, metric: str, stage: str | None = None) -> float:
        """A number of the federation in the end; NaN where it was not measured."""
        rounds, values = self.series(metric, stage)
        return float(values[self.end(rounds)]) if len(values) else float("nan")

    @property
    def fills(self) -> bool:
        """Whether who was not tested counts by its last known value (evaluate.absent)."""
        named = self.config.get("evaluate", {}).get("absent") or self.summary.get("absent")
        return bool(named == "last-known")

    @cached_property
    def absent(self) -> NDArray[np.bool_]:
        """(T, n) who was there and not tested in a tested round, though in some other."""
        missing = np.isnan(self.accuracy.get(self.stage, np.empty((0, self.n))))
        came = {name: e["round"] for e in self.happened("arrived") for name in e["clients"]}
        there = self.tested[:, None] >= np.array([came.get(name, 0) for name in self.clients])
        return missing & there & ~missing.all(0)

    @cached_property
    def kind(self) -> ModelKind:
        """Whose models these are, as recorded; of an older folder, as its method says or it looks.

        The code of a method that is not coterie's is not run for that.
        """
        told = [self.summary.get("kind"), *(e.get("kind") for e in reversed(self.events))]
        if known := next((kind for kind in told if kind), None):
            return cast(ModelKind, known)
        method = find(self.method) if self.method in METHODS else None
        held = int((self.held >= 0).sum()) if len(self.assign) else 0
        return declared(method) or kind_from_shape(len(self.clusters), held)

    @property
    def clustered(self) -> bool:
        """Whether clients are in clusters: else they share one model, or each has its own."""
        return self.kind == "clustered"

    @property
    def clusters(self) -> Ints:
        """The models somebody holds in the end."""
        last = self.held if len(self.assign) else np.empty(0, int)
        return np.unique(last[last >= 0])

    @property
    def method(self) -> str:
        """The method's name as in METHODS, or its class if it is not there."""
        found = str(self.config.get("method", self.summary.get("method", "run"))).split("(")[0]
        return next((m.name for m in METHODS.values() if m.cls == found), found)

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """The settings."""
        with understanding((self.folder or Path()) / "run.toml"):
            tree = tomllib.loads(self.settings)
            if odd := [t for t in TABLES if not isinstance(tree.get(t, {}), Mapping)]:
                raise TypeError(f"{odd[0]} is no table")
            return tree

    @property
    def remote(self) -> bool:
        """Whether the clients were on machines of their own, where their data stayed."""
        return bool(self.config.get("engine", {}).get("name") == "flower")

    @property
    def planned(self) -> int:
        """How many rounds were asked for."""
        known = [e["rounds"] for e in self.events if "rounds" in e]
        return int(known[-1]) if known else int(self.rounds[-1]) if len(self.rounds) else 0

    @property
    def done(self) -> bool:
        """Whether the run came to its end."""
        return not self.events or ended(self.events)

    def series(self, metric: str, stage: str | None = None) -> Series:
        """A number of the federation by round; empty where it was not measured."""
        return self.whole.get(
            (stage or self.stage, metric), Series(np.empty(0, np.int64), np.empty(0))
        )

    def happened(self, kind: str) -> list[Event]:
        """The events of one kind."""
        return [e for e in self.events if e["event"] == kind]

    @cached_property
    def round_events(self) -> Mapping[int, Event]:
        """The event that ended each round, by round."""
        return round_events(self.events)

    @cached_property
    def joined(self) -> newcomers.Joined | None:
        """How those did who joined when the training was over; None if nobody did."""
        return newcomers.read(self.folder) if self.folder else None

    def at(self, rounds: Ints) -> Ints:
        """(len(rounds), n) who held which model in these rounds."""
        return self.assign[np.searchsorted(self.rounds, rounds)]


class Reportable(Protocol):
    """A finished run in hand, as a report needs it: a `Result` is one."""

    def run_data(self, *, insight: bool = True) -> RunData:
        """Its arrays; without `insight`, only what is at hand without asking the clients' data."""


def read(folder: str | Path, *, memory: bool = True) -> RunData:
    """A run's folder, finished or not; without `memory`, the checkpoint is left alone."""
    records = RunReader(Path(folder))
    with understanding(records.folder / "metrics.csv"):
        tables = measured(records.history, records.clusters)
    run = RunData(
        title=records.folder.name,
        settings=records.settings,
        events=records.events,
        summary=records.summary,
        **tables,
        memory={},
        models=0,
        notes={},
        folder=records.folder,
    )
    return with_memory(run) if memory else run


def measured(rows: Iterable[Row], clusters: Clusters) -> dict[str, Any]:
    """The fields of `RunData` that follow from a history and from who held which model."""
    names, rounds, assign, group = clusters
    index = {name: i for i, name in enumerate(names)}
    where = {int(t): r for r, t in enumerate(rounds)}
    cells: dict[tuple[str, str], list[tuple[int, int, float]]] = {}
    whole: dict[tuple[str, str], dict[int, float]] = {}
    for t, client, _, stage, metric, value in rows:
        if t not in where:
            continue  # a round whose clusters are not written yet
        if client:
            cells.setdefault((stage, metric), []).append((where[t], index[client], value))
        else:
            whole.setdefault((stage, metric), {})[t] = value
    tables = {key: spread(found, len(rounds), len(names)) for key, found in cells.items()}
    stages = [s for s in ("before", "after") if (s, "accuracy") in tables]
    due = np.zeros(len(rounds), bool)
    for stage in stages:
        due |= ~np.isnan(tables[stage, "accuracy"]).all(1)
    nothing = np.full((len(rounds), len(names)), np.nan)
    return {
        "clients": names,
        "rounds": rounds,
        "assign": assign,
        "group": group,
        "tested": rounds[due],
        "accuracy": {s: tables[s, "accuracy"][due] for s in stages},
        "loss": {s: tables[s, "loss"][due] for s in stages},
        "down": np.nan_to_num(tables.get(("traffic", "bytes_down"), nothing)),
        "up": np.nan_to_num(tables.get(("traffic", "bytes_up"), nothing)),
        "whole": {
            key: Series(np.array(list(v), np.int64), np.array(list(v.values()), float))
            for key, v in whole.items()
        },
    }


def spread(found: Sequence[tuple[int, int, float]], rows: int, columns: int) -> Floats:
    """Numbers at their places in a table, NaN elsewhere."""
    table = np.full((rows, columns), np.nan)
    r, c, values = zip(*found, strict=True)
    table[list(r), list(c)] = values
    return table


def last_known(table: Floats) -> Floats:
    """A table (T, n) in which NaN is the last number above it, if there is one.

    >>> last_known(np.array([[1.0, np.nan], [np.nan, 3.0]])).tolist()
    [[1.0, nan], [1.0, 3.0]]
    """
    rows = np.arange(len(table))[:, None]
    source = np.maximum.accumulate(np.where(np.isnan(table), 0, rows), axis=0)
    return np.take_along_axis(table, source, axis=0)


def with_insight(run: RunData, found: Insight | None) -> RunData:
    """The run with what its clients' data tell; with nothing, why there is nothing."""
    missing = "" if found else "every client keeps its data on its own machine"
    return replace(run, insight=found, missing=missing)


def with_memory(run: RunData) -> RunData:
    """The run with what its last whole checkpoint holds; as it is if there is none."""
    last, amiss = RunReader(run.folder).newest if run.folder else (None, [])
    if last is None:
        return replace(run, amiss=tuple(amiss))
    return replace(
        run,
        memory={k: t.numpy() for k, t in last.state.memory.items()},
        models=last.state.k,
        notes=without_settings(last.notes),
        amiss=tuple(amiss),
    )


def without_settings(notes: Mapping[str, Any]) -> dict[str, Any]:
    """What a checkpoint notes beside the settings, which run.toml has, too."""
    return {k: v for k, v in notes.items() if k != "settings"}


def with_references(run: RunData) -> RunData:
    """The run with how other runs did, those of reference methods in the folders beside it."""
    others = {}
    for folder in neighbours(run):
        other = read(folder, memory=False)
        known = other.method in REFERENCES and other.method != run.method
        if known and other.clients == run.clients and other.done:
            others[other.method] = other
    found = {m: others[m] for m in REFERENCES if m in others}
    return replace(
        run,
        baselines={m: other.final for m, other in found.items()},
        curves={m: other.series("accuracy_mean") for m, other in found.items()},
    )


def neighbours(run: RunData) -> Iterator[Path]:
    """The finished runs beside this one, on the same clients with the same data and seed."""
    if not run.folder or "population" not in run.notes:
        return
    for folder in sorted(run.folder.resolve().parent.iterdir()):
        if folder == run.folder.resolve() or not (folder / "summary.json").exists():
            continue
        if RunReader(folder).notes.get("population") == run.notes["population"]:
            yield folder
