from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from coterie.core.client import Client
from coterie.core.errors import ClientError, DivergedError
from coterie.core.layout import Layout
from coterie.core.loop import evaluate, run
from coterie.core.types import Replies, Reply, State, Task
from coterie.engines.front import Front
from coterie.engines.question import Question, Refusal
from coterie.engines.serial import Serial
from coterie.methods.fedavg import FedAvg, FedProx
from coterie.tasks.score import Score
from coterie.tasks.solver import Solver
from coterie.tasks.train import Train
from coterie.tasks.verify import Gains
from tests.tiny import CLASSES, client, federation, network, same

SOLVER = Solver(lr=0.1, batch=8)


def everybody(fed: Front) -> State:
    return State.shared(fed.layout.initial, len(fed.clients))


def test_fedprox_without_pull_is_fedavg_to_the_bit() -> None:
    a, b = (
        list(run(m, federation(), 3))[-1] for m in (FedAvg(SOLVER, 0.5), FedProx(SOLVER, 0.5, mu=0))
    )
    assert same(a, b)


def test_fedavg_of_one_client_is_that_client() -> None:
    fed = Front([client(3, 8)], Layout(network()), classes=CLASSES, seed=7)
    alone = fed.at(0).ask(fed.clients, Train(SOLVER), everybody(fed)).values[0]
    assert torch.equal(list(run(FedAvg(SOLVER), fed, 1))[-1].models[0], alone)


def test_two_asks_in_a_round_draw_differently_and_views_start_anew() -> None:
    fed = federation()
    view, again = fed.at(0), fed.at(0)
    first, second = (view.ask(fed.clients, Train(SOLVER), everybody(fed)).values for _ in range(2))
    assert not torch.equal(first, second)
    assert torch.equal(first, again.ask(fed.clients, Train(SOLVER), everybody(fed)).values)


def test_cohorts_are_drawn_by_seed_and_round_alone() -> None:
    fed = federation()
    draws = [fed.at(t).sample(0.5).tolist() for t in range(6)]
    assert draws == [federation().at(t).sample(0.5).tolist() for t in range(6)]
    assert len({tuple(d) for d in draws}) > 1
    assert all(d == sorted(set(d)) and len(d) == 4 for d in draws)


def test_at_least_one_client_is_drawn_and_nobody_among_nobody() -> None:
    fed = federation()
    assert len(fed.sample(0.001)) == 1
    assert len(fed.sample(1.0, among=torch.tensor([], dtype=torch.long))) == 0


def test_bytes_are_what_crossed() -> None:
    fed = federation()
    anchor = torch.zeros(1, fed.layout.size)
    task = Train(SOLVER, upload="head", report=("loss",))
    fed.at(0).ask(fed.clients[:3], task, everybody(fed), anchor=anchor)
    entry = fed.ledger[-1]
    head = len(fed.layout.initial[fed.layout.columns("head")])
    assert entry.down.tolist() == [2 * 4 * fed.layout.size] * 3
    assert entry.up.tolist() == [4 * head + 4] * 3


def test_the_order_in_which_answers_arrive_changes_nothing() -> None:
    fed = federation()
    got = {i: Reply(torch.full((3,), float(i)), {"loss": torch.tensor(1.0 * i)}) for i in range(8)}
    there, back = fed.gather(got), fed.gather(dict(reversed(got.items())))
    assert torch.equal(there.clients, back.clients)
    assert torch.equal(there.values, back.values)
    assert torch.equal(there.extra["loss"], back.extra["loss"])


def test_replies_refuse_disorder() -> None:
    with pytest.raises(ValueError, match="increasing client order"):
        Replies(torch.tensor([1, 0]), torch.zeros(2, 1), torch.ones(2))


def test_a_client_without_a_model_is_named() -> None:
    fed = federation()
    state = State(fed.layout.initial[None], torch.tensor([0, 0, 0, 0, 0, 0, -1, 0]))
    with pytest.raises(ValueError, match="client 6 holds no model yet; place it"):
        fed.at(0).ask(fed.clients, Train(SOLVER), state)


def poisoned(fed: Front, ids: list[int]) -> Front:
    people = list(fed.population)
    for i in ids:
        people[i] = replace(people[i], x=people[i].x * float("nan"))
    fed.population = people
    return fed


