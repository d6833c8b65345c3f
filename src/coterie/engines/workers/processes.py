"""Workers that are processes of this machine; tensors reach them through shared memory."""

from __future__ import annotations

import copy
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

from coterie.core.sendable import Sendable
from coterie.core.types import Reply
from coterie.engines.serial import Question, Serial
from coterie.engines.workers.crew import Crew
from coterie.engines.workers.shared_memory import Shelf
from coterie.engines.workers.worker import Failure, Outcome, PackedQuestion, Portion, opened, work


@dataclass
class Process:
    """One worker process, as seen from here."""

    process: BaseProcess
    line: Connection
    outbox: Shelf
    parcel: PackedQuestion | None = None  # the question it knows
    busy: Sequence[Portion] = ()  # what it is at

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.process.is_alive()

    @property
    def fate(self) -> str:
        """How it ended."""
        code = self.process.exitcode
        if code and code < 0:
            return f"killed by {signal.Signals(-code).name}"
        return f"exit code {code}"

    def give(self, parcel: PackedQuestion, portions: list[Portion]) -> None:
        """Hand it some portions of a question; of a dead one, `answer` will tell."""
        self.busy = portions
        try:
            if self.parcel is not parcel:
                self.line.send(parcel)
                self.parcel = parcel
            self.line.send(portions)
        except OSError:
            pass

    def answer(self) -> list[list[Reply] | Failure] | None:
        """What came of these portions; nothing if it died over them."""
        try:
            outcomes: list[Outcome] = self.line.recv()
        except (EOFError, OSError):
            return None
        self.busy = ()
        return opened(outcomes, self.outbox)

    def dismiss(self, seconds: float = 0) -> None:
        """Let it go, and see that it does."""
        self.line.close()
        self.process.join(seconds)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


class Processes(Crew[Process]):
    """Worker processes. They know the tasks that there were when they started."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.inbox = Shelf()
        self.known: dict[str, type[Sendable]] = {}

    def start(self, engine: Serial) -> None:
        """See that all are there, and that they know every task there is."""
        if self.known != Sendable.known:  # a task was written since, as happens in notebooks
            self.close()
            self.known = dict(Sendable.known)
        super().start(engine)

    def hire(self, engine: Serial) -> Process:
        """A new worker, with an engine of its own. A fork has the clients' data at no cost."""
        forks = sys.platform == "linux" and not torch.cuda.is_initialized()
        context: Any = multiprocessing.get_context("fork" if forks else "spawn")
        engine = copy.copy(engine)
        engine.memory, engine.ledger = {}, []  # those of the cohort come with each question
        here, there = context.Pipe()
        others = [here, *(hand.line for hand in self.hands if not hand.line.closed)]
        outbox = Shelf()
        process = context.Process(
            target=work,
            args=(engine, there, self.inbox, outbox, os.getpid(), others if forks else ()),
            name="coterie worker",
            daemon=True,
        )
        with warnings.catch_warnings():
            # Threads of the parent are not in the child; it uses nothing that they may hold.
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        there.close()
        return Process(process, here, outbox)

    def parcel(self, engine: Serial, question: Question) -> PackedQuestion:
        """The question, its tensors on the shelf that all of them see."""
        return PackedQuestion.of(question, engine, self.inbox)

    def ready(self, busy: Sequence[Process]) -> Sequence[Process]:
        """Whose line has something to read, if only its end."""
        lines = {hand.line: hand for hand in busy}
        return [lines[line] for line in wait(list(lines))]  # type: ignore[index]
