from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from itertools import chain

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from coterie.core.client import Client
from coterie.core.layout import Layout
from coterie.core.rng import stream
from coterie.tasks.optimiser import SGD
from coterie.tasks.solver import Solver, batches, passes
from coterie.tasks.train import Train
from tests.tiny import CLASSES, FEATURES, client, network


def row_after(solver: Solver | Train, net: nn.Module, who: Client, **sent: Tensor) -> Tensor:
    layout, task = Layout(net), solver if isinstance(solver, Train) else Train(solver)
    return task(who, layout.initial, sent, layout, stream(0, "test")).value


def mini_batches(n: int, size: int, rng: torch.Generator, **how: int) -> Iterator[Tensor]:
    """The samples of one step after another."""
    return chain.from_iterable(map(batches, passes(n, size, rng, **how)))


def plain_loop(
    solver: Solver,
    net: nn.Module,
    who: Client,
    penalty: Callable[[nn.Module], Tensor] | None = None,
) -> Tensor:
    """The same training as anyone would write it: torch.optim, one tensor per parameter."""
    net = copy.deepcopy(net).train()
    assert isinstance(solver.optimiser, SGD)
    optimiser = torch.optim.SGD(net.parameters(), solver.lr, **asdict(solver.optimiser))
    for i in mini_batches(
        len(who), solver.batch, stream(0, "test"), epochs=solver.epochs, steps=solver.steps
    ):
        optimiser.zero_grad()
        loss = F.cross_entropy(net(who.x[i]), who.y[i])
        if penalty:
            loss = loss + penalty(net)
        loss.backward()
        optimiser.step()
    return Layout(net).initial


@pytest.mark.parametrize(
    "solver",
    [
        Solver(lr=0.1, batch=8),
        Solver(lr=0.1, batch=8, optimiser=SGD(momentum=0.9), epochs=3),
        Solver(lr=0.1, batch=5, optimiser=SGD(momentum=0.5, weight_decay=0.01), steps=11),
    ],
    ids=["plain", "momentum", "weight decay and steps"],
)
def test_the_flat_solver_gives_the_bits_of_a_plain_loop(solver: Solver) -> None:
    who = client(1, 8)
    assert torch.equal(row_after(solver, network(), who), plain_loop(solver, network(), who))


def test_the_flat_solver_gives_the_bits_of_a_plain_loop_on_a_convolution() -> None:
    net = nn.Sequential(
        nn.Unflatten(1, (1, FEATURES)), nn.Conv1d(1, 4, 3), nn.ReLU(), nn.Flatten(),
        nn.Linear(4 * (FEATURES - 2), CLASSES),
    )  # fmt: skip
    solver = Solver(lr=0.1, batch=8, optimiser=SGD(momentum=0.9), epochs=2)
    who = client(2, 8)
    assert torch.equal(row_after(solver, net, who), plain_loop(solver, net, who))


def test_the_proximal_term_is_the_gradient_of_its_penalty() -> None:
    who, net = client(1, 8), network()
    solver = Solver(lr=0.05, batch=8, epochs=2, prox=0.7)
    start = [p.detach().clone() for p in net.parameters()]

    def penalty(now: nn.Module) -> Tensor:
        return sum(
            (0.35 * (p - a).square().sum() for p, a in zip(now.parameters(), start, strict=True)),
            torch.zeros(()),
        )

    expected = plain_loop(solver, net, who, penalty)
    torch.testing.assert_close(row_after(solver, net, who), expected, rtol=1e-5, atol=1e-6)


def test_a_strong_pull_ends_nearer_the_anchor_that_was_sent() -> None:
    who, layout = client(1, 8), Layout(network())
    anchor = layout.initial + 1
    solver = Solver(lr=0.1, batch=8, epochs=5)
    free, pulled = (
        row_after(replace(solver, prox=strength), network(), who, anchor=anchor)
        for strength in (0.0, 1.0)
    )
    assert (pulled - anchor).norm() < (free - anchor).norm() / 2


