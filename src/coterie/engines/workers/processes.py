"""Workers that are processes of this machine; tensors reach them through shared memory."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import struct
import subprocess
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from coterie.core import stopping
from coterie.core.types import Reply, Sendable
from coterie.engines.question import Portion, Question, Setting
from coterie.engines.serial import Serial
from coterie.engines.workers.backend import stop_all
from coterie.engines.workers.shared_memory import SharedBuffer
from coterie.engines.workers.worker import Failure, Outcome, PackedQuestion, Table, opened, work

LOOK = 1.0  # seconds between two looks at workers who have said nothing
PATIENCE = 60  # looks in a row at which a busy worker has computed nothing, before it is ended
LAST = 5.0  # seconds that a process has to disappear once it is killed


@dataclass
class Process:
    """One worker process, as seen from here. Nothing here waits for it without a deadline."""

    process: BaseProcess
    pipe: Connection
    outbox: SharedBuffer
    question: PackedQuestion | None = None  # the one it knows
    busy: Sequence[Portion] = ()  # what it is at
    computed: str = ""  # how long, at the last look
    silent: int = 0  # looks in a row since then
    fault: str = ""  # why it is of no more use, though it may live

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return not self.fault and self.process.is_alive()

    @property
    def exit_reason(self) -> str:
        """How it ended, or why it was ended."""
        code = self.process.exitcode
        if self.fault or code is None:
            return self.fault or "it could not be ended"
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def give(self, packed: PackedQuestion, portions: list[Portion]) -> None:
        """Hand it some portions of a packed question; of a dead one, `answer` will tell."""
        self.busy, self.silent = portions, 0
        try:
            if self.question is not packed:
                self.pipe.send(packed)
                self.question = packed
            self.pipe.send(portions)
        except BlockingIOError:
            self.fault = "it took in nothing more"
        except OSError:
            pass

    def answer(self, table: Table) -> list[list[Reply] | Failure] | None:
        """What came of these portions, laid down in a table; nothing if it died or froze."""
        if self.fault:
            return None
        try:
            outcomes: list[Outcome] = self.pipe.recv()
        except BlockingIOError:
            self.fault = "it froze in the midst of its answer"
            return None
        except (EOFError, OSError):
            self.process.join(LAST)  # or how it ended is not known yet
            return None
        portions, self.busy = self.busy, ()
        return opened(outcomes, self.outbox, portions, table)

    def look(self) -> None:
        """See whether it has computed since the last look; for too long nothing is a fault.

        Looks are counted, not seconds: who is stopped together with this process is not to blame.
        """
        now = computing_time(self.process.pid)
        self.silent = self.silent + 1 if now == self.computed else 0
        self.computed = now
        if self.silent >= PATIENCE:
            self.fault = f"it computed nothing for {PATIENCE * LOOK:g} seconds"

    def stop(self, seconds: float = 0) -> None:
        """End it: by itself within so many seconds, or else by force."""
        self.pipe.close()
        self.process.join(seconds)
        if self.process.is_alive():
            self.process.kill()
            self.process.join(LAST)


class Processes:
    """Starts worker processes. They know the tasks that there were when they started."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.inbox = SharedBuffer()
        self.known: dict[str, type[Sendable]] = {}

    def prepare(self, inner: Serial, setting: Setting, workers: list[Process]) -> None:
        """See that everybody knows every task there is."""
        if self.known != Sendable.known:  # a task was written since, as happens in notebooks
            stop_all(workers, os.getpid(), seconds=1)
            self.known = dict(Sendable.known)

    def hire(self, inner: Serial, setting: Setting, beside: Sequence[Process]) -> Process:
        """A new worker process. A fork has the clients' data at no cost."""
        forks = sys.platform == "linux" and not torch.cuda.is_initialized()
        context: Any = multiprocessing.get_context("fork" if forks else "spawn")
        here, there = context.Pipe()
        bound(here, PATIENCE * LOOK)
        others = [here, *(worker.pipe for worker in beside if not worker.pipe.closed)]
        outbox = SharedBuffer()
        inherited = others if forks else ()
        process = context.Process(
            target=work,
            args=(inner, setting, there, self.inbox, outbox, os.getpid(), inherited),
            name="coterie worker",
            daemon=True,
        )
        with warnings.catch_warnings():
            # Threads of the parent are not in the child; it uses nothing that they may hold.
            warnings.simplefilter("ignore", DeprecationWarning)
            with stopping.deaf():
                process.start()
        there.close()
        return Process(process, here, outbox)

    def pack(self, question: Question) -> PackedQuestion:
        """The question, its tensors in the memory that all of them see."""
        return PackedQuestion.of(question, self.inbox)

    def ready(self, busy: Sequence[Process]) -> Sequence[Process]:
        """Whose pipe has something to read, if only its end; or who computes no more."""
        owners = {worker.pipe: worker for worker in busy if not worker.fault}
        while len(owners) == len(busy):
            if found := wait(list(owners), LOOK):
                return [owners[pipe] for pipe in found]  # type: ignore[index]
            for worker in busy:
                worker.look()
            owners = {worker.pipe: worker for worker in busy if not worker.fault}
        return [worker for worker in busy if worker.fault]

    def close(self) -> None:
        """Nothing is left once the workers are stopped."""


def computing_time(pid: int | None) -> str:
    """What the system says of how long a process has computed; it changes while it computes."""
    if sys.platform != "linux":
        words = ["ps", "-o", "time=", "-p", str(pid)]
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it is gone: its pipe will tell
        return ""
    return " ".join(fields[11:13])  # in its own code, and in the system's


def bound(pipe: Connection, seconds: float) -> None:
    """Let no single read or write at this end of a pipe wait longer than so many seconds."""
    limit = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
    with socket.socket(fileno=os.dup(pipe.fileno())) as end:
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            end.setsockopt(socket.SOL_SOCKET, option, limit)
