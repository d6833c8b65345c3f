"""Further metrics of a test: alike on every engine, in the form declared, free if not asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from coterie.core.client import Client
from coterie.core.errors import ConfigError
from coterie.core.loop import evaluate
from coterie.core.metric_names import METRICS, objections
from coterie.core.types import Evaluation, State
from coterie.engines.front import Front
from coterie.methods.fedavg import FedAvg
from coterie.tasks import scoring, wire
from coterie.tasks.measured import Measured, expect_metrics, measured, named
from coterie.tasks.score import Score
from coterie.tasks.solver import Solver
from tests import tiny

ALL = tuple(METRICS)
OWN = f"{__name__}:top_two"


def top_two(labels: NDArray[np.int64], scores: NDArray[np.float64]) -> float:
    """The share of samples whose label is among the two likeliest."""
    return float((scores.argsort(1)[:, -2:] == labels[:, None]).any(1).mean())


def people() -> list[Client]:
    """Two whole clients, one tested on a single class, one without test samples."""
    a, b, c, d = tiny.clients(4)
    one, none = c.y_test == c.y_test[0], slice(0)
    return [
        a,
        b,
        replace(c, x_test=c.x_test[one], y_test=c.y_test[one]),
        replace(d, x_test=d.x_test[none], y_test=d.y_test[none]),
    ]


def held(fed: Front) -> State:
    rng = torch.Generator().manual_seed(3)
    row = fed.layout.initial + 0.5 * torch.randn(fed.layout.size, generator=rng)
    return State.shared(row, len(fed.clients))


def asked(fed: Front, task: Evaluation) -> dict[str, torch.Tensor]:
    replies = fed.at(0, "evaluate").ask(fed.clients, task, held(fed))
    assert len(replies) == len(fed.clients), fed.ledger[-1].rejected
    return {"value": replies.values, **replies.extra}


@pytest.mark.parametrize("kind", [tiny.stacked, tiny.compiled])
def test_every_engine_gives_the_numbers_of_serial(kind: Callable[..., Front]) -> None:
    task = Measured(Score(Solver(lr=0.05, batch=8)), (*ALL, OWN))
    want, got = (asked(tiny.federation(people=people(), kind=k), task) for k in (Front, kind))
    assert want.keys() == got.keys() == {"value", "numbers", "classes"}
    for name, t in want.items():
        assert torch.allclose(got[name].double(), t.double(), atol=1e-6, equal_nan=True), name


def test_worker_processes_give_the_bits_of_serial() -> None:
    task = Measured(Score(), (*ALL, OWN))
    want = asked(tiny.federation(people=people()), task)
    with tiny.pooled(tiny.federation(people=people())) as fed:
        got = asked(fed, task)
    for name, t in want.items():
        assert torch.equal(got[name].nan_to_num(-1), t.nan_to_num(-1)), name


def test_a_test_is_the_same_with_and_without_metrics_and_costs_nothing_without() -> None:
    fed, score = tiny.federation(people=people()), Score(Solver(lr=0.05, batch=8))
    assert measured(score, ()) is score
    plain, more = asked(fed, score), asked(fed, Measured(score, ALL))
    assert plain.keys() == {"value"}
    assert torch.equal(plain["value"].nan_to_num(-1), more["value"].nan_to_num(-1))


def test_numbers_are_those_of_the_scores_and_counts_those_of_the_accuracy() -> None:
    fed, task = tiny.federation(people=people()), Measured(Score(), (*ALL, OWN))
    got = asked(fed, task)
    for i, client in enumerate(fed.population[:3]):
        logits = fed.layout.predict(held(fed).models[0], client.x_test)
        scores = logits.double().softmax(1).numpy()
        y = client.y_test.numpy()
        want = [scoring.OURS[name](y, scores) for name in scoring.OURS] + [top_two(y, scores)]
        assert np.allclose(got["numbers"][i, 0], want, equal_nan=True)
        right, wrong = got["classes"][i, 0]
        assert right.sum() / (right + wrong).sum() == pytest.approx(float(got["value"][i, 0, 0]))
    assert got["numbers"][2, 0].isnan().tolist() == [False, False, True, False, False]
    assert got["numbers"][3].isnan().all()
    assert not got["classes"][3].any()


def test_an_answer_out_of_its_range_is_refused_and_one_that_cannot_be_told_is_not() -> None:
    fed = tiny.federation(people=people())
    task = Measured(Score(), ("auc", OWN, "per_class_accuracy"))
    form = fed.at(0).question(fed.clients, task, held(fed), {}).form(0)
    assert form is not None
    ok = torch.tensor([[float("nan"), -7.5]], dtype=torch.float64)
    assert form["extra.numbers"].fault("numbers", ok) is None
    for bad in ([[1.5, 0.0]], [[0.5, float("inf")]], [[0.5, 1e21]]):
        assert form["extra.numbers"].fault("numbers", torch.tensor(bad, dtype=torch.float64))
    counts = torch.zeros(1, 2, 4, dtype=torch.long)
    assert form["extra.classes"].fault("classes", counts) is None
    assert form["extra.classes"].fault("classes", counts - 1)
    assert form["extra.classes"].fault("classes", counts[..., :3])


def test_a_message_calls_a_function_of_others_only_where_its_owner_trusts_the_module(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wire, "TRUSTED", set())
    ours, theirs = Measured(Score(), ALL), Measured(Score(), ("os:getcwd",))
    assert wire.decode(wire.encode(ours)) == ours
    with pytest.raises(ConfigError, match="not coterie's") as refused:
        wire.decode(wire.encode(theirs))
    assert "--trust os" in refused.value.fix
    wire.trust("os")
    assert wire.decode(wire.encode(theirs)) == theirs


def test_scores_of_an_evaluation_keep_who_was_tested() -> None:
    fed = tiny.federation(people=people())
    method = FedAvg()
    scores = evaluate(method, held(fed), fed, measured(method.score, ALL))
    assert scores.clients.tolist() == [0, 1, 2]
    assert scores.extra["numbers"].shape == (3, 1, 4)
    assert scores.extra["classes"].shape == (3, 1, 2, 4)


def test_what_cannot_be_measured_is_refused_in_words() -> None:
    class Other(Evaluation):
        stages, private, train, held = ("before",), "none", "all", Score().held  # type: ignore[assignment]
        __call__ = Score.__call__

    with pytest.raises(ConfigError, match="Other tests by accuracy and loss alone"):
        measured(Other(), ("auc",))
    assert measured(Other(), ()).stages == ("before",)
    for wrong in ("acc", "accuracy", "nowhere:fn", "math:auc"):
        with pytest.raises(ConfigError, match="cannot be used"):
            expect_metrics([wrong])
    with pytest.raises(ConfigError, match="cannot be used"):
        expect_metrics(["auc", "auc"])
    expect_metrics([*ALL, OWN])
    assert [name for name, _ in objections([*ALL, OWN])] == []


def test_a_function_is_known_by_its_place() -> None:
    assert named(top_two) == OWN
    with pytest.raises(ConfigError, match="cannot be used"):
        named(lambda labels, scores: 0.0)
