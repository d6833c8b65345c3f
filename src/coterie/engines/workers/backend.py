"""The backend of workers: who answers what, and what happens when a worker dies."""

from __future__ import annotations

import ctypes
import os
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from coterie.core.errors import ClientError
from coterie.core.types import Reply
from coterie.engines.question import Backend, Portion, Question, Refusal, Setting
from coterie.engines.serial import Serial
from coterie.engines.workers.worker import Failure, Table, rows

LOADED = ctypes.CDLL(None) if sys.platform == "linux" else None  # PyTorch's OpenMP is in it
SOFTLY = 1  # OpenMP's omp_pause_soft
DEATHS = 3  # of workers, on one portion, before it is given up


class Worker(Protocol):
    """One worker, as seen from here."""

    busy: Sequence[Portion]  # what it is at

    @property
    def alive(self) -> bool:
        """Whether it can be given work, as far as is known."""

    @property
    def exit_reason(self) -> str:
        """How it ended, or why it was ended."""

    def give(self, packed: Any, portions: list[Portion]) -> None:
        """Hand it some portions of a packed question; of a dead one, `answer` will tell."""

    def answer(self, table: Table) -> list[list[Reply] | Failure] | None:
        """What came of these portions, laid down in a table; nothing if it died or froze."""

    def stop(self, seconds: float = 0) -> None:
        """End it: by itself within so many seconds, or else by force."""


W = TypeVar("W", bound=Worker)


class Cluster(Protocol[W]):
    """Where workers come from, and how questions reach them."""

    size: int  # how many workers there shall be

    def prepare(self, inner: Serial, setting: Setting, workers: list[W]) -> None:
        """Get ready to start workers; take those off the list who can be of no more use."""

    def hire(self, inner: Serial, setting: Setting, beside: Sequence[W]) -> W:
        """A new worker with a backend of its own, beside those who are there."""

    def pack(self, question: Question) -> Any:
        """A question, laid out so that all workers can have it."""

    def ready(self, busy: Sequence[W]) -> Sequence[W]:
        """Those of them who have something to say, or will never have, as soon as there is one."""

    def close(self) -> None:
        """End what was begun by `prepare`."""


class Workers(Backend, Generic[W]):
    """Questions are answered by workers, each with a copy of the `inner` backend.

    Each worker computes on one thread, so the answers are, to the bit, those of the inner backend
    on one thread, whoever gives them and when.

    Workers have the clients as they were at the first question, and start with it: call `start`
    before there are threads. They end with `close`, with the last view of the federation, or with
    this process, even if it is killed.
    """

    def __init__(self, inner: Serial, cluster: Cluster[W]) -> None:
        self.inner, self.cluster, self.notes = inner, cluster, inner.notes
        self.workers: list[W] = []
        self.replaced: list[str] = []
        weakref.finalize(self, stop_all, self.workers, os.getpid())

    def answers(self, question: Question) -> Iterator[tuple[int, Reply | Refusal]]:
        """What each place answers, in the order of the cohort, whatever order they came in."""
        portions = self.inner.portions(question)
        if not portions:
            return
        samples = question.samples
        weights = {portion[0]: sum(samples[j] for j in portion) for portion in portions}

        def weight(portion: Portion) -> float:
            return weights[portion[0]]

        try:
            if not self.workers:
                for i in question.cohort.tolist():
                    question.clients[i]  # made here once, it is shared by all who start now
            self.start(question.setting)
            queue = sorted(portions, key=weight, reverse=True)
            with one_thread():
                found = self.share_out(question, queue, weight)
        except BaseException:  # nobody will wait for what they are at
            stop_all(self.workers, os.getpid())
            raise
        for j, answer in sorted(found.items()):
            if isinstance(answer, Failure):
                raise answer.error()
            yield j, answer

    def start(self, setting: Setting) -> None:
        """See that all workers are there: now, instead of with the first question."""
        if not self.workers:
            give_back()
        self.cluster.prepare(self.inner, setting, self.workers)
        for place in range(self.cluster.size):
            if place == len(self.workers):
                self.workers.append(self.cluster.hire(self.inner, setting, self.workers))
            elif not self.workers[place].alive:
                self.replace(self.workers[place], setting, "before it was asked")

    def replace(self, worker: W, setting: Setting, when: str) -> None:
        """Put a new worker in the place of one that is dead or frozen, and remember to tell."""
        worker.stop()
        new = self.cluster.hire(self.inner, setting, self.workers)
        self.workers[self.workers.index(worker)] = new
        self.replaced.append(f"a worker was replaced: {worker.exit_reason} {when}")

    def mended(self) -> Sequence[str]:
        """Which workers were replaced since this was last asked, and why."""
        told, self.replaced = self.replaced, []
        return told

    def stack(self, answers: Sequence[Tensor]) -> Tensor:
        """They lie in a table: if nobody is missing, there is nothing to do."""
        return rows(answers)

    def close(self) -> None:
        """End all workers; another question would start new ones."""
        stop_all(self.workers, os.getpid(), seconds=1)
        self.cluster.close()

    def share_out(
        self, question: Question, queue: list[Portion], weight: Callable[[Portion], float]
    ) -> dict[int, Reply | Failure]:
        """Hand out the queue, take in the answers, and redo what a worker died over.

        What is found is the answer of each place; a portion that failed tells it at its first.
        """
        packed = self.cluster.pack(question)
        table = Table(len(question.cohort))
        found: dict[int, Reply | Failure] = {}
        deaths: Counter[int] = Counter()  # by the first place of a portion
        again: list[Portion] = []
        while True:
            for worker in self.workers:
                if not worker.busy and again:
                    worker.give(packed, [again.pop()])  # alone: the culprit will be seen
                elif not worker.busy and queue:
                    worker.give(packed, take(queue, weight, self.cluster.size))
            busy = [worker for worker in self.workers if worker.busy]
            if not busy:
                return found
            if not found:
                end_helpers()
            for worker in self.cluster.ready(busy):
                portions, outcomes = worker.busy, worker.answer(table)
                if outcomes is None:
                    self.replace(worker, question.setting, f"at {whose(question, portions)}")
                    deaths.update(portion[0] for portion in portions)
                    if max(deaths.values()) >= DEATHS:
                        raise deadly(question, portions[0], worker.exit_reason)
                    again += portions
                    continue
                for portion, outcome in zip(portions, outcomes, strict=True):
                    if isinstance(outcome, Failure):
                        found[portion[0]] = outcome
                        # Who comes later need not be asked; who comes first must fail first.
                        queue[:] = [p for p in queue if p[0] < portion[0]]
                    else:
                        found.update(zip(portion, outcome, strict=True))