@pytest.mark.parametrize("train", ["head", "body"])
def test_columns_that_do_not_learn_keep_their_bits(train: str) -> None:
    layout = Layout(network())
    still = torch.ones(layout.size, dtype=torch.bool)
    still[layout.columns(train)] = False
    optimiser = SGD(momentum=0.9, weight_decay=0.1)
    solver = Solver(lr=0.1, batch=8, optimiser=optimiser, prox=0.5)
    after = row_after(
        Train(solver, train=train), network(), client(1, 8), anchor=layout.initial + 1
    )
    assert torch.equal(after[still], layout.initial[still])
    assert not torch.isclose(after[~still], layout.initial[~still]).any()


def test_epochs_that_are_sent_come_before_steps() -> None:
    solver, who = Solver(lr=0.1, batch=8, epochs=3), client(1, 8)
    told = row_after(replace(solver, epochs=1, steps=2), network(), who, epochs=torch.tensor(3))
    assert torch.equal(told, row_after(solver, network(), who))


def test_only_the_columns_asked_for_are_sent_back() -> None:
    layout = Layout(network())
    solver = Solver(lr=0.1, batch=8)
    whole = row_after(solver, network(), client(1, 8))
    head = row_after(Train(solver, upload="head"), network(), client(1, 8))
    assert torch.equal(head, whole[layout.columns("head")])


def test_a_client_of_one_sample_trains_with_batch_normalisation() -> None:
    net = nn.Sequential(nn.Linear(FEATURES, 4), nn.BatchNorm1d(4), nn.Linear(4, CLASSES))
    who = client(1, 8, samples=1)
    assert torch.isfinite(row_after(Solver(lr=0.1, batch=8), net, who)).all()


def test_a_last_batch_of_one_joins_the_batch_before_it_under_batch_normalisation() -> None:
    net = nn.Sequential(nn.Linear(FEATURES, 4), nn.BatchNorm1d(4), nn.Linear(4, CLASSES))
    who = client(1, 8, samples=9)
    layout = Layout(net)
    reply = Train(Solver(lr=0.1, batch=8), report=("steps",))(
        who, layout.initial, {}, layout, stream(0, "test")
    )
    assert reply.extra["steps"] == 1


def test_running_statistics_travel_with_the_model() -> None:
    net = nn.Sequential(nn.Linear(FEATURES, 4), nn.BatchNorm1d(4), nn.Linear(4, CLASSES))
    layout = Layout(net)
    after = row_after(Solver(lr=0.1, batch=8), net, client(1, 8))
    buffers = layout.columns("buffers")
    assert not torch.equal(after[buffers], layout.initial[buffers])


def test_dropout_draws_from_the_address_and_leaves_the_global_generator_alone() -> None:
    net = nn.Sequential(nn.Linear(FEATURES, 8), nn.Dropout(0.5), nn.Linear(8, CLASSES))
    before = torch.random.get_rng_state()
    once = row_after(Solver(lr=0.1, batch=8), net, client(1, 8))
    torch.rand(3)
    twice = row_after(Solver(lr=0.1, batch=8), net, client(1, 8))
    torch.random.set_rng_state(before)
    assert torch.equal(once, twice)


@given(
    n=st.integers(0, 40), size=st.integers(1, 20), epochs=st.integers(1, 3), least=st.integers(1, 2)
)
def test_every_epoch_shows_every_sample_once(n: int, size: int, epochs: int, least: int) -> None:
    given_out = list(mini_batches(n, size, torch.Generator(), epochs=epochs, least=least))
    seen = torch.cat(given_out).view(epochs, n).sort(1).values
    assert (seen == torch.arange(n)).all()
    assert all(len(b) <= size + 1 for b in given_out)


@given(n=st.integers(1, 30), size=st.integers(1, 10), steps=st.integers(1, 25))
def test_steps_are_counted_exactly(n: int, size: int, steps: int) -> None:
    assert len(list(mini_batches(n, size, torch.Generator(), steps=steps))) == steps