@pytest.mark.row(14)
def test_an_update_that_is_not_finite_is_left_out_by_name() -> None:
    fed = poisoned(federation(), [2])
    state = list(run(FedAvg(SOLVER), fed, 1))[-1]
    assert torch.isfinite(state.models).all()
    assert list(fed.ledger[-1].rejected) == [2]
    assert "not finite" in fed.ledger[-1].rejected[2]


@pytest.mark.row(14)
def test_when_nobody_is_finite_the_run_stops_and_says_why() -> None:
    with pytest.raises(DivergedError, match="all 8 clients") as error:
        list(run(FedAvg(SOLVER), poisoned(federation(), list(range(8))), 1))
    assert error.value.exit == 6
    assert "learning rate" in error.value.why


class Useless(Serial):
    """Nobody's answer can be used."""

    def answers(self, question: Question) -> Iterator[tuple[int, Reply | Refusal]]:
        return ((j, Refusal("of no use")) for j in range(len(question.cohort)))


@pytest.mark.row(14)
def test_a_question_whose_answers_are_no_use_stops_only_a_round_that_needs_them() -> None:
    fed = poisoned(federation(), [2])
    alone, first = torch.tensor([2]), State.shared(fed.layout.initial, 8)
    with pytest.raises(DivergedError, match="all 1 clients"):
        fed.at(0).ask(alone, Train(SOLVER), first)
    assert not fed.at(0, spare=alone).ask(alone, Train(SOLVER), first), "it waits to be placed"
    now = fed.at(0)
    assert len(now.ask(fed.clients, Train(SOLVER), first)) == 7
    assert not now.ask(alone, Train(SOLVER), first), "the others were heard in this round"
    fed.backend = Useless()
    others = fed.layout.initial[None, None]
    assert not fed.at(0).ask(alone, Gains(SOLVER), first, others=others), "a gain is advice"
    everybody = poisoned(federation(), list(range(8))).at(0, spare=alone)
    with pytest.raises(DivergedError, match="all 8 clients"):
        everybody.ask(fed.clients, Train(SOLVER), first)


@dataclass(frozen=True)
class Stumble(Task):
    """A user's code that raises on one client."""

    def __call__(
        self,
        client: Client,
        models: Tensor,
        sent: Mapping[str, Tensor],
        layout: Layout,
        rng: torch.Generator,
    ) -> Reply:
        if client.name == "3":
            raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")
        return Reply(models)


@pytest.mark.row(25, counts="failures of own code")
def test_a_users_exception_comes_with_the_client_and_stays_the_cause() -> None:
    fed = federation()
    with pytest.raises(ClientError, match="client 3: mat1 and mat2") as error:
        fed.at(4).ask(fed.clients, Stumble(), everybody(fed))
    assert isinstance(error.value.__cause__, RuntimeError)
    assert "round 5" in error.value.where


@dataclass(frozen=True)
class Count(Task):
    """A client that counts how often it was asked, and tells."""

    def __call__(
        self,
        client: Client,
        models: Tensor,
        sent: Mapping[str, Tensor],
        layout: Layout,
        rng: torch.Generator,
    ) -> Reply:
        times = client.memory.get("times", torch.zeros(1)) + 1
        return Reply(times, keep={"times": times})


def test_private_memory_is_kept_per_client_and_not_written_by_evaluation() -> None:
    fed = federation()
    fed.at(0).ask(fed.clients[:2], Count(), everybody(fed))
    fed.at(0, "evaluate").ask(fed.clients, Count(), everybody(fed))
    assert fed.at(1).ask(fed.clients[:3], Count(), everybody(fed)).values.flatten().tolist() == [
        2,
        2,
        1,
    ]


@pytest.mark.row(20, counts="partitions and clients looked at")
def test_a_client_without_test_data_has_no_accuracy() -> None:
    fed = federation()
    people = list(fed.population)
    people[1] = replace(people[1], x_test=people[1].x_test[:0], y_test=people[1].y_test[:0])
    fed.population = people
    scores = evaluate(FedAvg(), everybody(fed), fed)
    assert scores.clients.tolist() == [0, 2, 3, 4, 5, 6, 7]


def test_adaptation_is_scored_under_its_own_name() -> None:
    fed = federation()
    value = fed.at(0, "evaluate").ask(fed.clients, Score(adapt=SOLVER), everybody(fed)).values
    assert value.shape == (8, 2, 2)
    assert (value[:, 1, 1] < value[:, 0, 1]).all()
