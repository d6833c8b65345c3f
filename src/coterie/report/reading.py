"""The folder of a run as plain tables: everything that a chart is drawn from.

It reads runs that are still going, too: a last line that is half written is left for later.
"""

from __future__ import annotations

import csv
import io
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coterie.core.errors import CheckpointError
from coterie.methods import METHODS
from coterie.runs.history import Row, from_csv
from coterie.runs.records import expect_run

if TYPE_CHECKING:
    from coterie.report.insight import Insight
    from coterie.studies.result import Result

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Series(NamedTuple):
    """A number of the whole federation by round."""

    rounds: Ints
    values: Floats


@dataclass(frozen=True)
class RunData:
    """A run of n clients: R recorded rounds, T of them tested; NaN where nothing was measured."""

    title: str
    settings: str  # the text of run.toml; "" without a folder
    events: tuple[Mapping[str, Any], ...]
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
    insight: Insight | None = None  # what only the clients' data can tell
    missing: str = ""  # why there is no insight

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
        return table[-1] if table is not None and len(table) else np.full(self.n, np.nan)

    @property
    def clusters(self) -> Ints:
        """The models somebody holds in the last round."""
        last = self.assign[-1] if len(self.assign) else np.empty(0, int)
        return np.unique(last[last >= 0])

    @property
    def personal(self) -> bool:
        """Whether every client has a model of its own, so that there are no clusters to show."""
        return self.n > 1 and len(self.clusters) == int((self.assign[-1] >= 0).sum()) > 1

    @property
    def method(self) -> str:
        """The method's name as in METHODS, or its class if it is not there."""
        found = str(self.config.get("method", self.summary.get("method", "run"))).split("(")[0]
        return next((m.name for m in METHODS.values() if m.cls == found), found)

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """The settings."""
        return tomllib.loads(self.settings)

    @property
    def planned(self) -> int:
        """How many rounds were asked for."""
        known = [e["rounds"] for e in self.events if "rounds" in e]
        return int(known[-1]) if known else int(self.rounds[-1]) if len(self.rounds) else 0

    @property
    def done(self) -> bool:
        """Whether the run came to its end."""
        kinds = [e["event"] for e in self.events if e["event"] in ("start", "resume", "done")]
        return not kinds or kinds[-1] == "done"

    def series(self, metric: str, stage: str | None = None) -> Series:
        """A number of the federation by round; empty where it was not measured."""
        return self.whole.get(
            (stage or self.stage, metric), Series(np.empty(0, np.int64), np.empty(0))
        )

    def happened(self, kind: str) -> list[Mapping[str, Any]]:
        """The events of one kind."""
        return [e for e in self.events if e["event"] == kind]

    def at(self, rounds: Ints) -> Ints:
        """(len(rounds), n) who held which model in these rounds."""
        return self.assign[np.searchsorted(self.rounds, rounds)]


def read(folder: str | Path, *, memory: bool = True) -> RunData:
    """A run's folder, finished or not; without `memory`, the checkpoint is left alone."""
    path = Path(folder)
    expect_run(path)
    settings = (path / "run.toml").read_text()
    names, rounds, assign, group = held(whole_lines(path / "clusters.csv"))
    summary = path / "summary.json"
    run = RunData(
        title=path.name,
        settings=settings,
        events=events(path / "events.jsonl"),
        summary=json.loads(summary.read_text()) if summary.exists() else {},
        clients=names,
        rounds=rounds,
        assign=assign,
        group=group,
        **measured(from_csv(whole_lines(path / "metrics.csv")), names, rounds),
        memory={},
        models=0,
        notes={},
        folder=path,
    )
    return remembering(run) if memory else run


def of_result(result: Result) -> RunData:
    """The same of a result in hand, with or without a folder."""
    if result.folder:
        return read(result.folder)
    names = tuple(result.fed.names)
    index = {name: i for i, name in enumerate(names)}
    rounds = np.array(sorted({row.round for row in result.history}), np.int64)
    assign = np.full((len(rounds), len(names)), -1, np.int64)
    where = {int(t): r for r, t in enumerate(rounds)}
    for row in result.history:
        if row.client and row.cluster:
            assign[where[row.round], index[row.client]] = int(row.cluster)
    assign[-1] = result.state.assign.numpy()
    truth = [result.population.at(int(t)).group for t in rounds]
    return RunData(
        title=type(result.method).__name__,
        settings="",
        events=(),
        summary=result.summary,
        clients=names,
        rounds=rounds,
        assign=assign,
        group=None if truth[0] is None else np.stack([t.numpy() for t in truth if t is not None]),
        **measured(result.history, names, rounds),
        memory={k: t.numpy() for k, t in result.state.memory.items()},
        models=result.state.k,
        notes={"population": result.population.key},
    )


def whole_lines(path: Path) -> str:
    """A file up to its last whole line; a run may be writing it."""
    text = path.read_text() if path.exists() else ""
    return text[: text.rfind("\n") + 1]


def events(path: Path) -> tuple[Mapping[str, Any], ...]:
    """What happened, line by line."""
    return tuple(json.loads(line) for line in whole_lines(path).splitlines())


def held(text: str) -> tuple[tuple[str, ...], Ints, Ints, Ints | None]:
    """Names, rounds, and (R, n) clusters and groups, from clusters.csv; whole rounds alone."""
    rows = list(csv.reader(io.StringIO(text)))[1:]
    first = rows[0][0] if rows else ""
    names = tuple(row[1] for row in rows if row[0] == first)
    n = len(names) or 1
    rows = rows[: len(rows) // n * n]
    rounds = np.array([int(row[0]) for row in rows[::n]], np.int64)
    assign = np.array([int(row[2] or -1) for row in rows], np.int64).reshape(-1, n)
    planted = bool(rows) and rows[0][3] != ""
    group = np.array([int(r[3]) for r in rows], np.int64).reshape(-1, n) if planted else None
    return names, rounds, assign if rows else assign.reshape(0, 0), group


def measured(rows: Iterable[Row], names: Sequence[str], rounds: Ints) -> dict[str, Any]:
    """The tables of metrics.csv: by client in each tested round, and of the federation."""
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


def remembering(run: RunData) -> RunData:
    """The run with what its last whole checkpoint holds; as it is if there is none."""
    from coterie.runs import checkpoint

    assert run.folder
    try:
        last, _ = checkpoint.latest(run.folder / "checkpoints")
    except CheckpointError:
        return run
    memory = {k: t.numpy() for k, t in last.state.memory.items()}
    notes = {k: v for k, v in last.notes.items() if k != "settings"}
    return replace(run, memory=memory, models=last.state.k, notes=notes)
