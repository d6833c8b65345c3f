from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from coterie.core.loop import run
from coterie.engines.front import Front
from coterie.methods.fedamp import FedAMP, HeurFedAMP
from coterie.methods.local import Local
from coterie.tasks.optimiser import SGD
from coterie.tasks.solver import Solver
from coterie.words.affinity import attention, attention_rate
from coterie.words.distance import squared_l2
from tests.tiny import federation

SOLVER = Solver(lr=0.1, batch=8, optimiser=SGD(momentum=0.5))
BOTH = pytest.mark.parametrize("cls", [FedAMP, HeurFedAMP])


def models(method: FedAMP, rounds: int = 4) -> Tensor:
    return list(run(method, federation(), rounds))[-1].models


def alone(fraction: float = 1.0) -> Tensor:
    fed = federation()
    list(run(Local(SOLVER, fraction), fed, 4))
    return torch.stack(
        [fed.memory.get(i, {"private": fed.layout.initial})["private"] for i in range(8)]
    )


@BOTH
def test_without_a_pull_it_is_local_to_the_bit(cls: type[FedAMP]) -> None:
    assert torch.equal(models(cls(SOLVER, 0.5, lam=0)), alone(0.5))


@BOTH
def test_with_a_pull_it_is_not_local(cls: type[FedAMP]) -> None:
    free = alone()
    assert (models(cls(SOLVER)) - free).norm() > 0.01 * free.norm()


@BOTH
def test_a_stronger_pull_brings_clients_nearer_to_one_another(cls: type[FedAMP]) -> None:
    spread = [float(models(cls(SOLVER, lam=lam)).std(0).norm()) for lam in (0.0, 0.1, 1.0)]
    assert spread[0] > spread[1] > spread[2]


def second_round(method: FedAMP) -> tuple[Front, Tensor, Tensor]:
    """A federation, its models after a round of training apart, and after one more of `method`."""
    fed = federation()
    state = list(run(FedAMP(SOLVER, lam=0), fed, 1))[-1]
    return fed, state.models, method.round(state, fed.at(1)).models


@pytest.mark.parametrize("start", ["own", "cloud"])
def test_a_step_is_the_gradient_and_the_pull_divided_by_the_reduced_alpha(start: str) -> None:
    method = FedAMP(Solver(lr=0.1, steps=1, batch=0), lam=0.2, alpha=5.0, sigma=2.0, start=start)  # type: ignore[arg-type]
    fed, w, after = second_round(method)
    d2 = squared_l2(w)
    alpha = attention_rate(d2, 5.0, 2.0)
    assert alpha < 5.0
    xi = attention(d2, 5.0, 2.0)
    assert float(xi.diagonal().min()) >= 0
    u = (xi.to(w.dtype) @ w)[3]
    at = w[3] if start == "own" else u
    net = fed.layout.flat(at)
    net.gradient(fed.population[3].x, fed.population[3].y)
    expected = at - 0.1 * (net.grad + 0.2 / alpha * (at - u))
    torch.testing.assert_close(after[3], expected, rtol=1e-4, atol=1e-6)


def test_clients_alike_take_more_from_one_another() -> None:
    _, w, _ = second_round(FedAMP(SOLVER))
    for method in (FedAMP(SOLVER, sigma=0.5), HeurFedAMP(SOLVER, sigma=100.0)):
        xi, _ = method.attention(w)
        xi = xi.fill_diagonal_(0)
        inside = xi[:4, :4].sum() + xi[4:, 4:].sum()  # 24 pairs
        across = xi[:4, 4:].sum() + xi[4:, :4].sum()  # 32 pairs
        assert inside / 24 > across / 32


def test_the_strongest_pull_does_not_jump_over_the_cloud_model() -> None:
    assert torch.isfinite(models(FedAMP(replace(SOLVER, optimiser=SGD()), lam=1e6))).all()


def test_the_angle_version_keeps_as_much_of_oneself_as_it_is_told() -> None:
    _, w, _ = second_round(FedAMP(SOLVER))
    assert HeurFedAMP(self_weight=0.7).attention(w)[0].diagonal().tolist() == [0.7] * 8
    assert HeurFedAMP().attention(w)[0].diagonal().tolist() == [1 / 8] * 8


def test_the_cloud_model_goes_down_and_the_own_one_up() -> None:
    fed = federation()
    list(run(FedAMP(SOLVER), fed, 2))
    once = [4 * fed.layout.size] * 8
    assert [(a.down.tolist(), a.up.tolist()) for a in fed.ledger] == [(once, once)] * 2
