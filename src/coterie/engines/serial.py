"""The reference engine: one client after another, in this process."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from coterie.core.client import Client
from coterie.core.errors import ClientError, CoterieError, DivergedError
from coterie.core.layout import Layout
from coterie.core.rng import stream
from coterie.core.types import Asked, Replies, Reply, State, Task


@runtime_checkable
class Changing(Protocol):
    """Clients whose data may be others in a later round."""

    def at(self, round: int) -> Any:
        """The clients of a round."""


@dataclass(frozen=True)
class Question:
    """One `ask`: what is asked of whom, with what."""

    cohort: Tensor  # (m,) client ids; a place is an index into it
    task: Task
    state: State
    send: Mapping[str, Tensor]  # (m, ...) or (1, ...)
    call: int  # which `ask` of the round it is


class Serial:
    """A federation in one process. Views made by `at` share its clients, memories and ledger."""

    def __init__(
        self,
        clients: Sequence[Client],
        layout: Layout,
        *,
        classes: int,
        seed: int = 0,
        sizes: Tensor | None = None,
        names: Sequence[str] | None = None,
        public: Tensor | None = None,
    ) -> None:
        self.source = self.population = clients
        self.layout, self.classes = layout, classes
        self.seed, self.public = seed, public
        self.clients = torch.arange(len(clients))
        self.names = list(names) if names is not None else [c.name for c in clients]
        # Lazy populations know their sizes without making every client's tensors.
        self.sizes = (
            torch.tensor([float(len(c)) for c in clients], dtype=torch.float64)
            if sizes is None
            else sizes.double()
        )
        self.notes: tuple[str, ...] = ()  # what a user should know of how clients are reached
        self.ledger: list[Asked] = []
        self.memory: dict[int, dict[str, Tensor]] = {}
        self.round, self.purpose, self.calls, self.draws = -1, "train", 0, 0

    def at(self, round: int, purpose: str = "train") -> Serial:
        """The same federation as seen in one round; its random addresses start anew."""
        view = copy.copy(self)
        if isinstance(self.source, Changing):
            now = self.source.at(round)
            view.population, view.sizes = now, now.sizes.double()
        view.round, view.purpose, view.calls, view.draws = round, purpose, 0, 0
        return view

    def close(self) -> None:
        """Nothing was started."""

    def memories(self) -> Mapping[int, Mapping[str, Tensor]]:
        """The private memory of every client that has one."""
        return self.memory

    def restore(self, memories: Mapping[int, Mapping[str, Tensor]]) -> None:
        """Put private memories back, in place, so that every view sees them."""
        self.memory.clear()
        self.memory.update({i: dict(m) for i, m in memories.items()})

    def sample(self, fraction: float, among: Tensor | None = None) -> Tensor:
        """A random cohort of at least one client, in increasing order; nobody among nobody."""
        pool = self.clients if among is None else among
        m = min(len(pool), max(1, int(fraction * len(pool) + 0.5)))
        rng = stream(self.seed, "sample", self.round, self.draws)
        self.draws += 1
        return pool[torch.randperm(len(pool), generator=rng)[:m]].sort().values

    def ask(self, cohort: Tensor, task: Task, state: State, **send: Tensor) -> Replies:
        """Ask each client of the cohort; count every byte; drop what is not finite, by name."""
        began = time.perf_counter()
        self.check(cohort, task, state, send)
        question = Question(cohort, task, state, send, self.calls)
        self.calls += 1
        down = torch.full_like(cohort, self.weight(question) if len(cohort) else 0)
        ids, up = cohort.tolist(), [0] * len(cohort)
        got: dict[int, Reply] = {}
        rejected: dict[int, str] = {}
        for j, reply in self.answers(question):
            i = ids[j]
            up[j] = sum(t.nbytes for t in (reply.value, *reply.extra.values()))
            if self.purpose == "train":
                if fault := not_finite(reply):
                    rejected[i] = fault
                    continue
                if reply.keep:
                    self.memory[i] = {**self.memory.get(i, {}), **reply.keep}
            got[i] = reply
        self.ledger.append(
            Asked(
                self.round,
                self.purpose,
                type(task).__name__,
                cohort,
                down,
                torch.tensor(up, dtype=cohort.dtype),
                rejected,
                time.perf_counter() - began,
            )
        )
        if rejected and not got:
            raise self.diverged(rejected, task)
        return self.gather(got)

    def check(self, cohort: Tensor, task: Task, state: State, send: Mapping[str, Tensor]) -> None:
        """Refuse a question that has no meaning, before anybody is asked."""
        if (cohort.diff() <= 0).any():
            raise ValueError("a cohort must be in increasing order, each client once")
        if task.receives == "own" and (state.assign[cohort] < 0).any():
            nobody = int(cohort[state.assign[cohort] < 0][0])
            raise ValueError(
                f"client {self.names[nobody]} holds no model yet; "
                "place it before asking it to train"
            )
        for name, rows in send.items():
            if len(rows) not in (1, len(cohort)):
                raise ValueError(f"{name}: {len(rows)} rows sent to {len(cohort)} clients")

    def answers(self, question: Question) -> Iterator[tuple[int, Reply]]:
        """What each place of the cohort answers, in any order."""
        for places in self.portions(question):
            yield from zip(places, self.answer(question, places), strict=True)

    def portions(self, question: Question) -> list[list[int]]:
        """The places of the cohort, divided into what is worked on at once."""
        return [[j] for j in range(len(question.cohort))]

    def answer(self, question: Question, places: Sequence[int]) -> list[Reply]:
        """The answers of some places of the cohort. Other engines replace this."""
        return [self.deliver(question, j) for j in places]

    def payload(self, question: Question, j: int) -> tuple[Tensor, dict[str, Tensor]]:
        """What travels to the client at place j: models, of them the columns asked, and rows."""
        task, state = question.task, question.state
        sent = {name: rows[j if len(rows) > 1 else 0] for name, rows in question.send.items()}
        if task.receives == "nothing":
            return torch.empty(0), sent
        own = state.assign[question.cohort[j]]
        models = state.models if task.receives == "all" else state.models[own]
        return models[..., self.layout.columns(task.download)], sent

    def weight(self, question: Question) -> int:
        """The bytes of what travels to each client: the same for all, for the shapes are."""
        models, sent = self.payload(question, 0)
        return sum(t.nbytes for t in (models, *sent.values()))

    def deliver(self, question: Question, j: int) -> Reply:
        """The answer of the client at place j of the cohort."""
        task, client, rng = question.task, self.client(question, j), self.stream(question, j)
        with self.blaming(client, task):
            return task(client, *self.payload(question, j), self.layout, rng)

    def client(self, question: Question, j: int) -> Client:
        """The client at place j of the cohort, with its private memory."""
        i = int(question.cohort[j])
        client = self.population[i]
        return replace(client, memory=self.memory[i]) if i in self.memory else client

    def stream(self, question: Question, j: int) -> torch.Generator:
        """The random numbers of the client at place j: by its name, wherever it is reached."""
        name = self.names[int(question.cohort[j])]
        return stream(self.seed, self.purpose, self.round, question.call, name)

    @contextmanager
    def blaming(self, client: Client, task: Task) -> Iterator[None]:
        """Whatever a client's model or data raises, with the client's name."""
        try:
            yield
        except CoterieError:
            raise
        except Exception as cause:
            raise ClientError(
                f"{type(cause).__name__} on client {client.name}: {cause}",
                code="U001",
                where=f"round {self.round + 1}, {type(task).__name__}, {len(client)} samples "
                f"of shape {tuple(client.x.shape[1:])}",
                why="the model, or the data it was given, raised this; the traceback is above",
                fix="run it on one client alone: the traceback is shown with --debug",
            ) from cause

    def gather(self, got: Mapping[int, Reply]) -> Replies:
        """Replies in the order of client ids, whatever order they came in."""
        order = sorted(got)
        clients = torch.tensor(order, dtype=torch.long)
        if not order:
            return Replies(clients, torch.empty(0, self.layout.size), self.sizes[clients])
        extra = got[order[0]].extra
        return Replies(
            clients,
            torch.stack([got[i].value for i in order]),
            self.sizes[clients],
            {name: torch.stack([got[i].extra[name] for i in order]) for name in extra},
        )

    def diverged(self, rejected: Mapping[int, str], task: Task) -> DivergedError:
        """Nobody sent a finite answer: there is nothing left to go on with."""
        first, fault = next(iter(rejected.items()))
        return DivergedError(
            f"all {len(rejected)} clients sent updates that are not finite "
            f"in round {self.round + 1}",
            code="R014",
            where=f"client {self.names[first]}: {fault}",
            why=f"the learning rate is probably too high for this model ({task})",
            fix="train.lr a tenth of what it is; the last whole round is still saved",
        )


def not_finite(reply: Reply) -> str:
    """Why a reply cannot be used, or nothing."""
    for name, t in (("update", reply.value), *reply.extra.items()):
        if math.isfinite(t.sum()):  # one pass tells; only a sum that overflows is looked at again
            continue
        if bad := int((~torch.isfinite(t)).sum()):
            return f"{bad} of {t.numel()} values of its {name} are not finite"
    return ""
