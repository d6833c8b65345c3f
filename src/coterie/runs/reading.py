"""The one reader of a run's folder, finished or still going: it locks nothing and writes nothing.

A last line that is half written is left for later. A round may be told twice in the events, for a
run that was stopped does the rounds after its last checkpoint again: it counts once, as it was done
last (`round_events`). The tables need no such care: a resume cuts them back to the checkpoint.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coterie.core.errors import CheckpointError
from coterie.core.model_kind import held_number
from coterie.core.reading import expect_file
from coterie.runs import checkpoint
from coterie.runs.files import json_of, text_of, understanding
from coterie.runs.history import History, from_csv, unguarded
from coterie.runs.records import saved_bytes
from coterie.runs.whereabouts import expect_run

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Event = Mapping[str, Any]
OWNER = re.compile(r"process (\d+) on (.+)")  # what a run writes into its lock
MOST = 10**6  # clusters or groups: a larger number is none, and would take memory to draw
TAIL = 4096  # bytes at the end of the events that tell whether a run has ended
NEEDS: Mapping[str, Mapping[str, Any]] = {  # what whoever reads an event of a kind relies on
    "round": {"round": int, "seconds": int | float},
    "rejected": {"round": int, "client": str, "why": str},
    "warning": {"text": str},
    "replaced": {"text": str},
    "capped": {"client": str},
    "resume": {"round": int},
}


class Clusters(NamedTuple):
    """Who held which model in each of R recorded rounds, and the planted groups: clusters.csv."""

    names: tuple[str, ...]  # n
    rounds: Ints  # (R,)
    assign: Ints  # (R, n) the model a client holds; -1: none yet
    group: Ints | None  # (R, n)

    @property
    def settled(self) -> int:
        """The round after which nobody changed its cluster, whatever clusters are called."""
        last = canonical(self.assign[-1])
        other = [i for i, row in enumerate(self.assign) if (canonical(row) != last).any()]
        return int(self.rounds[other[-1] + 1 if other else 0])

    def until(self, last: int) -> Clusters:
        """The rounds up to one."""
        some = self.rounds <= last
        group = None if self.group is None else self.group[some]
        return Clusters(self.names, self.rounds[some], self.assign[some], group)


@dataclass(frozen=True)
class RunReader:
    """A run's folder; each of its files is read when it is first asked for."""

    folder: Path

    @cached_property
    def settings(self) -> str:
        """The text of run.toml; a folder without one is refused."""
        expect_run(self.folder)
        return text_of(self.folder / "run.toml")

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """What happened, in order."""
        return events_of(self.folder / "events.jsonl")

    @cached_property
    def history(self) -> History:
        """Everything that was measured."""
        file = self.folder / "metrics.csv"
        with understanding(file):
            return from_csv(whole_lines(file))

    def history_at(self, notes: Mapping[str, Any]) -> History:
        """The history as it stood when the checkpoint with these notes was saved."""
        name = "metrics.csv"
        with understanding(self.folder / name):
            return from_csv(saved_bytes(self.folder / name, notes[name]).decode())

    @cached_property
    def clusters(self) -> Clusters:
        """Who held which model, in the rounds that are written whole."""
        file = self.folder / "clusters.csv"
        with understanding(file):
            return clusters_from_csv(whole_lines(file))

    @cached_property
    def summary(self) -> Mapping[str, Any]:
        """The numbers at the end; empty until then."""
        file = self.folder / "summary.json"
        return json_of(file) if file.exists() else {}

    @cached_property
    def notes(self) -> Mapping[str, Any]:
        """What the newest checkpoint notes of the world it was made in; empty without one."""
        for path in checkpoint.rounds(self.folder / "checkpoints"):
            try:
                return dict(checkpoint.read_manifest(path)["notes"])
            except CheckpointError:
                continue  # damaged: the one before it counts
        return {}

    @cached_property
    def newest(self) -> tuple[checkpoint.Checkpoint | None, list[str]]:
        """The checkpoint of the round that was taken, or else the newest that is whole, with its
        tensors, if there is; and what is amiss."""
        if chosen := self.summary.get("taken"):
            with suppress(CheckpointError):  # the run has gone on since, and taken another
                folder = checkpoint.at(self.folder / "checkpoints", chosen["round"])
                return checkpoint.load(folder), []
        try:
            last, faults = checkpoint.latest(self.folder / "checkpoints")
        except CheckpointError as error:
            none = not checkpoint.rounds(self.folder / "checkpoints")
            return None, [] if none else [f"{error.what}: {error.why}"]
        return last, checkpoint.passed_over(faults, last)

    @property
    def seconds(self) -> float:
        """The time of all rounds."""
        return float(sum(e["seconds"] for e in round_events(self.events).values()))

    @property
    def spent(self) -> dict[str, float]:
        """The same apart: at the clients while they were asked, in tests, and at the server."""
        rounds = list(round_events(self.events).values())
        asked = (task for e in rounds for task in e.get("asked", {}).values())
        clients = sum(float(task["seconds"]) for task in asked)
        tests = sum(float(e.get("evaluate_seconds", 0.0)) for e in rounds)
        return {"clients": clients, "tests": tests, "server": self.seconds - clients - tests}


