from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from coterie.core.loop import evaluate
from coterie.core.types import State
from coterie.methods import fedala
from coterie.methods.fedala import FedALA
from coterie.methods.fedavg import FedAvg
from coterie.methods.local import Local
from coterie.tasks.optimiser import SGD
from coterie.tasks.solver import Solver
from tests.methods.formulas import close, initial, logistic, losses, own, sizes, slope, trained
from tests.tiny import client, federation, same

SOLVER = Solver(lr=0.1, batch=8, optimiser=SGD(momentum=0.5))
WHOLE = Solver(lr=0.2, steps=2, batch=0)


def test_with_weights_held_at_one_it_is_fedavg_to_the_bit() -> None:
    ours, plain = (
        trained(m, federation()) for m in (FedALA(SOLVER, 0.5, rate=0.0), FedAvg(SOLVER, 0.5))
    )
    assert same(ours, plain)


def test_with_nothing_adapted_it_is_fedavg_to_the_bit() -> None:
    ours = trained(FedALA(SOLVER, 0.5, adapted="none"), federation())
    assert same(ours, trained(FedAvg(SOLVER, 0.5), federation()))


def test_a_client_alone_is_local_to_the_bit() -> None:
    ours, alone = (federation(people=[client(0, 1)]) for _ in range(2))
    trained(FedALA(SOLVER), ours)
    trained(Local(SOLVER), alone)
    assert torch.equal(own(ours)[0], own(alone)[0])


def test_it_is_its_formulas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fedala, "PASSES", 3)
    fed = logistic()
    end = trained(FedALA(WHOLE, adapted="all", share=1.0, rate=2.0), fed, 3)
    w = initial(fed)
    mine: dict[int, np.ndarray] = {}
    weights: dict[int, np.ndarray] = {}
    for t in range(3):
        rows = []
        for i, who in enumerate(fed.population):
            start = w
            if t:
                a = mine[i]
                W = weights.get(i, np.ones_like(w))
                mixed, seen = a + (w - a) * W, list[float]()
                while len(seen) < 3 or np.std(seen[-3:]) >= 0.1:
                    W = np.clip(W - 2.0 * slope(mixed, who) * (w - a), 0, 1)
                    mixed = a + (w - a) * W
                    seen.append(float(losses(mixed, who).mean()))
                    if i in weights:
                        break
                weights[i], start = W, mixed
            for _ in range(2):
                start = start - 0.2 * slope(start, who)
            mine[i] = start
            rows.append(start)
        w = sizes(fed) @ rows
    close(end.models[0], w)
    for i in mine:
        close(own(fed)[i], mine[i])
        close(own(fed, "weights")[i], weights[i], atol=1e-4)
        assert weights[i].min() < 1, "somebody takes less than all of something"


def test_what_is_not_adapted_is_received() -> None:
    fed = federation()
    method = FedALA(SOLVER, 1.0)
    end = trained(method, fed)
    who = replace(fed.population[2], memory=fed.memory[2])
    mixed, W = method.local.aggregate(who, end.models[0], fed.layout, torch.Generator())
    head, body = fed.layout.columns("head"), fed.layout.columns("~head")
    assert torch.equal(mixed[body], end.models[0, body])
    low, high = torch.minimum(own(fed)[2], end.models[0]), torch.maximum(own(fed)[2], end.models[0])
    assert ((mixed >= low - 1e-6) & (mixed <= high + 1e-6))[head].all()
    assert 0 <= W.min() < W.max() <= 1


def test_everybody_is_tested_with_its_own_and_a_newcomer_sends_nothing() -> None:
    fed, method = federation(), FedALA(SOLVER)
    end = trained(method, fed)
    whole = evaluate(FedAvg(), State.shared(own(fed)[2], 8), fed)
    assert evaluate(method, end, fed).loss[0, 2] == whole.loss[0, 2]
    del fed.memory[5]
    late = replace(end, assign=end.assign.index_fill(0, torch.tensor([5]), -1))
    assert same(method.place(late, fed.at(3)), end)
    assert fed.ledger[-1].up.tolist() == [0]
    assert not torch.equal(own(fed)[5], end.models[0])
