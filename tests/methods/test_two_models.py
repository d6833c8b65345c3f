"""APFL and pFedMe: a common model, and beside it one of one's own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from coterie.core.loop import evaluate
from coterie.core.types import State
from coterie.methods.apfl import APFL
from coterie.methods.fedavg import FedAvg
from coterie.methods.local import Local
from coterie.methods.pfedme import PFedMe
from coterie.tasks.optimiser import SGD
from coterie.tasks.solver import Solver
from tests.methods.formulas import logistic, own, slope, trained
from tests.tiny import federation, same

SOLVER = Solver(lr=0.1, batch=8, optimiser=SGD(momentum=0.5))
WHOLE = Solver(lr=0.2, steps=2, batch=0)  # all data at once: there is no order to reproduce


def test_apfl_trains_fedavgs_global_model_to_the_bit() -> None:
    ours = trained(APFL(SOLVER, 0.5), federation())
    assert same(ours, trained(FedAvg(SOLVER, 0.5), federation()))


def test_apfl_with_alpha_one_is_local_to_the_bit() -> None:
    ours, alone = federation(), federation()
    trained(APFL(SOLVER, 0.5, alpha=1.0, adaptive=False), ours)
    trained(Local(SOLVER, 0.5), alone)
    assert own(ours).keys() == own(alone).keys()
    assert all(torch.equal(own(ours)[i], own(alone)[i]) for i in own(alone))


def test_apfl_is_its_formulas() -> None:
    fed, method = logistic(), APFL(WHOLE, alpha=0.3)
    w0 = fed.layout.initial.double().numpy()
    end = trained(method, fed, 1)
    rows = []
    for i, who in enumerate(fed.population):
        w, v, alpha = w0.copy(), w0 + 0.0, 0.3
        for t in range(2):
            g = slope(alpha * v + (1 - alpha) * w, who)
            if t == 0:
                alpha = min(1, max(0, alpha - 0.2 * (v - w) @ g))
            v, w = v - 0.2 * alpha * g, w - 0.2 * slope(w, who)
        rows.append(w)
        np.testing.assert_allclose(own(fed)[i], alpha * v + (1 - alpha) * w, rtol=1e-5, atol=1e-6)
        assert float(own(fed, "alpha")[i]) == pytest.approx(alpha)
    sizes = np.array([len(who) for who in fed.population], float)
    np.testing.assert_allclose(end.models[0], sizes @ rows / sizes.sum(), rtol=1e-4, atol=1e-6)


def test_alpha_moves_once_v_and_w_have_parted_and_each_client_has_its_own() -> None:
    fed = federation()
    trained(APFL(replace(SOLVER, epochs=3), 1.0), fed, 4)
    alphas = [float(a) for a in own(fed, "alpha").values()]
    assert len(set(alphas)) == 8
    assert all(0 <= a <= 1 for a in alphas)


def test_pfedme_without_a_pull_is_local_to_the_bit() -> None:
    ours, alone = federation(), federation()
    free = PFedMe(SOLVER, 0.5, lam=0.0, inner_steps=1)
    end = trained(free, ours)
    trained(Local(SOLVER, 0.5), alone)
    assert torch.equal(end.models[0], ours.layout.initial), "w has nothing to move to"
    assert own(ours).keys() == own(alone).keys()
    assert all(torch.equal(own(ours)[i], own(alone)[i]) for i in own(alone))


def test_pfedme_is_its_formulas() -> None:
    fed = logistic()
    method = PFedMe(WHOLE, 1.0, lam=2.0, inner_steps=3, rate=0.1, beta=0.7)
    w0 = fed.layout.initial.double().numpy()
    end = trained(method, fed, 1)
    rows = []
    for i, who in enumerate(fed.population):
        w, theta = w0.copy(), w0.copy()
        for _ in range(2):
            for _ in range(3):
                theta = theta - 0.2 * (slope(theta, who) + 2.0 * (theta - w))
            w = w - 0.1 * 2.0 * (w - theta)
        rows.append(w)
        np.testing.assert_allclose(own(fed)[i], theta, rtol=1e-4, atol=1e-6)
    meant = 0.3 * w0 + 0.7 * np.mean(rows, 0)
    np.testing.assert_allclose(end.models[0], meant, rtol=1e-4, atol=1e-6)


def test_a_stronger_pull_keeps_theta_nearer() -> None:
    apart = []
    for lam in (0.1, 1.0, 5.0):
        fed = federation()
        trained(PFedMe(replace(SOLVER, optimiser=SGD()), 1.0, lam=lam), fed)
        apart.append(torch.stack(list(own(fed).values())).std(0).norm())
    assert apart[0] > apart[1] > apart[2]


@pytest.mark.parametrize("method", [APFL(SOLVER), PFedMe(SOLVER, lam=1.0)], ids=["apfl", "pfedme"])
def test_everybody_is_tested_with_its_own_and_a_newcomer_sends_nothing(method: Any) -> None:
    fed = federation()
    end = trained(method, fed)
    whole = evaluate(FedAvg(), State.shared(own(fed)[2], 8), fed)
    assert evaluate(method, end, fed).loss[0, 2] == whole.loss[0, 2]
    del fed.memory[5]
    late = replace(end, assign=end.assign.index_fill(0, torch.tensor([5]), -1))
    assert same(method.place(late, fed.at(3)), end)
    assert fed.ledger[-1].up.tolist() == [0]
    assert not torch.equal(fed.memory[5]["private"], fed.layout.initial)
