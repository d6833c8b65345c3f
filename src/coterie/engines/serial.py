"""The reference backend: one client after another, in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from coterie.core.client import Client
from coterie.core.errors import YOUR_CODE, ClientError, CoterieError
from coterie.core.types import Reply
from coterie.engines.question import Backend, Portion, Question, Refusal


class Serial(Backend):
    """Clients answer one after another. Every other backend is tested against this one.

    Portions of a cohort do not depend on each other, so worker processes can share them out.
    """

    def answers(self, question: Question) -> Iterator[tuple[int, Reply | Refusal]]:
        """What each place answers, one portion after another."""
        for places in self.portions(question):
            yield from zip(places, self.answer(question, places), strict=True)

    def portions(self, question: Question) -> list[Portion]:
        """The places of the cohort, divided into what is answered together: each by itself."""
        return [[j] for j in range(len(question.cohort))]

    def answer(self, question: Question, places: Sequence[int]) -> list[Reply]:
        """The answers of one portion, in the order of its places."""
        replies = []
        for j in places:
            client, rng = question.client(j), question.stream(j)
            with blaming(client, question):
                replies.append(
                    question.task(client, *question.payload(j), question.setting.layout, rng)
                )
        return replies


@contextmanager
def blaming(client: Client, question: Question) -> Iterator[None]:
    """Whatever a client's model or data raises, with the client's name."""
    try:
        yield
    except CoterieError:
        raise
    except YOUR_CODE as cause:
        raise ClientError(
            f"{type(cause).__name__} on client {client.name}: {cause}",
            code="U001",
            where=f"{question.when}, {type(question.task).__name__}, "
            f"{len(client)} samples of shape {tuple(client.x.shape[1:])}",
            why="the model, or the data it was given, raised this; the traceback is above",
            fix="run it on one client alone: the traceback is shown with --debug",
        ) from cause
