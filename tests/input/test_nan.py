"""NaN and infinity in updates: of one client, of half of them, of all."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import coterie as ct
from coterie.core.errors import DivergedError
from coterie.core.loop import run
from coterie.core.types import Reply
from coterie.engines.question import Question, Refusal
from coterie.engines.serial import Serial
from coterie.methods.fedavg import FedAvg
from coterie.tasks.solver import Solver
from tests.tiny import federation, same

SOLVER = Solver(lr=0.1, batch=8)


class Spoilt(Serial):
    """Some clients send numbers that are none, three of each update."""

    def __init__(self, who: set[int], number: float) -> None:
        self.who, self.number = who, number

    def answers(self, question: Question) -> Iterator[tuple[int, Reply | Refusal]]:
        for j, reply in super().answers(question):
            if question.purpose == "train" and int(question.cohort[j]) in self.who:
                assert isinstance(reply, Reply)
                value = reply.value.clone()
                value[4:7] = self.number
                reply = replace(reply, value=value)
            yield j, reply


def spoilt(who: set[int], number: float) -> Any:
    fed = federation()
    fed.backend = Spoilt(who, number)
    return fed


@pytest.mark.row(14)
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("who", [{3}, {0, 2, 4, 6}], ids=["one", "half"])
def test_the_others_are_averaged_as_if_these_had_not_come(who: set[int], number: float) -> None:
    fed, truth = spoilt(who, number), federation()
    first = next(run(FedAvg(SOLVER), truth, 0))
    honest = truth.at(0).ask(truth.clients, FedAvg(SOLVER).local, first)
    rest = [i for i in range(8) if i not in who]
    sizes = honest.sizes[rest].double().numpy()
    want = sizes / sizes.sum() @ honest.values[rest].double().numpy()
    got = FedAvg(SOLVER).round(first, fed.at(0)).models[0].numpy()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    assert set(fed.ledger[-1].rejected) == who
    assert set(fed.ledger[-1].rejected.values()) == {"3 of 92 values of its update are not finite"}


@pytest.mark.row(14)
def test_when_all_are_bad_nothing_is_kept_and_the_run_ends_with_6() -> None:
    fed = spoilt(set(range(8)), math.nan)
    states = run(FedAvg(SOLVER), fed, 3)
    before = next(states)
    with pytest.raises(DivergedError) as error:
        next(states)
    assert error.value.exit == 6
    assert same(before, next(run(FedAvg(SOLVER), federation(), 0)))
    assert torch.isfinite(before.models).all()


@pytest.mark.row(14)
def test_a_client_that_is_left_out_is_in_the_events_with_its_name(tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []
    people = ct.partition("digits", "iid", clients=3)
    x = people.data.x.clone()
    mine = people.partition.train[1]
    x[mine] = x[mine] * 1e30  # as a sensor that is broken
    broken = ct.Population(replace(people.data, x=x), people.partition)
    ct.fit(FedAvg(SOLVER), broken, "mclr", rounds=1, on_event=told.append, out=tmp_path / "r")
    events = [e for e in told if e["event"] == "rejected"]
    assert {(e["client"], e["round"]) for e in events} == {("1", 1)}
    assert '"rejected"' in (tmp_path / "r" / "events.jsonl").read_text()
    assert "not used" in (tmp_path / "r" / "report.html").read_text()
