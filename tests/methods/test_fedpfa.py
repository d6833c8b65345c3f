"""FedPFA: sparsity as a signature, groups from it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from coterie.core.client import Client
from coterie.core.errors import ConfigError
from coterie.core.layout import Layout
from coterie.core.types import Replies
from coterie.engines.front import Front
from coterie.methods.fedavg import FedAvg
from coterie.methods.fedpfa import FedPFA
from coterie.tasks.signature import Sparsity
from coterie.tasks.solver import Solver
from tests.methods.planted import groups_of, states, subspaces
from tests.tiny import federation

SOLVER = Solver(lr=0.05, batch=8)


def signature(fed: Front, layer: str = "head") -> Replies:
    return fed.at(0).ask(fed.clients, Sparsity(layer), FedAvg().init(fed))


def test_the_signature_is_a_share_for_each_channel() -> None:
    z = signature(federation()).values
    assert z.shape == (8, 8)
    assert z.min() >= 0
    assert z.max() <= 1
    assert 0 < z.mean() < 1


def test_it_is_the_share_of_zeros_after_relu() -> None:
    fed = federation()
    client = fed.population[2]
    features, _ = fed.layout.features(fed.layout.initial, client.x)
    torch.testing.assert_close(signature(fed).values[2], (features == 0).float().mean(0))


@pytest.mark.parametrize("layer", ["0", "1"])
def test_a_layer_and_its_relu_say_the_same(layer: str) -> None:
    fed = federation()
    assert torch.equal(signature(fed, layer).values, signature(fed).values)


def images() -> Front:
    net = nn.Sequential(
        nn.Conv2d(1, 5, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(5 * 36, 6),
        nn.ReLU(),
        nn.Linear(6, 2),
    )
    x, y = torch.rand(10, 1, 8, 8), torch.arange(10) % 2
    return Front([Client(x, y, x, y, name=str(i)) for i in range(2)], Layout(net), classes=2)


def test_a_convolution_has_one_number_per_channel() -> None:
    fed = images()
    z = signature(fed, "1")
    out = fed.layout.outputs(fed.layout.initial, fed.population[0].x, "1")
    assert z.values.shape == (2, 5)
    torch.testing.assert_close(z.values[0], (out == 0).float().mean((0, 2, 3)))


def test_an_unknown_layer_is_named_with_those_there_are() -> None:
    fed = federation()
    with pytest.raises(ConfigError, match="'relu9'") as caught:
        signature(fed, "relu9")
    assert "0, 1, 2" in caught.value.fix


@pytest.mark.parametrize("how", [{"clusters": 2}, {"clusters": 0}])
def test_clients_whose_features_differ_are_grouped_after_the_pre_training(
    how: dict[str, int],
) -> None:
    fed, truth = subspaces()
    found = states(FedPFA(SOLVER, pretrain=2, **how), fed, 3)  # type: ignore[arg-type]
    assert [s.k for s in found] == [1, 1, 1, 2]
    assert groups_of(found[-1]) == truth


def test_one_group_is_fedavg_to_the_bit_until_and_after_the_grouping() -> None:
    pair = (
        states(FedPFA(SOLVER, pretrain=9), federation(), 3),
        states(FedAvg(SOLVER), federation(), 3),
    )
    for a, b in zip(*pair, strict=True):
        assert torch.equal(a.models, b.models)


def test_a_newcomer_joins_by_its_sparsity() -> None:
    m = FedPFA(SOLVER, pretrain=1, clusters=2)
    fed, truth = subspaces()
    end = states(m, fed, 3)[-1]
    bigger, _ = subspaces(8, newcomers=2)
    joined = replace(end, assign=torch.cat([end.assign, torch.tensor([-1, -1])]))
    assert groups_of(m.place(joined, bigger.at(3))) == [*truth, 0, 1]
