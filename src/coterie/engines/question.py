"""A question on its way to a backend, and the one narrow interface that every backend has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from coterie.core.client import Client
from coterie.core.errors import DivergedError, QuorumError
from coterie.core.layout import Layout
from coterie.core.rng import stream
from coterie.core.types import AnswerForm, Known, Release, Reply, State, Task

Portion = list[int]  # places of a cohort that are answered together


@runtime_checkable
class Changing(Protocol):
    """Clients whose data may be others in a later round."""

    def at(self, round: int) -> Any:
        """The clients of a round."""

    def away(self, round: int) -> Tensor | None:
        """(n,) who has not come yet; None: everybody is there."""


@dataclass(frozen=True)
class Setting:
    """What all questions of a federation have in common."""

    population: Sequence[Client]  # empty where the clients' data are elsewhere
    names: Sequence[str]  # (n,) of all clients
    samples: int  # of all clients together, for whoever has to make room for them
    layout: Layout
    classes: int
    seed: int


@dataclass(frozen=True)
class Question:
    """One `ask`: what is asked of whom, with what, and all that answering it takes.

    A place is an index into the cohort; replies are told by place.
    """

    setting: Setting
    round: int
    purpose: str
    call: int  # which `ask` of the round it is
    cohort: Tensor  # (m,) client ids
    sizes: Tensor  # (m,) training samples of each
    task: Task
    state: State
    send: Mapping[str, Tensor]  # (m, ...) or (1, ...)
    memories: Mapping[int, Mapping[str, Tensor]]  # by client id, of those who remember anything
    needed: bool = True  # False: the round goes on though nobody's answer can be used

    @property
    def when(self) -> str:
        """In which round it is asked, or after which one its test is, in words."""
        if self.purpose == "evaluate":
            return f"the test after round {self.round}" if self.round else "the first test"
        return f"round {self.round + 1}"

    @cached_property
    def clients(self) -> Sequence[Client]:
        """The clients of all ids, as they are in this round."""
        population = self.setting.population
        return population.at(self.round) if isinstance(population, Changing) else population

    @cached_property
    def ids(self) -> list[int]:
        """The client at each place."""
        found: list[int] = self.cohort.tolist()
        return found

    @cached_property
    def samples(self) -> list[float]:
        """The training samples of the client at each place."""
        found: list[float] = self.sizes.tolist()
        return found

    @cached_property
    def held(self) -> list[int]:
        """The model that the client at each place holds; -1: none."""
        found: list[int] = self.state.assign[self.cohort].tolist()
        return found

    @cached_property
    def forms(self) -> dict[float, AnswerForm | None]:
        """The forms that are known already, by the training samples of a client."""
        return {}

    def check(self) -> None:
        """Refuse a question that has no meaning, before anybody is asked."""
        if (self.cohort.diff() <= 0).any():
            raise ValueError("a cohort must be in increasing order, each client once")
        if self.task.receives == "own" and (self.state.assign[self.cohort] < 0).any():
            nobody = int(self.cohort[self.state.assign[self.cohort] < 0][0])
            raise ValueError(
                f"client {self.setting.names[nobody]} holds no model yet; "
                "place it before asking it to train"
            )
        for name, rows in self.send.items():
            if len(rows) not in (1, len(self.cohort)):
                raise ValueError(f"{name}: {len(rows)} rows sent to {len(self.cohort)} clients")

    def sent(self, place: int) -> dict[str, Tensor]:
        """What travels to one client beside the models: its rows."""
        return {name: rows[place if len(rows) > 1 else 0] for name, rows in self.send.items()}

    def payload(self, place: int) -> tuple[Tensor, dict[str, Tensor]]:
        """What travels to one client: models, of them the columns asked, and its rows."""
        task, state, sent = self.task, self.state, self.sent(place)
        if task.receives == "nothing":
            return torch.empty(0), sent
        models = state.models if task.receives == "all" else state.models[self.held[place]]
        return models[..., self.setting.layout.columns(task.download)], sent

    def form(self, place: int) -> AnswerForm | None:
        """What the answer of one client may be: where all are sent the same, its size decides."""
        if self.send:
            return self.task.answer_form(self.known(place))
        size = self.samples[place]
        if size not in self.forms:
            self.forms[size] = self.task.answer_form(self.known(place))
        return self.forms[size]

    def spends(self, place: int) -> Sequence[Release] | None:
        """What of its privacy the answer of one client spends; None: nothing hides it."""
        return self.task.spends(self.known(place))

    def known(self, place: int) -> Known:
        """What a server knows of one of those whom it asks."""
        setting, samples, sent = self.setting, int(self.samples[place]), self.sent(place)
        return Known(setting.layout, self.state.k, setting.classes, samples, sent)

    def payload_bytes(self) -> int:
        """The bytes of what travels to each client: the same for all, for the shapes are."""
        if not len(self.cohort):
            return 0
        models, sent = self.payload(0)
        return sum(t.nbytes for t in (models, *sent.values()))

    def name(self, place: int) -> str:
        """The name of the client at a place."""
        return self.setting.names[self.ids[place]]

    def client(self, place: int) -> Client:
        """The client at a place, with its private memory."""
        i = self.ids[place]
        client = self.clients[i]
        return replace(client, memory=self.memories[i]) if i in self.memories else client

    def stream(self, place: int) -> torch.Generator:
        """The random numbers of the client at a place: by its name, wherever it is reached."""
        return stream(self.setting.seed, self.purpose, self.round, self.call, self.name(place))


@dataclass(frozen=True)
class Refusal:
    """An answer that came and is not used, and why."""

    why: str
    finite: bool = True  # False: its numbers are not finite, as when training diverges


class Backend(ABC):
    """Whoever answers questions. What was asked, what crossed and who remembers is the front's."""

    notes: Sequence[str] = ()  # what a user should know of how the clients are reached
    # Whether private memories come back in `Reply.keep`, to be kept here between questions; False
    # where clients are on machines of their own, which keep them.
    holds_memories = True

    @abstractmethod
    def answers(self, question: Question) -> Iterator[tuple[int, Reply | Refusal]]:
        """What each place answers, in any order; who does not answer is left out."""

    def conclude(
        self, question: Question, answered: Collection[int], refused: Mapping[int, Refusal]
    ) -> None:
        """Raise if too few answers, by id, can be used: none, though one is needed."""
        if answered or not refused or not question.needed:
            return
        first, refusal = next(iter(refused.items()))
        where = f"client {question.setting.names[first]}: {refusal.why}"
        if any(refusal.finite for refusal in refused.values()):
            raise QuorumError(
                f"none of the {len(refused)} answers in {question.when} can be used",
                code="Q003",
                where=where,
                why=f"they are not what {type(question.task).__name__} declares its answers to be",
                fix="events.jsonl has the reason for each client; for a task of your own, look at "
                "its answer_form",
            )
        why = f"the learning rate is probably too high for this model ({question.task})"
        fix = "train.lr a tenth of what it is; the last whole round is still saved"
        if question.round < 1 and question.purpose == "evaluate":  # nothing has learned yet
            why = "no rate has done this: the samples are probably far too large for the network"
            fix = "data.scaling: standard, or smaller numbers"
        raise DivergedError(
            f"all {len(refused)} clients left the finite numbers in {question.when}",
            code="R014",
            where=where,
            why=why,
            fix=fix,
        )

    def mended(self) -> Sequence[str]:
        """What broke and was put right since this was last asked, in words."""
        return ()

    def stack(self, answers: Sequence[Tensor]) -> Tensor:
        """What several clients answered as one tensor, which nobody else holds."""
        return torch.stack(list(answers))

    def close(self) -> None:  # noqa: B027  most start nothing
        """End whatever was started to answer; a further question starts it again."""
