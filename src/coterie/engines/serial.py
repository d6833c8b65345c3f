"""The reference backend: one client after another, in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from coterie.core.client import Client
from coterie.core.errors import ClientError, CoterieError
from coterie.core.types import Reply
from coterie.engines.question import Portion, PortionedBackend, Question


class Serial(PortionedBackend):
    """Clients answer one after another. Every other backend is tested against this one."""

    def portions(self, question: Question) -> list[Portion]:
        """Every place by itself."""
        return [[j] for j in range(len(question.cohort))]

    def answer(self, question: Question, places: Sequence[int]) -> list[Reply]:
        """The answers of some places, each by itself."""
        return [answer_alone(question, j) for j in places]


def answer_alone(question: Question, place: int) -> Reply:
    """The answer of one client, by itself."""
    client, rng = question.client(place), question.stream(place)
    with blaming(client, question):
        return question.task(client, *question.payload(place), question.setting.layout, rng)


@contextmanager
def blaming(client: Client, question: Question) -> Iterator[None]:
    """Whatever a client's model or data raises, with the client's name."""
    try:
        yield
    except CoterieError:
        raise
    except Exception as cause:
        raise ClientError(
            f"{type(cause).__name__} on client {client.name}: {cause}",
            code="U001",
            where=f"round {question.round + 1}, {type(question.task).__name__}, "
            f"{len(client)} samples of shape {tuple(client.x.shape[1:])}",
            why="the model, or the data it was given, raised this; the traceback is above",
            fix="run it on one client alone: the traceback is shown with --debug",
        ) from cause
