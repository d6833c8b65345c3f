"""FedEM and FedRC: clients are mixtures of components."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import coterie
from coterie.core.errors import ConfigError
from coterie.core.loop import evaluate, run
from coterie.engines.front import Front
from coterie.methods.fedavg import FedAvg
from coterie.methods.fedem import FedEM
from coterie.methods.fedrc import FedRC
from coterie.tasks.measured import measured
from coterie.tasks.optimiser import SGD
from coterie.tasks.solver import Solver
from tests.methods.formulas import (
    Row,
    close,
    data,
    linear,
    log_softmax,
    logistic,
    losses,
    own,
    sizes,
    slope,
    trained,
)
from tests.tiny import CLASSES, clients, federation, same, stacked

SOLVER = Solver(lr=0.1, batch=8, optimiser=SGD(momentum=0.5))
WHOLE = Solver(lr=0.2, steps=2, batch=0)
BOTH = pytest.mark.parametrize("cls", [FedEM, FedRC])


@BOTH
def test_with_one_component_it_is_fedavg_to_the_bit(cls: type[FedEM]) -> None:
    fed, plain = federation(), federation()
    ours = trained(cls(SOLVER, 0.5, clusters=1), fed)
    theirs = trained(FedAvg(SOLVER, 0.5), plain)
    assert same(replace(ours, memory={}), theirs)
    said, meant = (
        evaluate(m, s, f) for m, s, f in ((cls(clusters=1), ours, fed), (FedAvg(), theirs, plain))
    )
    assert torch.equal(said.accuracy, meant.accuracy)
    torch.testing.assert_close(said.loss, meant.loss)


def test_fedrc_begins_as_fedem_to_the_bit() -> None:
    a, b = (trained(cls(SOLVER, 1.0, clusters=2), federation(), 1) for cls in (FedEM, FedRC))
    assert torch.equal(a.models, b.models)
    assert torch.equal(a.assign, b.assign)


def test_a_component_that_nobody_has_any_of_stays_as_it_is() -> None:
    fed = federation()
    method = FedEM(SOLVER, clusters=2)
    state = method.init(fed)
    for i in range(8):
        fed.memory[i] = {"weights": torch.tensor([1.0, 0.0], dtype=torch.float64)}
    after = method.round(state, fed.at(0))
    assert same(
        replace(after, models=after.models[:1]),
        replace(trained(FedAvg(SOLVER), federation(), 1), round=0),
    )
    assert torch.allclose(after.models[1], state.models[1])


def mixture(fed: Front, start: list[Row], rounds: int, *, robust: bool) -> Any:
    """The rounds of FedEM or FedRC with everybody, by their formulas: models, weights, shares."""
    models, pi = list(start), {i: np.full(len(start), 1 / len(start)) for i in range(8)}
    C = np.full((len(start), CLASSES), 1 / CLASSES)
    for _ in range(rounds):
        made, counts = [], np.zeros_like(C)
        for i, who in enumerate(fed.population):
            _, y = data(who)
            likely = np.exp(-np.stack([losses(w, who) for w in models], 1)) * pi[i]
            likely = likely / C[:, y].T if robust else likely
            q = likely / likely.sum(1, keepdims=True)
            pi[i] = q.mean(0)
            rows = []
            for c, w in enumerate(models):
                for _ in range(2):
                    w = w - 0.2 * slope(w, who, q[:, c])
                rows.append(w)
                counts[c] += np.bincount(y, q[:, c], CLASSES)
            made.append(rows)
        models = list(np.einsum("i,icp->cp", sizes(fed), np.array(made)))
        C = counts / counts.sum(1, keepdims=True)
    return models, pi, C


@BOTH
def test_it_is_its_formulas(cls: type[FedEM]) -> None:
    fed, method = logistic(), cls(WHOLE, clusters=3)
    start = [row.double().numpy() for row in method.init(fed).models]
    end = trained(method, fed, 3)
    models, pi, C = mixture(fed, start, 3, robust=cls is FedRC)
    close(end.models, np.stack(models))
    assert end.assign.tolist() == [int(pi[i].argmax()) for i in range(8)]
    for i, weights in own(fed, "weights").items():
        close(weights, pi[i])
    if cls is FedRC:
        close(end.memory["labels"], C)
    scores = evaluate(method, end, fed)
    for i, who in enumerate(fed.population):
        z = np.stack([log_softmax(linear(w, who.x_test.double().numpy())) for w in models])
        p = np.tensordot(pi[i], np.exp(z), 1)
        y = who.y_test.numpy()
        assert float(scores.loss[0, i]) == pytest.approx(
            -np.log(p[np.arange(len(y)), y]).mean(), rel=1e-4
        )
        assert float(scores.accuracy[0, i]) == (p.argmax(1) == y).mean()


@BOTH
def test_clients_of_other_labels_part_and_a_newcomer_finds_its_mixture(cls: type[FedEM]) -> None:
    fed, method = federation(), cls(Solver(lr=0.5, steps=4, batch=0), clusters=2)
    end = trained(method, fed, 10)
    assert len(set(end.assign[:4].tolist())) == len(set(end.assign[4:].tolist())) == 1
    assert end.assign[0] != end.assign[7]
    del fed.memory[6]
    late = replace(end, assign=end.assign.index_fill(0, torch.tensor([6]), -1))
    placed = method.place(late, fed.at(10))
    assert placed.assign.tolist() == end.assign.tolist()
    assert fed.ledger[-1].up.tolist() == [8]  # bytes: one number
    assert float(own(fed, "weights")[6].max()) > 0.9


def test_clients_without_a_round_are_tested_with_as_much_of_each() -> None:
    fed, method = logistic(), FedEM(WHOLE, clusters=2)
    state = method.init(fed)
    who = fed.population[0]
    p = torch.stack([fed.layout.predict(r, who.x_test).softmax(1) for r in state.models]).mean(0)
    meant = torch.nn.functional.nll_loss(p.log(), who.y_test)
    assert float(evaluate(method, state, fed).loss[0, 0]) == pytest.approx(float(meant), rel=1e-5)


def test_fedrc_can_be_tested_with_the_heaviest_alone() -> None:
    fed, method = federation(), FedRC(SOLVER, clusters=2, hard=True)
    end = trained(method, fed)
    plain = evaluate(FedAvg(), end, fed)
    assert torch.equal(evaluate(method, end, fed).loss, plain.loss)
    assert not torch.equal(evaluate(replace(method, hard=False), end, fed).loss, plain.loss)


def test_further_metrics_are_those_of_the_mixture() -> None:
    fed, method = logistic(), FedEM(WHOLE, clusters=2)
    end = trained(method, fed, 2)
    found = evaluate(method, end, fed, measured(method.score, ["balanced_accuracy"])).extra
    who, pi = fed.population[3], own(fed, "weights")[3]
    each = torch.stack([fed.layout.predict(row, who.x_test).softmax(1) for row in end.models])
    right = torch.tensordot(pi.float(), each, 1).argmax(1) == who.y_test
    mean = np.mean([right[who.y_test == c].double().mean() for c in who.y_test.unique()])
    assert float(found["numbers"][3, 0, 0]) == pytest.approx(mean)


def test_a_mixture_is_validated_on_what_is_held_back() -> None:
    people = [replace(who, x_val=who.x_test[:9], y_val=who.y_test[:9]) for who in clients()]
    fed, method = logistic(people=people), FedEM(WHOLE, clusters=2)
    end = trained(method, fed, 2)
    held = evaluate(method, end, fed, method.score.validated()).validation
    assert held is not None
    small = [replace(who, x_test=who.x_val, y_test=who.y_val) for who in people]
    again = logistic(people=small)
    again.restore(fed.memories())
    assert torch.equal(held.loss, evaluate(method, end, again).loss)


def test_a_mixture_is_not_taken_away_as_if_it_were_one_model(tmp_path: Path) -> None:
    people = coterie.partition("digits", "rotation:2", clients=2)
    result = coterie.fit(FedEM(SOLVER, clusters=2), people, "mclr", rounds=1)
    with pytest.raises(ConfigError, match="predicts with 2 models at once") as refused:
        result.save(tmp_path / "mine.safetensors", client=0)
    assert refused.value.code == "C058"
    held = int(result.state.assign[0])
    assert result.save(tmp_path / "one.safetensors", cluster=held).exists()


def test_weighted_trainings_stack() -> None:
    method = FedEM(SOLVER, clusters=2)
    a, b = federation(), federation(kind=stacked)
    for x, y in zip(run(method, a, 2), run(method, b, 2), strict=True):
        torch.testing.assert_close(x.models, y.models, rtol=1e-4, atol=1e-5)
