"""Workers that answer questions together: who does what, and what happens when one of them dies."""

from __future__ import annotations

import ctypes
import os
import sys
import weakref
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

import torch

from coterie.core.errors import ClientError
from coterie.core.types import Reply
from coterie.engines.serial import Question, Serial
from coterie.engines.workers.worker import Failure, Portion

LOADED = ctypes.CDLL(None) if sys.platform == "linux" else None  # PyTorch's OpenMP is in it
SOFTLY = 1  # OpenMP's omp_pause_soft
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


class Hand(Protocol):
    """One worker, as seen from here."""

    busy: Sequence[Portion]  # what it is at

    @property
    def alive(self) -> bool:
        """Whether it can be given work, as far as is known."""

    @property
    def fate(self) -> str:
        """What became of it, if it is dead."""

    def give(self, parcel: Any, portions: list[Portion]) -> None:
        """Hand it some portions of a question; of a dead one, `answer` will tell."""

    def answer(self) -> list[list[Reply] | Failure] | None:
        """What came of these portions; nothing if it died over them."""

    def dismiss(self, seconds: float = 0) -> None:
        """Let it go, and see that it does."""


H = TypeVar("H", bound=Hand)


class Crew(ABC, Generic[H]):
    """Workers that answer questions together. They start with the first one and then stay."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.hands: list[H] = []
        weakref.finalize(self, dismiss, self.hands, os.getpid())

    @abstractmethod
    def hire(self, engine: Serial) -> H:
        """A new worker, with an engine of its own."""

    @abstractmethod
    def parcel(self, engine: Serial, question: Question) -> Any:
        """A question, folded so that all workers can have it."""

    @abstractmethod
    def ready(self, busy: Sequence[H]) -> Sequence[H]:
        """Those of them who have something to say, as soon as there is one."""

    def start(self, engine: Serial) -> None:
        """See that all are there."""
        for place in range(self.size):
            if place == len(self.hands):
                self.hands.append(self.hire(engine))
            elif not self.hands[place].alive:
                self.replace(self.hands[place], engine)

    def replace(self, hand: H, engine: Serial) -> None:
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
                    engine.population[i]  # made here once, it is shared by all who start now
            self.start(engine)
            queue = sorted(portions, key=weight, reverse=True)
            with one_thread():
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
        parcel = self.parcel(engine, question)
        found: dict[int, Reply | Failure] = {}
        deaths: Counter[int] = Counter()  # by the first place of a portion
        again: list[Portion] = []
        while True:
            for hand in self.hands:
                if not hand.busy and again:
                    hand.give(parcel, [again.pop()])  # alone: the culprit will be seen
                elif not hand.busy and queue:
                    hand.give(parcel, take(queue, weight, self.size))
            busy = [hand for hand in self.hands if hand.busy]
            if not busy:
                return found
            for hand in self.ready(busy):
                portions, outcomes = hand.busy, hand.answer()
                if outcomes is None:
                    self.replace(hand, engine)
                    deaths.update(portion[0] for portion in portions)
                    if max(deaths.values()) >= DEATHS:
                        raise lost(engine, question, portions[0], hand.fate)
                    again += portions
                    continue
                for portion, outcome in zip(portions, outcomes, strict=True):
                    if isinstance(outcome, Failure):
                        found[portion[0]] = outcome
                        # Who comes later need not be asked; who comes first must fail first.
                        queue[:] = [p for p in queue if p[0] < portion[0]]
                    else:
                        found.update(zip(portion, outcome, strict=True))

    def close(self) -> None:
        """Let all workers go."""
        dismiss(self.hands, os.getpid(), seconds=1)


@contextmanager
def one_thread() -> Iterator[None]:
    """The cores are the workers' for a while; only copies are made here, so no bit changes.

    A thread that has helped to compute spins for some milliseconds, in hope of more work: those of
    this process are ended, and come again when they are needed.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    if LOADED and hasattr(LOADED, "omp_pause_resource_all"):
        LOADED.omp_pause_resource_all(SOFTLY)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def dismiss(hands: list[H], owner: int, seconds: float = 0) -> None:
    """Let workers go; not in a process that only inherited them."""
    if os.getpid() != owner:
        return
    while hands:
        hands.pop().dismiss(seconds)


def lost(engine: Serial, question: Question, portion: Portion, fate: str) -> ClientError:
    """A portion that no worker survives."""
    names = [engine.names[i] for i in question.cohort[portion].tolist()]
    who = f"client {names[0]}" if len(names) == 1 else f"clients {', '.join(names)}"
    return ClientError(
        f"{DEATHS} worker processes died on {who}",
        code="U002",
        where=f"round {engine.round + 1}, {type(question.task).__name__}; the last one: {fate}",
        why="SIGKILL most often means that memory ran out; SIGSEGV, a fault in native code",
        fix="fewer workers or smaller batches; engine serial shows what happens in one process",
    )
