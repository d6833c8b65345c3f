"""The worker processes of a pool: who does what, and what happens when one of them dies."""

from __future__ import annotations

import copy
import multiprocessing
import os
import signal
import sys
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch

from coterie.engine.serial import Question, Serial
from coterie.engine.shelf import Shelf
from coterie.engine.worker import Failure, Outcome, Parcel, Portion, work
from coterie.errors import ClientError
from coterie.types import Reply, Task

DEATHS = 3  # of workers, on one portion, before it is given up


def take(queue: list[Portion], weight: Callable[[Portion], float], hands: int) -> list[Portion]:
    """What a free worker is handed from a queue that is sorted by weight, the heaviest first.

    A share of what is left that shrinks with it: few messages at first, and at the end single
    portions, the lightest last, so that all workers are done at about the same time.

    >>> queue = [[0], [1], [2], [3], [4], [5], [6], [7]]
    >>> [take(queue, len, hands=2) for _ in range(4)]
    [[[0], [1]], [[2]], [[3]], [[4]]]
    """
    share = sum(map(weight, queue)) / (2 * hands)
    taken = [queue.pop(0)]
    load = weight(taken[0])
    while queue and load + weight(queue[0]) <= share:
        load += weight(queue[0])
        taken.append(queue.pop(0))
    return taken


@dataclass
class Hand:
    """One worker, as seen from here."""

    process: BaseProcess
    line: Connection
    outbox: Shelf
    parcel: Parcel | None = None  # the question it knows
    busy: Sequence[Portion] = ()  # what it is at

    def give(self, parcel: Parcel, portions: list[Portion]) -> None:
        """Hand it some portions of a question; of a dead one, `answer` will tell."""
        self.busy = portions
        try:
            if self.parcel is not parcel:
                self.line.send(parcel)
                self.parcel = parcel
            self.line.send(portions)
        except OSError:
            pass

    def answer(self) -> list[Outcome] | None:
        """What came of these portions; nothing if it died over them."""
        try:
            outcomes: list[Outcome] = self.line.recv()
        except (EOFError, OSError):
            return None
        self.busy = ()
        return outcomes

    def dismiss(self, seconds: float = 0) -> None:
        """Let it go, and see that it does."""
        self.line.close()
        self.process.join(seconds)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


class Crew:
    """Workers that answer questions together. They start with the first one and then stay."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.hands: list[Hand] = []
        self.inbox = Shelf()
        self.known: dict[str, type[Task]] = {}  # the tasks that there were when they started
        weakref.finalize(self, dismiss, self.hands, os.getpid())

    def start(self, engine: Serial) -> None:
        """See that all are there, and that they know every task there is."""
        if self.known != Task.known:  # a task was written since, as happens in notebooks
            self.close()
            self.known = dict(Task.known)
        for place in range(self.size):
            if place == len(self.hands):
                self.hands.append(self.hire(engine))
            elif not self.hands[place].process.is_alive():
                self.replace(self.hands[place], engine)

    def hire(self, engine: Serial) -> Hand:
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
        return Hand(process, here, outbox)

    def replace(self, hand: Hand, engine: Serial) -> None:
        """Put a new worker in the place of a dead one."""
        hand.dismiss()
        self.hands[self.hands.index(hand)] = self.hire(engine)

    def ask(
        self,
        engine: Serial,
        question: Question,
        portions: Sequence[Portion],
        weight: Callable[[Portion], float],
    ) -> dict[int, Reply | Failure]:
        """The answer of each place; a portion that failed tells it at its first place."""
        try:
            if not self.hands:
                for i in question.cohort.tolist():
                    engine.population[i]  # made here once, it is shared by all who are forked
            self.start(engine)
            queue = sorted(portions, key=weight, reverse=True)
            return self.collect(engine, question, queue, weight)
        except BaseException:  # nobody will wait for what they are at
            dismiss(self.hands, os.getpid())
            raise

    def collect(
        self,
        engine: Serial,
        question: Question,
        queue: list[Portion],
        weight: Callable[[Portion], float],
    ) -> dict[int, Reply | Failure]:
        """Hand out the queue, take in the answers, and redo what a worker died over."""
        parcel = Parcel.of(question, engine, self.inbox)
        found: dict[int, Reply | Failure] = {}
        deaths: Counter[int] = Counter()  # by the first place of a portion
        again: list[Portion] = []
        while True:
            for hand in self.hands:
                if not hand.busy and again:
                    hand.give(parcel, [again.pop()])  # alone: the culprit will be seen
                elif not hand.busy and queue:
                    hand.give(parcel, take(queue, weight, self.size))
            lines = {hand.line: hand for hand in self.hands if hand.busy}
            if not lines:
                return found
            for line in wait(list(lines)):
                hand = lines[line]  # type: ignore[index]
                portions, outcomes = hand.busy, hand.answer()
                if outcomes is None:
                    self.replace(hand, engine)
                    deaths.update(portion[0] for portion in portions)
                    if max(deaths.values()) >= DEATHS:
                        raise lost(engine, question, portions[0], hand.process.exitcode)
                    again += portions
                    continue
                for portion, outcome in zip(portions, outcomes, strict=True):
                    if isinstance(outcome, Failure):
                        found[portion[0]] = outcome
                        # Who comes later need not be asked; who comes first must fail first.
                        queue[:] = [p for p in queue if p[0] < portion[0]]
                    else:
                        found |= {
                            j: answer.open(hand.outbox)
                            for j, answer in zip(portion, outcome, strict=True)
                        }

    def close(self) -> None:
        """Let all workers go."""
        dismiss(self.hands, os.getpid(), seconds=1)


def dismiss(hands: list[Hand], owner: int, seconds: float = 0) -> None:
    """Let workers go; not in a process that only inherited them."""
    if os.getpid() != owner:
        return
    while hands:
        hands.pop().dismiss(seconds)


def lost(engine: Serial, question: Question, portion: Portion, exit: int | None) -> ClientError:
    """A portion that no worker survives."""
    names = [engine.names[i] for i in question.cohort[portion].tolist()]
    who = f"client {names[0]}" if len(names) == 1 else f"clients {', '.join(names)}"
    how = f"exit code {exit}"
    if exit and exit < 0:
        how = f"killed by {signal.Signals(-exit).name}"
    return ClientError(
        f"{DEATHS} worker processes died on {who}",
        code="U002",
        where=f"round {engine.round + 1}, {type(question.task).__name__}; the last one: {how}",
        why="SIGKILL most often means that memory ran out; SIGSEGV, a fault in native code",
        fix="fewer workers or smaller batches; engine serial shows what happens in one process",
    )
