"""Fresh draws of a network, and what a named layer puts out."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from coterie.core.errors import ConfigError
from coterie.core.layout import Layout
from coterie.core.rng import stream
from tests.tiny import network


class Odd(nn.Module):
    """A module with numbers of its own and no way to reset them."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.arange(12.0).view(3, 4))
        self.norm = nn.BatchNorm1d(4)
        self.out = nn.Linear(4, 2)
        self.still = nn.Linear(4, 4).requires_grad_(False)
        self.register_buffer("mean", torch.tensor([5.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.out(self.norm(self.still(x @ self.scale)))
        return out


def test_a_draw_follows_from_its_address_alone() -> None:
    layout = Layout(network())
    a = layout.fresh(stream(0, "start", 1))
    torch.rand(7)
    assert torch.equal(a, layout.fresh(stream(0, "start", 1)))
    assert not torch.isclose(a, layout.fresh(stream(0, "start", 2))).any()
    assert not torch.isclose(a, layout.initial).any()


def test_drawing_leaves_the_global_random_state_and_the_layout_alone() -> None:
    layout = Layout(network())
    before, row = torch.get_rng_state(), layout.initial.clone()
    layout.fresh(stream(0, "x"))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(layout.row(), row)


def test_a_draw_is_of_the_same_kind_as_the_layers_own() -> None:
    layout = Layout(nn.Linear(400, 50))
    a, b = layout.fresh(stream(0, "x")), layout.initial
    assert a.abs().max() <= 1 / 20
    torch.testing.assert_close(a.std(), b.std(), rtol=0.02, atol=0)


def test_what_cannot_reset_itself_keeps_its_values_in_another_order() -> None:
    layout = Layout(Odd())
    scale = layout.columns("scale")
    a = layout.fresh(stream(0, "x"))[scale]
    assert torch.equal(a.sort().values, layout.initial[scale])
    assert not torch.equal(a, layout.initial[scale])


def test_what_does_not_learn_stays() -> None:
    layout = Layout(Odd())
    a = layout.fresh(stream(0, "x"))
    rest = layout.columns("buffers")
    assert torch.equal(a[rest], layout.initial[rest])
    assert not torch.isclose(a[layout.columns("out")], layout.initial[layout.columns("out")]).any()


def test_outputs_are_those_of_the_layer() -> None:
    layout = Layout(network())
    x = torch.randn(700, 6)  # more than a batch
    net = layout.module(layout.initial)
    assert isinstance(net, nn.Sequential)
    torch.testing.assert_close(layout.outputs(layout.initial, x, "1"), net[:2](x))


def test_a_layer_used_twice_is_refused() -> None:
    relu = nn.ReLU()
    layout = Layout(nn.Sequential(nn.Linear(6, 4), relu, nn.Linear(4, 4), relu, nn.Linear(4, 2)))
    with pytest.raises(ConfigError, match="every sample once"):
        layout.outputs(layout.initial, torch.randn(5, 6), "1")
