"""The Flower backend: questions as messages to clients on machines of their own.

A round without a quorum is abandoned: nothing of it is kept, and it is done again with other draws.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from flwr.app import Message
from torch import Tensor

from coterie.core.errors import DivergedError, QuorumError
from coterie.core.layout import Layout
from coterie.core.model_kind import ModelKind, declared
from coterie.core.shares import capped
from coterie.core.types import Engine, Evaluation, Federation, Method, Reply, State
from coterie.core.units import count
from coterie.engines.door import judge
from coterie.engines.flower import messages, validate
from coterie.engines.flower.exchange import Exchange
from coterie.engines.flower.inbox import HEADS
from coterie.engines.flower.messages import Asking
from coterie.engines.flower.validate import Address, NotFiniteError, RefusedError
from coterie.engines.front import Front
from coterie.engines.question import Backend, Question, Refusal
from coterie.tasks import wire

ANY = 1 << 24  # bytes of an answer whose form nobody knows, if its model is small
SPARE = 60.0  # seconds that a message outlives its deadline, so that a late answer is seen


@dataclass(frozen=True)
class Deadlines:
    """How long is waited, for how many, and how far back a resumed run may go."""

    deadline: float = 600.0  # seconds of one question
    quorum: float = 0.5  # share of a cohort without which a round is abandoned
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


class AbandonedError(QuorumError):
    """Too few clients answered a question of a round."""

    def __init__(
        self, question: Question, answered: Collection[int], needed: int, *, diverged: bool
    ) -> None:
        asked, names, self.round = question.cohort.tolist(), question.setting.names, question.round
        missing = [names[i] for i in asked if i not in answered]
        shown = ", ".join(missing[:10]) + (", ..." if len(missing) > 10 else "")
        super().__init__(
            f"{len(answered)} of {len(asked)} clients answered in round {self.round + 1}, "
            f"{needed} are needed",
            code="Q001",
            where=f"without a usable answer: {shown}",
        )
        self.diverged = diverged


class Flower(Backend):
    """Clients at the far end of an `Exchange`: whoever answers in time and as it must.

    Their data and memories never come here: only their answers do, each looked at before a number
    of it is used. A round whose quorum does not answer is abandoned.
    """

    holds_memories = False

    def __init__(
        self,
        exchange: Exchange,
        sizes: Tensor,
        *,
        experiment: str,
        setup: Mapping[str, Any],
        deadlines: Deadlines,
        most: float = 1.0,
    ) -> None:
        self.exchange, self.experiment, self.setup = exchange, experiment, json.dumps(setup)
        self.declared, self.most = sizes, most
        self.sizes = sizes.clone()  # the federation's own: as they count
        self.count()
        self.deadlines = deadlines
        self.void: dict[str, set[int]] = {}  # name -> abandoned rounds it took part in

    def answers(self, question: Question) -> Iterator[tuple[int, Reply | Refusal]]:
        """Refusals as they came, then the answers that can be used, in the order of the cohort."""
        places = {question.name(j): j for j in range(len(question.cohort))}
        layout = question.setting.layout
        form, train = question.form(0) if places else None, question.purpose == "train"
        limit = validate.size_of(form or {}) or max(ANY, 32 * layout.size)
        usable: dict[int, Reply] = {}
        refused: dict[int, Refusal] = {}

        def accept(name: str, message: Message) -> bool:
            j, samples = places[name], self.exchange.clients[name].samples
            try:
                if message.has_error():
                    raise RefusedError(str(message.error.reason))
                address, form = self.address(question, j), question.form(j)
                reply = messages.answered(message.content, address, form, samples, limit)
            except RefusedError as error:
                refused[j] = Refusal(str(error), finite=not isinstance(error, NotFiniteError))
                return False
            # The front would refuse it, too; but whoever waits for a quorum counts what is usable.
            if fault := judge(reply, form, train=train):
                refused[j] = Refusal(*fault)
                return False
            usable[j] = reply
            self.count(int(question.cohort[j]), samples)
            return True

        self.exchange.exchange(
            {name: self.message_for(question, j) for name, j in places.items()},
            accept,
            deadline=self.deadlines.deadline,
            needed=self.deadlines.needed(len(places)),
            largest=limit + HEADS,
        )
        yield from refused.items()
        yield from sorted(usable.items())

    def count(self, client: int | None = None, samples: int = 0) -> None:
        """Who comes later says then how many samples it has; nobody counts for more than `most`."""
        if client is not None:
            self.declared[client] = float(samples)
        self.sizes.copy_(capped(self.declared, self.most))

    def conclude(
        self, question: Question, answered: Collection[int], refused: Mapping[int, Refusal]
    ) -> None:
        """Abandon a round for which too few answered; a test needs but one answer."""
        if not question.needed:
            return
        asked = question.cohort.tolist()
        needed = self.deadlines.needed(len(asked)) if question.purpose == "train" else 1
        if not asked or len(answered) >= needed:
            return
        for i in asked:
            self.void.setdefault(question.setting.names[i], set()).add(question.round)
        wild = sum(not refusal.finite for refusal in refused.values())
        diverged = 0 < wild == len(asked) - len(answered)
        if diverged and question.purpose != "train":  # a test is not tried again
            super().conclude(question, answered, refused)
        raise AbandonedError(question, answered, needed, diverged=diverged)

    def message_for(self, question: Question, place: int) -> Callable[[int], Message]:
        """Makes the message for one client, given the node at which it is found."""
        models, sent = question.payload(place)
        content = messages.asking(
            Asking(
                self.address(question, place),
                question.setting.seed,
                wire.encode(question.task),
                self.setup,
                models,
                sent,
                self.deadlines.floor(question.round),
                tuple(sorted(self.void.get(question.name(place), set()) - {question.round})),
            )
        )

        def message(node: int) -> Message:
            return Message(
                content,
                dst_node_id=node,
                message_type=messages.TASK[question.purpose],
                ttl=self.deadlines.deadline + SPARE,
                group_id=str(question.round),
            )

        return message

    def address(self, question: Question, place: int) -> Address:
        """What a question is about, for one client."""
        return Address(
            self.experiment,
            question.purpose,
            question.round,
            question.call,
            question.name(place),
        )


def federation(
    exchange: Exchange,
    layout: Layout,
    names: Sequence[str],
    *,
    classes: int,
    experiment: str,
    setup: Mapping[str, Any],
    deadlines: Deadlines | None = None,
    seed: int = 0,
    public: Tensor | None = None,
    most: float = 1.0,
) -> Front:
    """The federation of the clients at the far end of an exchange.

    `names` are all who may take part; those who are not there are simply absent. Nobody counts for
    more than a share of `most` of the samples, of all or of a cluster of more than two.
    """
    there = exchange.clients
    known = [float(client.samples) for client in there.values()]
    usual = torch.tensor(known or [1.0]).median().item()  # of those who were never there
    sizes = torch.tensor(
        [float(there[name].samples) if name in there else usual for name in names],
        dtype=torch.float64,
    )
    backend = Flower(
        exchange,
        sizes,
        experiment=experiment,
        setup=setup,
        deadlines=deadlines or Deadlines(),
        most=most,
    )
    return Front(
        (),
        layout,
        classes=classes,
        seed=seed,
        sizes=backend.sizes,
        names=names,
        public=public,
        backend=backend,
        declared=backend.declared,
        most=most,
    )


@dataclass(frozen=True)
class Retrying:
    """A method whose rounds are tried up to `attempts` times. A round commits whole or not at all:
    an abandoned attempt leaves the state as it was, bit for bit."""

    method: Method
    attempts: int
    tell: Callable[[dict[str, Any]], None] = field(default=lambda event: None, repr=False)

    def __repr__(self) -> str:
        return repr(self.method)

    @property
    def kind(self) -> ModelKind | None:
        """Whose models the method makes."""
        return declared(self.method)

    @property
    def score(self) -> Evaluation:
        """How a client of the method is tested."""
        return self.method.score

    def init(self, fed: Federation) -> State:
        """The state before the first round."""
        return self._tried(fed, self.method.init)

    def round(self, state: State, fed: Federation) -> State:
        """One round."""
        return self._tried(fed, lambda view: self.method.round(state, view))

    def place(self, state: State, fed: Federation) -> State:
        """Give a model to newcomers and to whoever missed the call."""
        return self._tried(fed, lambda view: self.method.place(state, view))

    def _tried(self, fed: Federation, work: Callable[[Federation], State]) -> State:
        engine = cast(Engine, fed)  # as `run` gives it to a method
        last: AbandonedError | None = None
        for attempt in range(self.attempts):
            try:
                return work(engine.at(engine.round, attempt=attempt) if attempt else engine)
            except AbandonedError as fault:
                last = fault
                event = {"event": "abandoned", "round": fault.round + 1, "attempt": attempt + 1}
                self.tell({**event, "why": f"{fault.what}; {fault.where}"})
        assert last is not None
        if last.diverged:
            raise DivergedError(
                last.what,
                code="R014",
                where=last.where,
                why="every update that is missing was not finite; the learning rate is probably "
                "too high for this model",
                fix="train.lr a tenth of what it is; the last whole round is still saved",
            ) from last
        raise QuorumError(
            last.what,
            code="Q001",
            where=last.where,
            why=f"the round was abandoned {count(self.attempts, 'time')} (engine.max_abandoned)",
            fix="bring the clients back and resume; or lower engine.quorum, or raise "
            "engine.deadline",
        ) from last
