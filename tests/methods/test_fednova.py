from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from coterie.core.layout import Layout
from coterie.core.loop import run
from coterie.core.types import Replies, State, Task
from coterie.engines.front import Front
from coterie.methods.fedavg import FedAvg
from coterie.methods.fednova import FedNova
from coterie.tasks.optimiser import SGD
from coterie.tasks.solver import Solver
from coterie.tasks.train import Train
from coterie.words.mixing import average, mix
from tests.tiny import CLASSES, FEATURES, clients, federation

SOLVER = Solver(lr=0.1, batch=8, optimiser=SGD(momentum=0.5))


def test_with_equal_steps_it_is_fedavg_up_to_rounding() -> None:
    equal = replace(SOLVER, steps=3)
    ours, plain = (list(run(m, federation(), 4))[-1] for m in (FedNova(equal), FedAvg(equal)))
    torch.testing.assert_close(ours.models, plain.models, rtol=1e-5, atol=1e-6)


def test_with_unequal_steps_it_is_not_fedavg() -> None:
    ours, plain = (list(run(m, federation(), 1))[-1] for m in (FedNova(SOLVER), FedAvg(SOLVER)))
    assert (ours.models - plain.models).norm() > 0.01 * plain.models.norm()


STEPS = torch.tensor([2.0, 6.0])


class Straight(Front):
    """Client i walks along axis i, 0.1 for each of its STEPS."""

    def ask(self, cohort: Tensor, task: Task, state: State, **send: Tensor) -> Replies:
        ways = torch.eye(2, self.layout.size) * STEPS[:, None]
        return Replies(cohort, state.models[0] - 0.1 * ways, torch.ones(2), {"steps": STEPS})


def moved(momentum: float) -> Tensor:
    """(2,) how far the server's step goes along each client's axis."""
    fed = federation(2, kind=Straight)
    start = State.shared(fed.layout.initial, 2)
    after = FedNova(Solver(lr=0.1, optimiser=SGD(momentum=momentum))).round(start, fed).models
    return (start.models - after)[0, :2]


def test_a_client_that_makes_more_steps_does_not_count_for_more() -> None:
    torch.testing.assert_close(moved(0.0), torch.full((2,), 0.1 * float(STEPS.mean()) / 2))


def test_momentum_counts_later_steps_for_more() -> None:
    a = torch.tensor([1 + 1.5, 1 + 1.5 + 1.75 + 1.875 + 1.9375 + 1.96875])  # |a_i|_1
    torch.testing.assert_close(moved(0.5), 0.1 * STEPS / a * a.mean() / 2)


def test_running_statistics_are_averaged_not_stepped() -> None:
    net = nn.Sequential(nn.Linear(FEATURES, 4), nn.BatchNorm1d(4), nn.Linear(4, CLASSES))
    fed = Front(clients(), Layout(net), classes=CLASSES, seed=7)
    start = State.shared(fed.layout.initial, 8)
    w = fed.at(0).ask(fed.clients, Train(SOLVER), start)
    expected = mix(average(w.sizes), w.values)[0, fed.layout.columns("buffers")]
    got = FedNova(SOLVER).round(start, fed.at(0)).models[0, fed.layout.columns("buffers")]
    torch.testing.assert_close(got, expected)
