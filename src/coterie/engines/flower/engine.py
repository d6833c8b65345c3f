"""The federation as methods see it, over Flower's messages: the serial engine's `ask`, far away."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from flwr.app import Message
from torch import Tensor

from coterie.core.layout import Layout
from coterie.core.types import Replies, Reply, State, Task
from coterie.engines.flower import messages, validate
from coterie.engines.flower.exchange import Exchange
from coterie.engines.flower.messages import Asking
from coterie.engines.flower.retry import AbandonedError
from coterie.engines.flower.validate import Address, Forms, RefusedError
from coterie.engines.serial import Question, Serial
from coterie.tasks import wire

SPARE = 60.0  # seconds that a message outlives its deadline, so that a late answer is seen


@dataclass(frozen=True)
class Deadlines:
    """How long is waited, for how many, and how far back a resumed run may go."""

    deadline: float = 600.0  # seconds of one question
    quorum: float = 0.5  # share of a cohort without which a round is abandoned
    max_abandoned: int = 3  # rounds in a row
    checkpoint_every: int = 1
    keep: int = 2

    def needed(self, asked: int) -> int:
        """How many of so many must answer; at least one.

        >>> [Deadlines(quorum=q).needed(5) for q in (0.5, 1.0, 0.0)]
        [3, 5, 1]
        """
        return max(1, math.ceil(self.quorum * asked - 1e-9))

    def floor(self, round: int) -> int:
        """The last round whose memory the oldest checkpoint needs.

        >>> Deadlines().floor(7), Deadlines(checkpoint_every=5).floor(7), Deadlines().floor(0)
        (5, -1, -1)
        """
        every = self.checkpoint_every
        return max(0, (max(round, 0) // every - (self.keep - 1)) * every) - 1


class Flower(Serial):
    """A federation of clients that sit at the far end of a `Exchange`.

    Their data and memories never come here: only their answers do, each looked at before a number
    of it is used. `names` are all who may take part; those who are not there are simply absent.
    """

    def __init__(
        self,
        desk: Exchange,
        layout: Layout,
        names: Sequence[str],
        *,
        classes: int,
        experiment: str,
        setup: Mapping[str, Any],
        terms: Deadlines | None = None,
        seed: int = 0,
        public: Tensor | None = None,
    ) -> None:
        known = [float(g.samples) for g in desk.guests.values()]
        usual = torch.tensor(known or [1.0]).median().item()  # of those who were never there
        sizes = [float(g.samples) if (g := desk.guests.get(n)) else usual for n in names]
        super().__init__(
            [],
            layout,
            classes=classes,
            seed=seed,
            sizes=torch.tensor(sizes, dtype=torch.float64),
            names=names,
            public=public,
        )
        self.clients = torch.arange(len(names))
        self.desk, self.experiment, self.setup = desk, experiment, json.dumps(setup)
        self.terms = terms or Deadlines()
        self.void: dict[str, set[int]] = {}  # name -> abandoned rounds it took part in
        self.refused: dict[int, str] = {}
        self.strange = 0  # answers of the last question that were not finite

    def memories(self) -> Mapping[int, Mapping[str, Tensor]]:
        """Nothing: what clients keep stays with them."""
        return {}

    def restore(self, memories: Mapping[int, Mapping[str, Tensor]]) -> None:
        """Nothing to put back: clients have kept what is theirs."""

    def ask(self, cohort: Tensor, task: Task, state: State, **send: Tensor) -> Replies:
        """As the serial engine; a round whose quorum does not answer is abandoned."""
        self.refused, self.strange = {}, 0
        replies = super().ask(cohort, task, state, **send)
        if self.refused:
            self.ledger[-1] = replace(self.ledger[-1], rejected=self.refused)
        needed = self.terms.needed(len(cohort)) if self.purpose == "train" else 1
        if len(cohort) and len(replies.clients) < needed:
            got = set(replies.clients.tolist())
            for i in cohort.tolist():
                self.void.setdefault(self.names[i], set()).add(self.round)
            raise AbandonedError(
                self.round,
                len(replies.clients),
                len(cohort),
                needed,
                [self.names[i] for i in cohort.tolist() if i not in got],
                diverged=0 < self.strange == len(cohort) - len(got),
            )
        return replies

    def answers(self, question: Question) -> Iterator[tuple[int, Reply]]:
        """Whoever answers in time and as it must."""
        cohort = question.cohort.tolist()
        place = {self.names[i]: j for j, i in enumerate(cohort)}
        forms, limit = self.forms(question), max(1 << 26, 32 * self.layout.size)
        got: dict[int, Reply] = {}

        def accept(name: str, message: Message) -> bool:
            j = place[name]
            samples = self.desk.guests[name].samples
            try:
                at = self.address(question, name)
                got[j] = messages.answered(message.content, at, forms, samples, limit)
            except RefusedError as fault:
                self.refused[cohort[j]] = str(fault)
                self.strange += "not finite" in str(fault)
                return False
            self.sizes[cohort[j]] = float(samples)
            return True

        self.desk.exchange(
            {name: self.letter(question, j, name) for name, j in place.items()},
            accept,
            deadline=self.terms.deadline,
            needed=self.terms.needed(len(cohort)),
        )
        odd = validate.odd_ones({j: reply_forms(got[j]) for j in sorted(got)})
        for j, why in odd.items():
            self.refused[cohort[j]] = why
        yield from ((j, reply) for j, reply in sorted(got.items()) if j not in odd)

    def letter(self, question: Question, j: int, name: str) -> Any:
        """Makes the message for the client at place j, wherever it is found."""
        models, sent = self.payload(question, j)
        asking = Asking(
            self.address(question, name),
            self.seed,
            wire.encode(question.task),
            self.setup,
            models,
            sent,
            self.terms.floor(self.round),
            tuple(sorted(self.void.get(name, set()) - {self.round})),
        )
        content = messages.asking(asking)

        def write(node: int) -> Message:
            return Message(
                content,
                dst_node_id=node,
                message_type=messages.TASK[self.purpose],
                ttl=self.terms.deadline + SPARE,
                group_id=str(self.round),
            )

        return write

    def address(self, question: Question, name: str) -> Address:
        """What a question is about, for one client."""
        return Address(self.experiment, self.purpose, self.round, question.call, name)

    def forms(self, question: Question) -> Forms | None:
        """The form that an answer must have, where the task alone tells."""
        return question.task.answer_form(self.layout)


def reply_forms(reply: Reply) -> Forms:
    """The forms of all that a reply holds."""
    values = {"update": reply.value, **reply.extra}
    return {name: validate.form_of(t) for name, t in values.items()}