def take(queue: list[Portion], weight: Callable[[Portion], float], workers: int) -> list[Portion]:
    """What a free worker is handed from a queue that is sorted by weight, the heaviest first.

    A share of what is left that shrinks with it: few messages at first, and at the end single
    portions, the lightest last, so that all workers are done at about the same time.

    >>> queue = [[0], [1], [2], [3], [4], [5], [6], [7]]
    >>> [take(queue, len, workers=2) for _ in range(4)]
    [[[0], [1]], [[2]], [[3]], [[4]]]
    """
    share = sum(map(weight, queue)) / (2 * workers)
    taken = [queue.pop(0)]
    load = weight(taken[0])
    while queue and load + weight(queue[0]) <= share:
        load += weight(queue[0])
        taken.append(queue.pop(0))
    return taken


def give_back() -> None:
    """Memory that is free goes back to the system before workers inherit it.

    Of clients' data that were laid side by side, it may be as much again as they take.
    """
    if LOADED and hasattr(LOADED, "malloc_trim"):
        LOADED.malloc_trim(0)


@contextmanager
def one_thread() -> Iterator[None]:
    """The cores are the workers' for a while; only copies are made here, so no bit changes."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def end_helpers() -> None:
    """End the threads that have helped this process to compute; they come again when needed.

    One that has just helped spins for some milliseconds, in hope of more work. To end them takes
    some, too: so this is for when the workers have something to do.
    """
    if LOADED and hasattr(LOADED, "omp_pause_resource_all"):
        LOADED.omp_pause_resource_all(SOFTLY)


def stop_all(workers: list[W], owner: int, seconds: float = 0) -> None:
    """End workers; not in a process that only inherited them."""
    if os.getpid() != owner:
        return
    while workers:
        workers.pop().stop(seconds)


def whose(question: Question, portions: Iterable[Portion]) -> str:
    """The clients at some places, in words."""
    names = [question.name(j) for portion in portions for j in portion]
    some = ", ".join(names[:10]) + ", ..." * (len(names) > 10)
    return f"client {some}" if len(names) == 1 else f"clients {some}"


def deadly(question: Question, portion: Portion, exit_reason: str) -> ClientError:
    """The error about a portion that no worker survives."""
    return ClientError(
        f"{DEATHS} worker processes died on {whose(question, [portion])}",
        code="U002",
        where=f"{question.when}, {type(question.task).__name__}; the last one: {exit_reason}",
        why="SIGKILL most often means that memory ran out; SIGSEGV, a fault in native code",
        fix="fewer workers or smaller batches; engine serial shows what happens in one process",
    )
