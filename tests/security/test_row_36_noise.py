"""Row 36: differential privacy. Accounts are right, noise covers all that is sent, or is refused.

Secure aggregation is not offered, so there is nothing to claim of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import coterie as ct
from coterie.audit import rebuilding
from coterie.audit.findings import OUTLINE
from coterie.audit.pictures import psnr
from coterie.audit.uploads import Upload, parts_of
from coterie.config.load import loads
from coterie.core.errors import ConfigError
from coterie.core.layout import Layout
from coterie.core.loop import run
from coterie.core.releases import Release
from coterie.core.rng import stream
from coterie.core.types import Known, State
from coterie.engines.accounts import epsilons
from coterie.studies.run import experiment, private
from coterie.tasks import Histogram, Losses, Privacy, Solver, Train, TrainHalves, Trajectory
from coterie.tasks.accounting import ORDERS, epsilon, least_noise, spent
from coterie.tasks.private import drawn, sample_gradients
from tests import tiny
from tests.security.audited import auditor, people, small

pytestmark = pytest.mark.row(36)
LAYOUT = Layout(tiny.network())


def renyi(q: float, sigma: float, order: float) -> float:
    """The divergence of one Gaussian release of drawn samples, by integrating its definition."""
    x = np.linspace(-60 * sigma, 60 * sigma + order, 40_001)
    density = -(x**2) / (2 * sigma**2) - np.log(sigma * np.sqrt(2 * np.pi))
    kept = np.log1p(-q) if q < 1 else -np.inf
    ratio = np.logaddexp(kept, np.log(q) + (2 * x - 1) / (2 * sigma**2))
    inside = density + order * ratio
    top = inside.max()
    return float((top + np.log(np.trapezoid(np.exp(inside - top), x))) / (order - 1))


def by_hand(releases: Sequence[Release], delta: float) -> float:
    """Epsilon by its definition, without Opacus: least over the orders (Balle et al. 2020)."""
    found = []
    for a in ORDERS:
        total = sum(one.times * renyi(one.rate, one.noise, a) for one in releases)
        found.append(total + np.log1p(-1 / a) - (np.log(delta) + np.log(a)) / (a - 1))
    return float(max(0.0, min(found)))


@pytest.mark.parametrize(
    "releases",
    [
        [Release(0.01, 1.0, 1000)],
        [Release(0.32, 2.0, 60)],
        [Release(1.0, 4.0, 20)],
        [Release(0.32, 3.0, 60), Release(1.0, 3.0, 1)],  # trainings, and a signature
    ],
    ids=str,
)
def test_epsilon_is_that_of_an_independent_computation(
    releases: list[Release], figure: Callable[..., None]
) -> None:
    ours, theirs = epsilon(spent(releases), 1e-5), by_hand(releases, 1e-5)
    figure("most that epsilon differs from an independent one", abs(ours - theirs), by="most")
    assert ours == pytest.approx(theirs, abs=1e-3)


def test_noise_is_the_least_that_keeps_within_epsilon() -> None:
    plan = [Release(0.3, 0.0, 40), Release(1.0, 0.0, 1)]
    noise = least_noise(plan, 4.0, 1e-5)
    within, beyond = (
        epsilon(spent(one._replace(noise=n) for one in plan), 1e-5) for n in (noise, noise - 0.01)
    )
    assert within <= 4.0 < beyond


def test_gradients_of_single_samples_are_those_of_each_by_itself() -> None:
    client = tiny.client(0, 4)
    net = LAYOUT.flat(LAYOUT.initial)
    each = sample_gradients(net, LAYOUT, client.x, client.y)
    for i in range(3):
        net.gradient(client.x[i : i + 1], client.y[i : i + 1])
        torch.testing.assert_close(each[i], net.grad, rtol=1e-4, atol=1e-6)


@given(st.integers(0, 9), st.floats(0.01, 10))
def test_leaving_out_a_sample_changes_a_sum_by_at_most_the_clip(left: int, clip: float) -> None:
    how = Privacy(noise=1.0, clip=clip)
    each = 5 * torch.randn(10, 7, generator=stream(0, "each"))
    rest = each[torch.arange(10) != left]
    with_it, without = (how.blurred(e, stream(0, "noise")) for e in (each, rest))  # the same noise
    assert float((with_it - without).norm()) <= clip * (1 + 1e-4)


def test_noise_has_the_deviation_that_its_account_has() -> None:
    how = Privacy(noise=2.0, clip=3.0)
    noise = how.blurred(torch.zeros(1, 20_000), stream(0, "noise"))
    assert float(noise.std()) == pytest.approx(6.0, rel=0.02)


def test_every_sample_is_drawn_by_itself_with_the_chance_of_its_account() -> None:
    sizes = [len(one) for one in drawn(50, 0.2, 2000, stream(0, "draws"))]
    assert np.mean(sizes) == pytest.approx(10, rel=0.03)
    assert np.var(sizes) == pytest.approx(50 * 0.2 * 0.8, rel=0.15)  # binomial, not of one size


def test_hardly_any_noise_and_no_clipping_is_plain_training() -> None:
    client = tiny.client(0, 4)
    task = Train(Solver(lr=0.1, steps=1, batch=0))
    noisy = replace(task, solver=replace(task.solver, privacy=Privacy(noise=1e-7, clip=1e3)))
    plain, blurred = (
        one(client, LAYOUT.initial, {}, LAYOUT, stream(0, "train")).value for one in (task, noisy)
    )
    torch.testing.assert_close(plain, blurred, rtol=1e-3, atol=1e-4)


def test_signatures_under_hardly_any_noise_are_the_signatures() -> None:
    client, how = tiny.client(0, 4), Privacy(noise=1e-7, clip=1e3)
    for plain, noisy in (
        (Histogram(4), Histogram(4, privacy=how)),
        (Trajectory(), Trajectory(privacy=how)),
    ):
        models = torch.empty(0) if plain.receives == "nothing" else LAYOUT.initial
        a, b = (one(client, models, {}, LAYOUT, stream(0, "it")).value for one in (plain, noisy))
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)


def test_noisy_counts_are_an_answer_that_the_door_lets_in() -> None:
    client, task = tiny.client(0, 4), Histogram(4, privacy=Privacy(noise=50.0))
    form = task.answer_form(Known(LAYOUT, 1, 4, len(client)))["value"]
    for i in range(20):
        value = task(client, torch.empty(0), {}, LAYOUT, stream(i, "it")).value
        assert form.fault("counts", value) is None


@pytest.mark.parametrize("samples", [1, 40])
def test_two_halves_spend_as_one_training_of_a_half(samples: int) -> None:
    task = TrainHalves(Solver(steps=6, batch=10, privacy=Privacy(noise=2.0)))
    got = task.spends(Known(LAYOUT, 1, 4, samples))
    assert got is not None
    assert list(got) == ([Release(0.5, 2.0, 6)] if samples == 40 else [Release(1.0, 2.0, 6)] * 2)


def noisy(noise: float = 2.0) -> Solver:
    return Solver(lr=0.1, batch=8, privacy=Privacy(noise=noise))


def test_an_account_has_every_training_of_its_client_and_no_other() -> None:
    fed = tiny.federation(4)
    fed.protected = True
    state = State.shared(fed.layout.initial, 4)
    for who in ([0, 1], [1]):
        fed.at(0).ask(torch.tensor(who), Train(noisy()), state)
    n = int(fed.sizes[1])
    twice = epsilon(spent([Solver.release(noisy(), n)] * 2), 1e-5)
    found = epsilons(fed.memories(), 1e-5)
    assert set(found) == {0, 1}
    assert found[1] == pytest.approx(twice)


def test_what_no_noise_covers_is_not_asked_at_all() -> None:
    fed = tiny.federation(4)
    fed.protected = True
    state = State.shared(fed.layout.initial, 4)
    for task in (Losses(), Train(Solver()), Train(noisy(), report=("loss",))):
        with pytest.raises(ConfigError, match="no noise covers") as caught:
            fed.at(0).ask(fed.clients, task, state)
        assert caught.value.code == "C073"
    assert not fed.ledger


def test_a_run_reports_what_each_client_spent_and_resuming_goes_on_with_it(tmp_path: Path) -> None:
    method = ct.FedAvg(solver=noisy())
    how = {"rounds": 2, "engine": "serial", "page": False}
    clients = ct.partition("digits", clients=4)
    whole = ct.fit(method, clients, "mclr", out=tmp_path / "whole", **how)
    ct.fit(method, clients, "mclr", out=tmp_path / "parts", **how | {"rounds": 1})
    parts = ct.fit(method, clients, "mclr", out=tmp_path / "parts", resume=True, **how)
    found = whole.summary["privacy"]
    assert parts.summary["privacy"] == found
    n = int(clients.sizes[0])
    two = epsilon(spent([method.solver.release(n)] * 2), 1e-5)
    assert found["epsilon"]["0"] == pytest.approx(two, abs=1e-3)
    assert found["epsilon_max"] == max(found["epsilon"].values())


@pytest.mark.parametrize("engine", ["stacked", "pool"])
def test_other_engines_have_the_bits_of_serial_and_say_that_they_train_one_by_one(
    engine: str,
) -> None:
    method, clients, events = ct.FedAvg(solver=noisy()), ct.partition("digits", clients=3), []
    how = {"rounds": 1, "workers": 1}
    a = ct.fit(method, clients, "mclr", engine="serial", **how)
    b = ct.fit(method, clients, "mclr", engine=engine, on_event=events.append, **how)
    assert torch.equal(a.state.models, b.state.models)
    assert a.summary["privacy"] == b.summary["privacy"]
    if engine == "stacked":
        assert any("gradient of its own" in event.get("why", "") for event in events)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('method = "pacfl"', "use kin, fedavg"),
        ('method = "kin"', "kin.follow = false"),
        ('method = "fedavg"\n[engine]\nname = "flower"', "use serial, pool or auto"),
        ('method = "fedavg"\n[model]\nname = "resnet9"\nnorm = "batch"', 'use norm = "group"'),
        ('method = "fedavg"\n[train]\nstop = {patience = 3}\n', "leave out train.stop"),
    ],
    ids=["method", "gains", "engine", "batch norm", "validation"],
)
def test_impossible_pairs_are_refused_with_what_would_work(
    text: str, said: str, figure: Callable[..., None]
) -> None:
    figure("impossible pairs", 1)
    with pytest.raises(ConfigError) as caught:
        loads(text, settings=[("privacy.epsilon", 8)])
    assert said in str(caught.value)


def test_batch_normalisation_of_ones_own_is_refused_too() -> None:
    net = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 10))
    with pytest.raises(ConfigError, match="cannot be private") as caught:
        ct.fit(ct.FedAvg(solver=noisy()), ct.partition("digits", clients=3), net, rounds=1)
    assert "normalisation" in caught.value.fix


@pytest.mark.parametrize("method", ["fedavg", "fedclust", "cflgt", "dapfl", "kin"])
def test_epsilon_becomes_noise_with_which_nobody_spends_more(
    method: str, figure: Callable[..., None]
) -> None:
    more = [("kin.follow", False)] if method == "kin" else []
    more += [("cflgt.pretrain", 1)] if method == "cflgt" else []
    settings = [("train.rounds", 2), ("privacy.epsilon", 8), ("partition.clients", 4)]
    config = loads(f'method = "{method}"\n[model]\nname = "mclr"', settings=settings + more)
    config, gather = experiment.simulated(config)
    assert config.privacy.noise_multiplier is not None
    them = gather(lambda event: None, None)
    for _ in run(them.method, them.fed, 2):
        pass
    found = private.accounts(them.fed, them.method)["privacy"]
    assert len(found["epsilon"]) == 4
    figure("most epsilon spent, of 8", round(found["epsilon_max"], 3), by="most")
    assert 0 < found["epsilon_max"] <= 8


def test_a_noise_that_spends_more_than_epsilon_is_refused_with_one_that_does_not() -> None:
    settings = [("privacy.epsilon", 1), ("privacy.noise_multiplier", 0.5)]
    with pytest.raises(ConfigError, match="more than 1") as caught:
        experiment.simulated(loads('method = "fedavg"', settings=settings))
    assert caught.value.code == "C072"
    assert "at least" in caught.value.fix


@pytest.mark.row(34)
def test_a_sample_does_not_come_back_from_an_upload_under_noise(
    figure: Callable[..., None],
) -> None:
    client = people()[0]
    one = replace(client, x=client.x[:1], y=client.y[:1])
    task, rng = Train(replace(noisy(1.0), steps=1, batch=0)), stream(0, "noisy")
    value = task(one, small().initial, {}, small(), rng).value
    sent = Upload(task, 1, 0, one, small().initial, {}, value, {})
    (part,) = parts_of(sent, small(), 10)
    seen = rebuilding.gradient_of(sent, part, small())
    frame = auditor().frame
    found = rebuilding.matched(seen, small(), frame, one.y, stream(0, "attack"), starts=1)
    span = frame.high - frame.low
    like = psnr(frame.pixels(found[0]), frame.pixels(one.x[0]), span)
    figure("dB of a sample rebuilt under noise", round(like, 1), by="most")
    assert like < OUTLINE
