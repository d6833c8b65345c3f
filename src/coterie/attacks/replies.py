"""Attacks on replies: clients that send something else than what they trained."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from coterie.attacks.attackers import Attackers
from coterie.core.rng import stream
from coterie.core.types import Reply
from coterie.engines.question import Backend, Question, Refusal
from coterie.tasks.signature import whole
from coterie.tasks.train import Training
from coterie.tasks.verify import Gains


class Hostile(Backend):
    """Another backend, of whose clients some answer training with what an attack makes of it.

    It stands before the door, where a hostile client stands: what it sends is judged like
    everybody's, and is the same whichever engine is behind it.
    """

    def __init__(self, inner: Backend, them: Attackers) -> None:
        self.inner, self.attack, self.who = inner, them.attack, frozenset(them.who)
        self.notes, self.holds_memories = inner.notes, inner.holds_memories

    def answers(self, question: Question) -> Iterator[tuple[int, Reply | Refusal]]:
        """What each place answers."""
        begun = question.purpose == "train" and question.round >= self.attack.start - 1
        for j, answer in self.inner.answers(question):
            if begun and int(question.cohort[j]) in self.who and isinstance(answer, Reply):
                yield j, self.poisoned(answer, question, j)
            else:
                yield j, answer

    def poisoned(self, answer: Reply, question: Question, place: int) -> Reply:
        """A hostile answer; what does not train is answered honestly, unless the attack lies."""
        if self.attack.lies and isinstance(question.task, Gains):
            nothing_lost = torch.stack(
                [answer.extra["loss"].expand(len(answer.value)), torch.zeros(len(answer.value))], 1
            )
            return replace(answer, value=nothing_lost.to(answer.value))
        start = started_from(question, place, answer)
        if start is None:
            return answer
        value, force = answer.value, self.attack.force
        if self.attack.kind == "free-rider":
            at = question.round, question.call, question.name(place)
            rng = stream(question.setting.seed, "free-rider", *at)
            noise = torch.randn(value.shape, generator=rng, dtype=value.dtype)
            return replace(answer, value=start + force * noise)
        factor = force if self.attack.kind == "scaling" else -force
        return replace(answer, value=start + factor * (value - start))

    def conclude(
        self, question: Question, answered: Collection[int], refused: Mapping[int, Refusal]
    ) -> None:
        """As the backend behind it."""
        self.inner.conclude(question, answered, refused)

    def mended(self) -> Sequence[str]:
        """As the backend behind it."""
        return self.inner.mended()

    def stack(self, answers: Sequence[Tensor]) -> Tensor:
        """As the backend behind it."""
        return self.inner.stack(answers)

    def close(self) -> None:
        """As the backend behind it."""
        self.inner.close()


def started_from(question: Question, place: int, answer: Reply) -> Tensor | None:
    """The numbers that a trained answer was before its training; None if it is no such answer."""
    task, layout = question.task, question.setting.layout
    if not isinstance(task, Training) or not answer.value.numel():
        return None
    models, sent = question.payload(place)
    if task.receives == "all":
        rows = whole(models, sent, layout)
        return rows[answer.extra["choice"]] if "choice" in answer.extra else rows
    columns = getattr(task, "shared", getattr(task, "upload", task.download))
    row = layout.initial.clone()
    if models.numel():
        row[layout.columns(task.download)] = models
    else:  # it goes on with a model of its own
        memory = question.client(place).memory
        row = sent.get("start", memory.get("private", memory.get("model", row)))
    return row[layout.columns(columns)]