def canonical(labels: Ints) -> Ints:
    """Labels 0, 1, ... in the order in which they first appear.

    >>> canonical(np.array([7, 7, 2, 7])).tolist()
    [0, 0, 1, 0]
    """
    _, first, place = np.unique(labels, return_index=True, return_inverse=True)
    return np.asarray(first.argsort().argsort()[place], np.int64)


def round_events(events: Iterable[Event]) -> dict[int, Event]:
    """The event that ended each round; of a round that was done twice, the last one.

    >>> twice = [{"event": "round", "round": 1, "seconds": s} for s in (3.0, 2.0)]
    >>> round_events(twice)[1]["seconds"]
    2.0
    """
    return {int(e["round"]): e for e in events if e["event"] == "round"}


def ended(events: Iterable[Event]) -> bool:
    """Whether the last thing that a run did is to come to its end."""
    kinds = [e["event"] for e in events if e["event"] in ("start", "resume", "round", "done")]
    return kinds[-1:] == ["done"]


def whole_lines(path: Path) -> str:
    """A file up to its last whole line; "" if there is none."""
    text = text_of(path) if path.exists() else ""
    return text[: text.rfind("\n") + 1]


def events_of(path: Path) -> tuple[Event, ...]:
    """The events in a file, in order; none if there is no file."""
    with understanding(path):
        return tuple(parsed(whole_lines(path)))


def parsed(lines: str) -> Iterable[Event]:
    """The events on some lines of events.jsonl, each with what belongs to its kind."""
    for line in lines.splitlines():
        event = json.loads(line)
        for key, kind in {"event": str, **NEEDS.get(event["event"], {})}.items():
            if not isinstance(event[key], kind):
                raise TypeError(f"{key} of an event is {event[key]!r:.40}")
        yield event


def clusters_from_csv(text: str) -> Clusters:
    """The table of clusters.csv, header included; a round whose last clients lack is left out."""
    rows = list(csv.reader(io.StringIO(text)))[1:]
    first = rows[0][0] if rows else ""
    names = tuple(unguarded(row[1]) for row in rows if row[0] == first)
    n = len(names)
    rows = rows[: len(rows) // n * n] if n else []
    if [row[1] for row in rows] != [row[1] for row in rows[:n]] * (len(rows) // max(1, n)):
        raise ValueError("its rounds do not list the same clients")

    if not rows:
        return Clusters(names, np.empty(0, np.int64), np.empty((0, 0), np.int64), None)
    rounds = np.array([int(row[0]) for row in rows[::n]], np.int64)
    if (np.diff(rounds) <= 0).any():
        raise ValueError("its rounds are not in order")
    held = [held_number(row[2], i % n) for i, row in enumerate(rows)]
    groups = [int(row[3]) for row in rows] if rows[0][3] else None
    if max(*held, *(groups or [0])) > MOST:
        raise ValueError(f"it counts more than {MOST:,} clusters or groups")
    group = None if groups is None else np.array(groups, np.int64).reshape(-1, n)
    return Clusters(names, rounds, np.array(held, np.int64).reshape(-1, n), group)


def run_state(folder: Path) -> Literal["waiting", "running", "done", "stopped"]:
    """One word for how a run is; cheap enough to be asked several times a second."""
    if not (folder / "run.toml").exists():
        return "waiting"
    if ended(last_events(folder / "events.jsonl")):
        return "done"
    return "running" if held(folder / ".lock") else "stopped"


def last_events(path: Path) -> Iterable[Event]:
    """The events on the last few lines of events.jsonl."""
    try:
        expect_file(path)
        with open(path, "rb") as file:
            begin = max(0, os.fstat(file.fileno()).st_size - TAIL)
            file.seek(begin)
            data = file.read()
    except OSError:
        return ()
    first = data.find(b"\n") + 1 if begin else 0  # a line of which only the end was read
    return parsed(data[first : data.rfind(b"\n") + 1].decode())


def held(lock: Path) -> bool:
    """Whether the process that wrote the lock is alive; of another machine, it is believed.

    The lock itself is not tried: for that moment a run that starts would find it taken.
    """
    try:
        expect_file(lock)
        owner = OWNER.match(lock.read_text(errors="replace"))
    except OSError:
        return False
    if not owner:
        return False
    if owner[2] != socket.gethostname():
        return True
    try:
        os.kill(int(owner[1]), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
