"""Schedules: those of `torch.optim.lr_scheduler`, and a function of the round alone."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler

import coterie as ct
from coterie.cli.train import goes_on
from coterie.core.loop import evaluate, in_round, run, scheduled_rate
from coterie.core.types import State
from coterie.engines.flower.backend import Retrying
from coterie.methods.fedavg import FedAvg, FedAvgFT
from coterie.runs import measure
from coterie.tasks.schedule import Schedule
from coterie.tasks.solver import Solver
from tests.tiny import federation, same

ROUNDS = 12
THEIRS: dict[str, tuple[Schedule, Any]] = {
    "step": (Schedule("step", every=4), lambda o: lr_scheduler.StepLR(o, 4)),
    "exponential": (
        Schedule("exponential", decay=0.8),
        lambda o: lr_scheduler.ExponentialLR(o, 0.8),
    ),
    "cosine": (
        Schedule("cosine", end=0.1),
        lambda o: lr_scheduler.CosineAnnealingLR(o, ROUNDS, eta_min=0.1),
    ),
    "warm-up": (
        Schedule(warmup=4),
        lambda o: lr_scheduler.LinearLR(o, start_factor=0.25, total_iters=3),
    ),
}


@pytest.mark.parametrize("name", THEIRS)
def test_a_schedule_is_that_of_pytorch(name: str) -> None:
    ours, made = THEIRS[name]
    optimiser = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    theirs, expected = made(optimiser), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nothing is stepped but the schedule
        for _ in range(ROUNDS):
            expected.append(optimiser.param_groups[0]["lr"])
            theirs.step()
    assert [ours(t, ROUNDS) for t in range(ROUNDS)] == pytest.approx(expected)


def test_after_the_warm_up_a_schedule_begins_anew() -> None:
    plain, warm = Schedule("cosine"), Schedule("cosine", warmup=3)
    assert [warm(t + 3, 9) for t in range(6)] == [plain(t, 6) for t in range(6)]


def test_a_step_in_every_round_is_exponential() -> None:
    step, exponential = Schedule("step", decay=0.7, every=1), Schedule("exponential", decay=0.7)
    assert [step(t, 9) for t in range(9)] == [exponential(t, 9) for t in range(9)]


HALF = Solver(lr=0.2, batch=8, schedule=Schedule("exponential", decay=0.5))


def test_each_round_trains_with_its_own_rate() -> None:
    fed, scheduled, by_hand = federation(), list(run(FedAvg(HALF), federation(), 3)), None
    for t in range(3):
        by_hand = list(run(FedAvg(Solver(lr=0.2 / 2**t, batch=8)), fed, t + 1, by_hand))[-1]
    assert by_hand is not None
    assert same(scheduled[-1], by_hand)


def test_a_run_that_was_stopped_goes_on_with_the_rates_it_would_have_had() -> None:
    method = FedAvg(Solver(lr=0.2, batch=8, schedule=Schedule("cosine", warmup=1)))
    whole = list(run(method, federation(), 4))
    assert same(list(run(method, federation(), 4, whole[2]))[-1], whole[-1])


def test_what_is_no_part_of_a_round_has_the_rate_itself() -> None:
    fed, method = federation(), FedAvgFT(HALF)
    state = list(run(method, fed, 3))[-1]
    tested = evaluate(method, state, fed)
    plain = evaluate(FedAvgFT(Solver(lr=0.2, batch=8)), state, federation())
    assert torch.equal(tested.loss, plain.loss)
    late: Any = in_round(method, 2, 3)
    assert not torch.equal(tested.loss, evaluate(late, state, federation()).loss)


def test_python_refuses_other_rounds_than_a_rate_was_planned_for(tmp_path: Path) -> None:
    people = ct.Population.of([(torch.eye(4).repeat(3, 1), torch.arange(12) % 2)], test_share=0)
    method = FedAvg(Solver(schedule=Schedule("cosine")))
    ct.fit(method, people, "mclr", rounds=2, out=tmp_path / "run", page=False)
    with pytest.raises(ct.CheckpointError, match="2 were planned, now 3") as caught:
        ct.fit(method, people, "mclr", rounds=3, out=tmp_path / "run", resume=True)
    assert caught.value.code == "K010"
    ct.fit(FedAvg(), people, "mclr", rounds=3, out=tmp_path / "run", resume=True, page=False)


def test_nobody_is_told_to_train_on_where_the_rate_has_run_out() -> None:
    for kind, more in (("constant", True), ("step", True), ("cosine", False)):
        method = FedAvg(Solver(schedule=Schedule(kind)))  # type: ignore[arg-type]
        result: Any = SimpleNamespace(method=method, summary={"rounds": 3})
        assert goes_on(result) is more


@pytest.mark.parametrize("wrapped", [False, True])
def test_the_rate_of_a_round_is_recorded_where_it_changes(wrapped: bool) -> None:
    method: Any = Retrying(FedAvg(HALF), 3) if wrapped else FedAvg(HALF)
    state = State(torch.zeros(1, 3), torch.zeros(2, dtype=torch.long), round=3)
    (row,) = measure.scheduled(state, method, 5)
    assert (row.stage, row.metric, row.value) == ("train", "lr", 0.05)
    assert not measure.scheduled(State.shared(torch.zeros(3), 2), method, 5)
    assert scheduled_rate(FedAvg(), 1, 5) is None
