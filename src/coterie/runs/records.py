"""The folder of a run: what was asked for, what happened, and where it can be taken up again.

run.toml        every setting, defaults resolved
events.jsonl    what happened and when; only ever grows
metrics.csv     the history, tidy
clusters.csv    round, client, cluster (a number, own or shared), group
summary.json    the numbers at the end
checkpoints/    see checkpoint.py
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from itertools import repeat
from pathlib import Path
from typing import IO, Any

from torch import Tensor

from coterie.core import points, storage
from coterie.core.errors import CheckpointError
from coterie.core.model_kind import ModelKind, held_words
from coterie.core.reading import read_bytes
from coterie.core.shell import command
from coterie.core.types import State
from coterie.runs import checkpoint, history
from coterie.runs.files import text_of, understanding
from coterie.runs.history import History, Row
from coterie.runs.whereabouts import FEDERATION, expect_run


class CsvFile:
    """A CSV file that only grows and can say where it stands: a resume goes back there."""

    def __init__(self, path: Path, header: str) -> None:
        self.path, self.size, self.digest = path, 0, hashlib.sha256()
        storage.write_file(path, b"")
        self.append(header)

    def append(self, text: str) -> None:
        """Write lines at the end of the file."""
        data = text.encode()
        storage.append_file(self.path, data)
        self.digest.update(data)
        self.size += len(data)

    def mark(self) -> dict[str, Any]:
        """How long the file is and what it holds, once that is safely on disk."""
        storage.append_file(self.path, b"", sync=True)
        return {"bytes": self.size, "sha256": self.digest.hexdigest()}

    @classmethod
    def back_to(cls, path: Path, mark: Mapping[str, Any]) -> CsvFile:
        """The file as it stood at a mark: whatever a crash left behind it is cut off."""
        file = cls.__new__(cls)
        data = saved_bytes(path, mark)
        file.path, file.size, file.digest = path, len(data), hashlib.sha256(data)
        storage.truncate_file(path, file.size)
        return file


def saved_bytes(path: Path, mark: Mapping[str, Any]) -> bytes:
    """What a file held when `CsvFile.mark` was taken; refused if that was changed since."""
    with understanding(path):
        data = read_bytes(path)[: mark["bytes"]] if path.exists() else b""
    if hashlib.sha256(data).hexdigest() != mark["sha256"]:
        raise CheckpointError(
            f"{path} was changed since its round was saved",
            code="K004",
            why=f"its first {mark['bytes']:,} bytes are not the ones the checkpoint knows",
            fix="put the file back, or start the run again",
        )
    return data


def unused(wanted: Path) -> Path:
    """A folder that does not exist yet: the one wanted, or with a number behind its name."""
    if wanted.name in ("", ".."):  # the folder itself, or the one above: they are there
        wanted = wanted / "run"
    path, count = wanted, 1
    while os.path.exists(path):
        count += 1
        path = wanted.with_name(f"{wanted.name}-{count}")
    return path


def expect_no_run(path: Path) -> None:
    """Refuse a folder that holds a run; one that never began may be there."""
    if (path / "run.toml").exists() and checkpoint.rounds(path / "checkpoints"):
        remote = (path / FEDERATION).exists()
        again = command(*(("serve", "--resume", path, "...") if remote else ("resume", path)))
        raise CheckpointError(
            f"{path} already holds a run",
            code="K005",
            fix=f"continue it with `{again}`, or choose another --out",
        )


class RunFolder:
    """A run on disk; as a context, it is held by one process at a time."""

    def __init__(self, path: Path, *, keep: int = 2) -> None:
        self.path, self.keep = path, keep
        self.metrics: CsvFile
        self.clusters: CsvFile
        self._lock: IO[str]

    def __enter__(self) -> RunFolder:
        """Keep every other process out; the lock goes with the process, even at kill -9.

        What is in the folder is looked at only after this, or another run could come between.
        """
        storage.make_folder(self.path)
        with storage.speaking(self.path / ".lock"):
            self._lock = open(self.path / ".lock", "a+", errors="replace")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as cause:
            self._lock.seek(0)
            owner = self._lock.read().strip() or "another process"
            self._lock.close()
            raise CheckpointError(
                f"{self.path} is in use by {owner}",
                code="K007",
                fix="wait until it ends, stop it, or choose another folder with --out",
            ) from cause
        try:
            with storage.speaking(self.path / ".lock"):
                self._lock.truncate(0)
                self._lock.write(f"process {os.getpid()} on {socket.gethostname()}")
                self._lock.flush()
        except BaseException:  # nobody will leave what was not entered
            self._lock.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    def begin(self, settings: str) -> None:
        """A new run in a folder that holds none; `settings` is the text of its run.toml."""
        expect_no_run(self.path)
        storage.make_folder(self.path / "checkpoints")
        self.sweep()
        self.mend_events()
        storage.replace_file(self.path / "run.toml", settings.encode())
        self.metrics = CsvFile(self.path / "metrics.csv", history.HEADER)
        self.clusters = CsvFile(self.path / "clusters.csv", "round,client,cluster,group\n")

    def back(self) -> tuple[checkpoint.Checkpoint, list[str]]:
        """A run that stopped, put back to the end of its last whole round; and what was amiss."""
        path = self.path
        expect_run(path)
        self.sweep()
        last, faults = checkpoint.latest(path / "checkpoints")
        self.metrics = CsvFile.back_to(path / "metrics.csv", last.notes["metrics.csv"])
        self.clusters = CsvFile.back_to(path / "clusters.csv", last.notes["clusters.csv"])
        self.mend_events()
        return last, checkpoint.passed_over(faults, last)

    def sweep(self) -> None:
        """Remove what a crash left half-written."""
        checkpoint.sweep(self.path / "checkpoints")
        for stray in self.path.glob(".*.tmp"):
            with storage.speaking(stray):
                stray.unlink()

    def event(self, event: Mapping[str, Any]) -> None:
        """Write what happened, and when, as a line of events.jsonl."""
        line = json.dumps({"time": round(time.time(), 3), **event})
        storage.append_file(self.path / "events.jsonl", f"{line}\n".encode())

    def mend_events(self) -> None:
        """Cut off a last line that a crash left unfinished."""
        path = self.path / "events.jsonl"
        with understanding(path):
            data = read_bytes(path) if path.exists() else b""
        if data and not data.endswith(b"\n"):
            storage.truncate_file(path, data.rfind(b"\n") + 1)

    def record(
        self,
        state: State,
        rows: Sequence[Row],
        names: Sequence[str],
        truth: Tensor | None,
        kind: ModelKind = "clustered",
    ) -> None:
        """Write what was measured in a round, and who holds which model after it."""
        self.metrics.append(history.to_csv(rows))
        groups = repeat("", len(names)) if truth is None else truth.tolist()
        assign = held_words(kind, state.assign.tolist())
        lines = zip(repeat(state.round, len(names)), names, assign, groups, strict=True)
        self.clusters.append(history.csv_lines(lines))
        points.reach("recorded", state.round)

    def checkpoint(
        self,
        state: State,
        memories: checkpoint.Memories,
        notes: Mapping[str, Any],
        best: int | None = None,
    ) -> None:
        """Save the end of a round, so that the run can go on from there whatever happens; that of
        the `best` round stays, too."""
        notes = {**notes} | {file.path.name: file.mark() for file in (self.metrics, self.clusters)}
        folder = self.path / "checkpoints"
        checkpoint.save(folder, state, memories, notes, keep=self.keep, best=best)

    def prune(self, used: int, best: int | None = None) -> None:
        """Remove what a crash kept from being removed when the checkpoint of a round was saved."""
        checkpoint.prune(self.path / "checkpoints", self.keep, best, below=used)

    def history(self) -> History:
        """The history as written so far."""
        with understanding(self.metrics.path):
            return history.from_csv(text_of(self.metrics.path))

    def summary(self, summary: Mapping[str, Any]) -> None:
        """Write the numbers at the end of a run as summary.json."""
        text = json.dumps(summary, indent=1) + "\n"
        storage.replace_file(self.path / "summary.json", text.encode())
