"""Server optimisers: the formulas of Hsu et al. and Reddi et al., and what methods promise."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from coterie.core.errors import ConfigError
from coterie.core.layout import Layout
from coterie.core.loop import run
from coterie.core.types import State
from coterie.methods import METHODS, find
from coterie.methods.refusals import expect_possible
from coterie.runs import checkpoint
from coterie.words.server import ServerOptimiser
from tests.test_contract import ROUNDS, last, method
from tests.tiny import federation, same

KINDS = ("momentum", "adagrad", "adam", "yogi")
Array = NDArray[np.float64]


def by_hand(kind: str, deltas: Array, lr: float, b1: float, b2: float, tau: float) -> Array:
    """x after some rounds from 0, in NumPy, letter by letter."""
    x, m, v = np.zeros_like(deltas[0]), np.zeros_like(deltas[0]), np.full_like(deltas[0], tau**2)
    for d in deltas:
        if kind == "momentum":  # FedAvgM, Eq. 2
            m = b1 * m + d
            x = x + lr * m
            continue
        m = b1 * m + (1 - b1) * d
        if kind == "adagrad":
            v = v + d**2
        if kind == "adam":
            v = b2 * v + (1 - b2) * d**2
        if kind == "yogi":
            v = v - (1 - b2) * d**2 * np.sign(v - d**2)
        x = x + lr * m / (np.sqrt(v) + tau)
    return x


def one_layer(features: int = 5) -> Layout:
    return Layout(nn.Linear(features, 1))


@pytest.mark.parametrize("kind", KINDS)
def test_the_steps_are_those_of_the_papers(kind: Any) -> None:
    layout, rng = one_layer(), np.random.default_rng(0)
    deltas = rng.normal(size=(6, 2, layout.size)) * np.array([1e-3, 0.1])[:, None]
    server = ServerOptimiser(kind, lr=0.3, beta1=0.8, beta2=0.9, tau=0.01)
    state = State(torch.zeros(2, layout.size, dtype=torch.float64), torch.tensor([0, 1]))
    for d in deltas:
        state = server.advance(state, state.hold(state.models + torch.from_numpy(d)), layout)
    expected = by_hand(kind, deltas, 0.3, 0.8, 0.9, 0.01)
    np.testing.assert_allclose(state.models.numpy(), expected, rtol=1e-9)


def lively(kind: str) -> ServerOptimiser:
    return ServerOptimiser(kind, lr=0.05)  # type: ignore[arg-type]


def state_of(rows: list[list[float]], **memory: torch.Tensor) -> State:
    return State(torch.tensor(rows), torch.arange(len(rows))).hold(**memory)


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_nobody_came_for_stays_and_so_do_its_moments(kind: str) -> None:
    layout, server = one_layer(1), lively(kind)
    start = state_of([[0.0, 0.0], [0.0, 0.0]])
    once = server.advance(start, start.hold(torch.ones(2, 2)), layout)
    models = once.models.clone()
    models[0] += 1
    twice = server.advance(once, once.hold(models), layout)
    assert torch.equal(twice.models[1], once.models[1])
    assert not torch.equal(twice.models[0], models[0])
    for name in once.memory:
        assert torch.equal(twice.memory[name][1], once.memory[name][1])
        assert not torch.equal(twice.memory[name][0], once.memory[name][0])


@pytest.mark.parametrize("kind", KINDS)
def test_a_cluster_that_is_new_begins_without_moments(kind: str) -> None:
    layout, server = one_layer(1), lively(kind)
    one = state_of([[0.0, 0.0]])
    grown = server.advance(one, one.hold(torch.ones(1, 2)), layout)
    two = State(torch.zeros(2, 2), torch.tensor([0, 1]), memory=grown.memory)
    after = server.advance(two, two.hold(torch.ones(2, 2)), layout)
    alone = server.advance(one, one.hold(torch.ones(1, 2)), layout)
    assert torch.equal(after.models[1], alone.models[0])
    assert not torch.equal(after.models[0], alone.models[0])


def test_moments_end_where_everybody_is_grouped_anew() -> None:
    layout, start = one_layer(1), state_of([[0.0, 0.0]], mine=torch.ones(1))
    once = lively("adam").advance(start, start.hold(torch.ones(1, 2)), layout)
    assert set(once.memory) == {"mine", "moment_m", "moment_v"}
    anew = once.regroup(torch.tensor([0]), torch.tensor([0]), once.models)
    assert set(anew.memory) == {"mine"}


def test_running_statistics_are_averaged() -> None:
    layout = Layout(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 1)))
    start = State.shared(layout.initial, 1)
    mean = start.hold(start.models + 1)
    after = lively("yogi").advance(start, mean, layout)
    buffers = layout.columns("buffers")
    assert torch.equal(after.models[:, buffers], mean.models[:, buffers])
    assert not torch.isclose(after.models, mean.models)[:, : layout.trainable].any()


def test_models_that_were_not_averaged_row_by_row_are_told() -> None:
    with pytest.raises(ValueError, match="2 models became 1"):
        lively("adam").advance(state_of([[0.0, 0.0]] * 2), state_of([[0.0, 0.0]]), one_layer(1))


def test_every_kind_is_tested() -> None:
    kinds = ServerOptimiser.__dataclass_fields__["kind"].type
    assert {"none", *KINDS} == set(
        get_args(eval(str(kinds), {"Literal": __import__("typing").Literal}))
    )


@cache
def averaged(name: str) -> State:
    return last(run(method(name), federation(), ROUNDS))


AVERAGING = [name for name in METHODS if "server" not in getattr(find(name), "refuses", {})]


@pytest.mark.parametrize("name", METHODS)
def test_a_method_takes_a_server_optimiser_or_says_why_not(name: str) -> None:
    cls: Any = find(name)
    takes = "server" in {f.name for f in fields(cls)}
    if name in AVERAGING:
        assert takes
        expect_possible(cls(server=lively("adam")))
    elif takes:
        with pytest.raises(ConfigError, match="server") as caught:
            expect_possible(cls(server=lively("adam")))
        assert caught.value.code == "C048"


@pytest.mark.parametrize("name", AVERAGING)
def test_momentum_of_none_at_full_rate_is_the_average_to_the_bit(name: str) -> None:
    plain = averaged(name)
    whole = ServerOptimiser("momentum", lr=1.0, beta1=0.0)
    stepped = last(run(method(name, server=whole), federation(), ROUNDS))
    assert torch.equal(plain.models, stepped.models)
    assert torch.equal(plain.assign, stepped.assign)


@pytest.mark.parametrize("name", AVERAGING)
def test_a_server_optimiser_moves_the_models_and_lasts_in_checkpoints(
    name: str, tmp_path: Path
) -> None:
    fed, made = federation(), method(name, server=lively("adam"))
    for state in run(made, fed, ROUNDS):
        checkpoint.save(tmp_path, state, fed.memories(), {}, keep=ROUNDS + 1)
    assert {"moment_m", "moment_v"} <= state.memory.keys()
    assert len(state.memory["moment_m"]) <= state.k
    assert not torch.equal(state.models, averaged(name).models)
    half, again = checkpoint.load(checkpoint.rounds(tmp_path)[ROUNDS - 1]), federation()
    again.restore(half.memories)
    assert same(last(run(made, again, ROUNDS, half.state)), state)
