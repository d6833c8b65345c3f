"""A contestant's process as seen from outside: ask it for a round, measure its memory, end it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.environments import HOME, Entry
from bench.workloads import Array, Workload

WATCH = 0.1  # seconds between two looks at the memory of a round that is not counted


class FailedError(Exception):
    """A contestant ended before it answered."""


class Running:
    """One contestant at work on one workload."""

    def __init__(self, entry: Entry, workload: Workload, *options: str) -> None:
        # Two comparisons may run at once.
        self.entry, self.name = entry, f"{entry.name}-{workload.name}-{os.getpid()}"
        HOME.mkdir(exist_ok=True)
        self.log = HOME / f"{self.name}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [
                    str(entry.python),
                    "-m",
                    "bench.contestant",
                    entry.module,
                    workload.name,
                    *options,
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=HOME,
                env=entry.variables(),
                start_new_session=True,
            )
        self.peak = 0
        try:
            self.about = self._answer()
        except FailedError:
            self.close()
            raise

    def round(self, epochs: int) -> float:
        """The seconds of a round."""
        return float(self._ask(epochs=epochs, weights=None)["seconds"])

    def checked(self, epochs: int) -> tuple[float, list[Array]]:
        """The seconds of a round, and the models after it; its memory is watched meanwhile."""
        path = HOME / f"{self.name}.npz"
        with self._watched():
            seconds = float(self._ask(epochs=epochs, weights=str(path))["seconds"])
        with np.load(path) as found:
            weights = [found[key] for key in found.files]
        path.unlink()
        return seconds, weights

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        over = threading.Event()

        def look() -> None:
            while not over.wait(WATCH):
                self.peak = max(self.peak, memory(self.process.pid))

        watch = threading.Thread(target=look)
        watch.start()
        try:
            yield
        finally:
            over.set()
            watch.join()

    def _ask(self, **message: Any) -> dict[str, Any]:
        assert self.process.stdin
        with contextlib.suppress(BrokenPipeError):  # the missing answer tells
            print(json.dumps(message), file=self.process.stdin, flush=True)
        answer = self._answer()
        self.peak = max(self.peak, memory(self.process.pid))
        return answer

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            said = self.log.read_text(errors="replace").strip().splitlines()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(5)  # below zero: the signal that ended it
            code, last = self.process.returncode, said[-1] if said else "no word"
            raise FailedError(f"{last} (exit code {code}, see {self.log})")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """Tell it that nobody asks any more; insist if it does not end."""
        assert self.process.stdin
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(30)
        with contextlib.suppress(ProcessLookupError):  # and whatever it left behind
            os.killpg(self.process.pid, signal.SIGKILL)
        if self.process.wait() == 0:
            self.log.unlink(missing_ok=True)


def memory(root: int) -> int:
    """Bytes of a process and of all below it: a page that several have counts once (PSS)."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, KeyError):  # it ended while we looked
            parent = table(folder / "status")["PPid"]
            children[int(parent)].append(int(folder.name))
    tree, found = [root], 0
    while tree:
        pid = tree.pop()
        tree += children[pid]
        with contextlib.suppress(OSError, KeyError):
            found += int(table(Path(f"/proc/{pid}/smaps_rollup"))["Pss"].split()[0]) * 1024
    return found


def table(file: Path) -> dict[str, str]:
    """The lines "name: value" of a file."""
    lines = (line.partition(":") for line in file.read_text().splitlines())
    return {name: value.strip() for name, _, value in lines}
