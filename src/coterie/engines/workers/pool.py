"""The pool engine: clients answered by worker processes side by side, to the same bits."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Self

from coterie.core.types import Reply
from coterie.engines.serial import Question, Serial
from coterie.engines.workers.crew import Crew
from coterie.engines.workers.processes import Processes
from coterie.engines.workers.worker import Failure, Portion


class Pool(Serial):
    """A federation whose questions are answered by `workers` processes, each with an engine inside.

    What is asked of whom, what crossed and who remembers what is kept here, as the engine inside
    would; only the answering is elsewhere. Each worker computes on one thread, so the answers are,
    to the bit, those of the engine inside on one thread, whoever gives them and when.

    Workers have the clients as they were at the first question, and start with it: call `start`
    before there are threads. They end with `close`, with the last view of the pool, or with this
    process, even if it is killed.
    """

    def __init__(self, inner: Serial, workers: int | Crew[Any]) -> None:
        vars(self).update(vars(inner))  # one memory, one ledger, one set of clients
        self.inner = inner
        self.crew = Processes(workers) if isinstance(workers, int) else workers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> Self:
        """Start the workers now instead of with the first question."""
        self.crew.start(self.inside())
        return self

    def close(self) -> None:
        """End the workers; another question would start new ones."""
        self.crew.close()

    def inside(self) -> Serial:
        """The engine inside, as this view of the federation has it."""
        inner = copy.copy(self.inner)
        vars(inner).update(
            {name: value for name, value in vars(self).items() if name in vars(inner)}
        )
        return inner

    def portions(self, question: Question) -> list[list[int]]:
        """As the engine inside divides the cohort."""
        return self.inside().portions(question)

    def answers(self, question: Question) -> Iterator[tuple[int, Reply]]:
        """What each place answers, in the order of the cohort, whatever order they came in."""
        portions = self.portions(question)
        if not portions:
            return
        load: list[float] = self.sizes[question.cohort].tolist()

        def weight(portion: Portion) -> float:
            return sum(load[j] for j in portion)

        answers = self.crew.ask(self.inside(), question, portions, weight)
        for j, answer in sorted(answers.items()):
            if isinstance(answer, Failure):
                raise answer.error()
            yield j, answer
