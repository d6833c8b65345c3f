"""FedSoft: shares of samples, one anchor for all centres, personal models."""

from __future__ import annotations

from dataclasses import replace

import torch

from coterie.core.loop import evaluate
from coterie.core.rng import stream
from coterie.core.types import State
from coterie.methods.fedsoft import FedSoft
from coterie.methods.local import Local
from coterie.tasks.signature import Importance
from coterie.tasks.solver import Solver, pull
from coterie.words.mixing import average, mix
from tests.methods.planted import states
from tests.tiny import federation

WHOLE = Solver(lr=0.1, batch=0, epochs=3)  # no mini-batches: the order of samples is float noise


def test_without_a_pull_personal_models_are_those_of_local_up_to_rounding() -> None:
    soft, alone = federation(), federation()
    states(FedSoft(WHOLE, clusters=1, lam=0.0), soft, 3)
    states(Local(WHOLE), alone, 3)
    for i in range(8):
        a, b = soft.memory[i]["private"], alone.memory[i]["private"]
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_one_centre_is_the_average_of_the_personal_models() -> None:
    fed = federation()
    end = states(FedSoft(WHOLE, clusters=1), fed, 2)[-1]
    personal = torch.stack([fed.memory[i]["private"] for i in range(8)])
    assert torch.equal(end.models, mix(average(fed.sizes), personal))
    assert end.memory["importance"].tolist() == [[1.0]] * 8


def test_one_anchor_pulls_like_all_centres() -> None:
    m = FedSoft(lam=0.3)
    rng = stream(0, "anchor")
    u = torch.rand(2, 3, generator=rng).double()
    centres, w = torch.randn(3, 5, generator=rng).double(), torch.randn(5, generator=rng).double()
    state = State(centres, torch.zeros(8, dtype=torch.long), round=1).hold(importance=u)
    sent = m.pull(state, torch.tensor([0, 1]))
    for i in range(2):
        g = torch.zeros(5).double()
        pull(g, w, sent["anchor"][i], float(sent["prox"][i]))
        expected = 0.3 * sum(u[i, s] * (w - centres[s]) for s in range(3))
        torch.testing.assert_close(g, expected)


def test_random_centres_do_not_pull() -> None:
    pair = []
    for lam in (0.0, 9.0):
        fed = federation()
        states(FedSoft(WHOLE, clusters=2, lam=lam), fed, 1)
        pair.append(fed.memory)
    assert all(torch.equal(pair[0][i]["private"], pair[1][i]["private"]) for i in range(8))


def test_a_strong_pull_holds_personal_models_at_the_centre() -> None:
    def apart(lam: float) -> float:
        fed = federation()
        end = states(FedSoft(replace(WHOLE, lr=0.01), clusters=1, lam=lam), fed, 5)[-1]
        return sum(float((fed.memory[i]["private"] - end.models[0]).norm()) for i in range(8))

    assert apart(50.0) < 0.5 * apart(0.0)


def test_shares_are_of_samples_and_never_below_sigma() -> None:
    fed = federation()
    state = FedSoft(clusters=2).init(fed.at(-1))
    u = fed.at(0).ask(fed.clients, Importance(0.3), state).values
    client = fed.population[3]
    losses = torch.stack(
        [
            torch.nn.functional.cross_entropy(
                fed.layout.predict(row, client.x), client.y, reduction="none"
            )
            for row in state.models
        ]
    )
    best = losses.argmin(0)
    shares = torch.tensor([(best == s).float().mean() for s in range(2)])
    torch.testing.assert_close(u[3], shares.clamp_min(0.3))
    assert u.min() >= 0.3


def test_importance_is_estimated_every_tau_rounds() -> None:
    fed = federation()
    states(FedSoft(WHOLE, clusters=2, tau=3), fed, 5)
    assert [a.round for a in fed.ledger if a.task == "Importance"] == [0, 3]


def test_every_round_one_model_travels_each_way() -> None:
    fed = federation()
    states(FedSoft(WHOLE, clusters=3, tau=2), fed, 2)
    d = fed.layout.size * 4
    last = fed.ledger[-1]
    assert last.down.tolist() == [d + 4] * 8  # the anchor, and how strong it pulls
    assert last.up.tolist() == [d] * 8
    assert fed.ledger[0].down.tolist() == [3 * d] * 8


def test_the_personal_model_is_what_is_tested() -> None:
    fed, m = federation(), FedSoft(WHOLE, clusters=2)
    end = states(m, fed, 4)[-1]
    loss = evaluate(m, end, fed).loss[0]
    for i, client in enumerate(fed.population):
        logits = fed.layout.predict(fed.memory[i]["private"], client.x_test)
        own = torch.nn.functional.cross_entropy(logits, client.y_test)
        assert float(loss[i]) == float(own.double())


def test_a_newcomer_starts_from_the_mean_of_the_centres_by_its_shares() -> None:
    end = states(FedSoft(WHOLE, clusters=2), federation(7), 2)[-1]
    fed = federation(8)
    joined = replace(end, assign=torch.cat([end.assign, torch.tensor([-1])]))
    joined = FedSoft(replace(WHOLE, lr=1e-9), clusters=2).place(joined, fed.at(2))
    u = joined.memory["importance"][7]
    torch.testing.assert_close(fed.memory[7]["private"], u / u.sum() @ joined.models)
