"""What the front does, whoever answers: refusals, memories, attempts, and what a question says."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import pytest
import torch
from torch import Tensor

from coterie.core.bounds import dataclass
from coterie.core.rng import stream
from coterie.core.types import Client, Layout, Reply, Sent, State, Task
from coterie.engines.front import Front
from coterie.engines.question import Backend, Question, Refusal
from coterie.tasks import Losses, Score, Solver, Train
from tests.tiny import federation


@dataclass(frozen=True)
class Number(Task):
    """A question that does not say what its answer may be."""

    def __call__(
        self, client: Client, models: Tensor, sent: Sent, layout: Layout, rng: torch.Generator
    ) -> Reply:
        raise NotImplementedError


class Elsewhere(Backend):
    """A backend whose clients answer with their id, remember by themselves, and may be refused."""

    notes = ("far away",)
    holds_memories = False

    def __init__(self, refused: Mapping[int, Refusal] | None = None, least: int = 1) -> None:
        self.refused, self.least, self.closed = refused or {}, least, 0
        self.questions: list[Question] = []

    def answers(self, question: Question) -> Iterator[tuple[int, Reply | Refusal]]:
        self.questions.append(question)
        for j, i in reversed(list(enumerate(question.cohort.tolist()))):
            yield j, self.refused.get(i, Reply(torch.tensor([float(i)])))

    def conclude(
        self, question: Question, answered: Collection[int], refused: Mapping[int, Refusal]
    ) -> None:
        if len(answered) < self.least:
            raise TimeoutError(f"{sorted(answered)} answered, {sorted(refused)} were refused")

    def close(self) -> None:
        self.closed += 1


def far(backend: Elsewhere) -> Front:
    """A federation of three clients whose data are elsewhere."""
    sizes = torch.tensor([3.0, 5.0, 7.0])
    layout = federation().layout
    return Front((), layout, classes=4, names=["a", "b", "c"], sizes=sizes, backend=backend)


def everybody(fed: Front) -> State:
    return State.shared(fed.layout.initial, len(fed.clients))


def test_clients_elsewhere_are_those_that_are_named() -> None:
    fed = far(Elsewhere())
    assert fed.clients.tolist() == [0, 1, 2]
    replies = fed.at(0).ask(fed.clients, Number(), everybody(fed))
    assert replies.values.flatten().tolist() == [0, 1, 2]
    assert replies.sizes.tolist() == [3, 5, 7]
    assert list(fed.notes) == ["far away"]


def test_a_refusal_is_told_in_the_ledger_and_brought_nothing() -> None:
    fed = far(Elsewhere({1: Refusal("its shape is odd")}))
    replies = fed.at(0).ask(fed.clients, Number(), everybody(fed))
    assert replies.clients.tolist() == [0, 2]
    assert fed.ledger[-1].rejected == {1: "its shape is odd"}
    assert fed.ledger[-1].up.tolist() == [4, 0, 4]


def test_too_few_answers_are_the_backends_to_judge_and_still_in_the_ledger() -> None:
    fed = far(Elsewhere({1: Refusal("no")}, least=3))
    with pytest.raises(TimeoutError, match=r"\[0, 2\] answered, \[1\] were refused"):
        fed.at(0).ask(fed.clients, Number(), everybody(fed))
    assert fed.ledger[-1].up.sum() == 8


def test_memories_that_are_elsewhere_are_not_put_back_here() -> None:
    there, here = far(Elsewhere()), federation()
    for fed in (there, here):
        fed.restore({1: {"private": torch.ones(2)}})
    assert there.memories() == {}
    assert list(here.memories()) == [1]


def test_closing_a_view_closes_what_answers() -> None:
    backend = Elsewhere()
    with far(backend) as fed:
        fed.at(3).close()
    assert backend.closed == 2


def test_every_attempt_at_a_round_has_addresses_of_its_own() -> None:
    fed = federation()
    for attempt in (0, 1, 2):
        rng = stream(fed.seed, "sample", 4, 1000 * attempt)
        expected = torch.randperm(8, generator=rng)[:4].sort().values
        assert torch.equal(fed.at(4, attempt=attempt).sample(0.5), expected)


def test_a_question_says_when_it_was_asked_and_of_whom() -> None:
    backend = Elsewhere()
    view = far(backend).at(4, "evaluate")
    for _ in range(2):
        view.ask(view.clients[1:], Number(), everybody(view))
    first, second = backend.questions
    assert [(q.round, q.purpose, q.call) for q in (first, second)] == [
        (4, "evaluate", 0),
        (4, "evaluate", 1),
    ]
    assert [first.name(j) for j in range(2)] == ["b", "c"]
    assert first.sizes.tolist() == [5, 7]
    drawn = [torch.rand(1, generator=q.stream(0)) for q in (first, first, second)]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_in_the_first_rounds_everybody_is_drawn() -> None:
    fed = federation()
    fed.everybody = 2
    assert [len(fed.at(t).sample(0.25)) for t in (-1, 0, 1, 2)] == [2, 8, 8, 2]
    assert fed.at(1).sample(0.25, among=torch.tensor([3, 5])).tolist() == [3, 5]


def test_the_ledger_counts_the_samples_that_were_trained_on() -> None:
    fed = federation()
    state = State.shared(fed.layout.initial, 8)
    fed.at(0).ask(fed.clients[:2], Train(Solver(epochs=3)), state)
    epochs = torch.tensor([1, 2])
    fed.at(0).ask(fed.clients[:2], Train(Solver(epochs=3)), state, epochs=epochs)
    fed.at(0).ask(fed.clients, Losses(), state)
    fed.at(0, "evaluate").ask(fed.clients, Score(Solver()), state)
    assert [a.samples for a in fed.ledger] == [3 * (16 + 21), 16 + 2 * 21, 0, 0]
