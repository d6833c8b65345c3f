"""coterie's FedAvg against one written by hand in plain PyTorch, on the same clients."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

from coterie.core.layout import Layout
from coterie.data.load import load
from coterie.data.population import Population
from coterie.methods.fedavg import FedAvg
from coterie.studies.run.training import fit
from coterie.tasks.solver import Solver

EXAMPLE = Path(__file__).parents[1] / "examples" / "fedavg_by_hand.py"


@pytest.fixture(scope="module")
def by_hand() -> Any:
    spec = importlib.util.spec_from_file_location("fedavg_by_hand", EXAMPLE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compare(by_hand: Any, shards: list[Any], net: torch.nn.Module, rounds: int) -> None:
    final, curve = by_hand.fedavg(net, shards, rounds, epochs=1, batch=32, lr=0.05, seed=11)
    result = fit(
        FedAvg(Solver(lr=0.05, batch=32)), Population.of(shards), net, rounds=rounds, seed=11
    )
    ours = result.history.series("accuracy_mean")
    theirs = Layout(final).initial
    # The average sums in another order: the last bit at first, and training amplifies it.
    assert (result.state.models[0] - theirs).norm() < 1e-3 * theirs.norm()
    images = min(len(y) for _, _, _, y in shards)
    assert [ours[t] for t in range(1, rounds + 1)] == pytest.approx(curve, abs=1 / images)
    assert curve[-1] > curve[0]


def test_fedavg_is_what_one_writes_by_hand(by_hand: Any) -> None:
    data = load("digits")
    x = data.x.float() / 16
    shards = [
        (x[i : i + 60], data.y[i : i + 60], x[i + 60 : i + 90], data.y[i + 60 : i + 90])
        for i in range(0, 900, 90)
    ]
    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 10)
    )
    compare(by_hand, shards, net, rounds=4)


@pytest.mark.slow
@pytest.mark.shared
def test_fedavg_is_what_one_writes_by_hand_on_fashion_mnist(by_hand: Any, real_data: Path) -> None:
    data = load("fashion-mnist")
    assert data.x_test is not None
    assert data.y_test is not None
    x, x_test = ((t.float() / 255 - 0.286) / 0.353 for t in (data.x, data.x_test))
    shards = [
        (x[i : i + 600], data.y[i : i + 600], x_test[j : j + 300], data.y_test[j : j + 300])
        for i, j in zip(range(0, 6000, 600), range(0, 3000, 300), strict=True)
    ]
    torch.manual_seed(0)
    compare(by_hand, shards, by_hand.lenet5(), rounds=5)
