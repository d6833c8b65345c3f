"""Workers that are processes of this machine; tensors reach them through shared memory."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch

from coterie.core.types import Reply, Sendable
from coterie.engines.question import Portion, Question, Setting
from coterie.engines.serial import Serial
from coterie.engines.workers.backend import stop_all
from coterie.engines.workers.shared_memory import SharedBuffer
from coterie.engines.workers.worker import Failure, Outcome, PackedQuestion, opened, work


@dataclass
class Process:
    """One worker process, as seen from here."""

    process: BaseProcess
    pipe: Connection
    outbox: SharedBuffer
    question: PackedQuestion | None = None  # the one it knows
    busy: Sequence[Portion] = ()  # what it is at

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.process.is_alive()

    @property
    def exit_reason(self) -> str:
        """How it ended."""
        code = self.process.exitcode
        if code and code < 0:
            return f"killed by {signal.Signals(-code).name}"
        return f"exit code {code}"

    def give(self, packed: PackedQuestion, portions: list[Portion]) -> None:
        """Hand it some portions of a packed question; of a dead one, `answer` will tell."""
        self.busy = portions
        try:
            if self.question is not packed:
                self.pipe.send(packed)
                self.question = packed
            self.pipe.send(portions)
        except OSError:
            pass

    def answer(self) -> list[list[Reply] | Failure] | None:
        """What came of these portions; nothing if it died over them."""
        try:
            outcomes: list[Outcome] = self.pipe.recv()
        except (EOFError, OSError):
            return None
        self.busy = ()
        return opened(outcomes, self.outbox)

    def stop(self, seconds: float = 0) -> None:
        """End it: by itself within so many seconds, or else by force."""
        self.pipe.close()
        self.process.join(seconds)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


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
            process.start()
        there.close()
        return Process(process, here, outbox)

    def pack(self, question: Question) -> PackedQuestion:
        """The question, its tensors in the memory that all of them see."""
        return PackedQuestion.of(question, self.inbox)

    def ready(self, busy: Sequence[Process]) -> Sequence[Process]:
        """Whose pipe has something to read, if only its end."""
        owners = {worker.pipe: worker for worker in busy}
        return [owners[pipe] for pipe in wait(list(owners))]  # type: ignore[index]

    def close(self) -> None:
        """Nothing is left once the workers are stopped."""
