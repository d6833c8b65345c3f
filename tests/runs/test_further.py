"""Further metrics in the records: rows, means, classes, and the reader that finds them by name."""

from __future__ import annotations

import csv
import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import coterie as ct
from coterie import config as configs
from coterie.core import best_by
from coterie.core.loop import Scores
from coterie.core.types import State
from coterie.report.run_data import read
from coterie.runs import by_class, further
from coterie.runs.history import History, Row
from coterie.studies.run import experiment
from coterie.studies.run.result import Result

ASKED = ("balanced_accuracy", "macro_f1", "auc", "calibration_error", "per_class_accuracy")
SOLVER = ct.Solver(lr=0.05, batch=16)


def misses_error(labels: NDArray[np.int64], scores: NDArray[np.float64]) -> float:
    """How many samples are wrong; it is less that is better."""
    return float((scores.argmax(1) != labels).sum())


@cache
def people() -> ct.Population:
    return ct.partition("digits", "label-skew:0.3", clients=4, seed=1)


@cache
def result() -> Result:
    metrics = [*ASKED, misses_error]
    return ct.fit(ct.FedAvg(SOLVER), people(), "mclr", rounds=2, metrics=metrics, engine="serial")


def test_every_client_has_a_row_of_each_metric_and_the_federation_its_means() -> None:
    r = result()
    for name in ASKED[:-1]:
        each = r.history.clients(2, name)
        assert set(each) == set(people().names)
        assert 0 <= min(each.values()) <= max(each.values()) <= 1
        assert r.history.series(f"{name}_mean")[2] == pytest.approx(np.mean(list(each.values())))
        assert r.history.series(f"{name}_clients")[2] == 4
    wrong = r.history.clients(2, "misses_error")
    accuracy, tested = r.history.clients(2), [len(c.y_test) for c in people()]
    want = [(1 - accuracy[n]) * m for n, m in zip(people().names, tested, strict=True)]
    assert [wrong[n] for n in people().names] == pytest.approx(want)
    assert r.history.series("misses_error_worst")[2] == max(wrong.values())
    assert r.summary["before"]["macro_f1_mean"] == r.history.series("macro_f1_mean")[2]


def test_what_else_is_recorded_is_the_same_as_without_metrics() -> None:
    plain = ct.fit(ct.FedAvg(SOLVER), people(), "mclr", rounds=2, engine="serial")
    known = {row.metric for row in plain.history}
    assert [row for row in result().history if row.metric in known] == plain.history.rows


def test_counts_of_classes_are_read_back_and_add_up_to_the_accuracy() -> None:
    found = result().by_class()
    assert found is not None
    total = found.right + found.wrong
    own = dict(zip(found.clients, found.right.sum(1) / total.sum(1), strict=True))
    assert own == pytest.approx(result().accuracy.values)
    for i, client in enumerate(people()):
        assert total[i].tolist() == torch.bincount(client.y_test, minlength=10).tolist()
    whole = result().history.series("per_class_accuracy")[2]
    assert whole == pytest.approx(np.nanmean(found.accuracy))
    assert result().history.series("class_3_accuracy")[2] == pytest.approx(found.accuracy[3])


def test_shots_are_the_training_samples_that_a_client_has_of_a_class() -> None:
    found = by_class.Counted(("a", "b"), np.array([[1.0, 2], [3, 0]]), np.array([[1.0, 0], [1, 4]]))
    shots = found.by_shots({"a": [29, 81], "b": [30, 80]})
    assert shots == {"few": 0.5, "medium": 3 / 8, "many": 1.0}
    assert np.isnan(found.by_shots({"a": [1, 1], "b": [1, 1]})["many"])
    shown = result().by_shots(edges=(30, 80))
    assert shown is not None
    assert set(shown) == {"few", "medium", "many"}
    assert result().summary["by_shots"] == {k: v for k, v in shown.items() if not np.isnan(v)}
    assert ct.fit(ct.FedAvg(SOLVER), people(), "mclr", rounds=0, engine="serial").by_class() is None


def test_a_metric_is_found_by_the_name_it_was_asked_for_by() -> None:
    for name in ("accuracy", "loss", *ASKED, "mine.metrics:misses_error", "accuracy_worst"):
        assert set(result().history.series(best_by.full(name))) == {0, 1, 2}


def test_who_has_no_value_has_no_row_and_who_was_not_tested_counts_by_the_last_one() -> None:
    names, nan = ("a", "b", "c"), torch.nan
    before = History(
        [
            Row(1, name, "0", "before", "auc", v)
            for name, v in zip(names, (0.5, 0.6, 0.7), strict=True)
        ]
    )
    state = State(torch.zeros(1, 1), torch.zeros(3, dtype=torch.long), round=2)
    numbers = torch.tensor([[[0.9]], [[nan]]], dtype=torch.float64)
    one = torch.zeros(1, 2, dtype=torch.float64)
    scores = Scores(
        torch.tensor([0, 1]), ("before",), one, one, absent=1, extra={"numbers": numbers}
    )
    how = names, torch.ones(3), "shared"

    def found(known: History | None) -> dict[tuple[str, str], float]:
        rows = further.tested(state, scores, *how, known, ("auc",))
        return {(row.client, row.metric): row.value for row in rows}

    alone, filled = found(None), found(before)
    assert ("b", "auc") not in alone
    assert alone["", "auc_mean"] == 0.9
    assert alone["", "auc_clients"] == 1
    assert filled["", "auc_mean"] == pytest.approx((0.9 + 0.6 + 0.7) / 3)


def test_metrics_of_a_file_are_written_and_a_resume_gives_the_same_bytes(tmp_path: Path) -> None:
    how = {
        "method": "fedavg",
        "partition.clients": 4,
        "model.name": "mclr",
        "train.rounds": 2,
        "evaluate.metrics": ("macro_f1", "per_class_accuracy"),
    }
    for name, rounds in (("whole", 2), ("cut", 1)):
        config = configs.load(None, {**how, "train.rounds": rounds}.items())
        experiment.execute(config, tmp_path / name, page=False)
    experiment.resume(tmp_path / "cut", settings=[("train.rounds", 2)], page=False)
    texts = [(tmp_path / name / "metrics.csv").read_bytes() for name in ("whole", "cut")]
    assert texts[0] == texts[1]
    events = [json.loads(line) for line in (tmp_path / "cut/events.jsonl").read_text().splitlines()]
    last = [e for e in events if e["event"] == "round"][-1]
    assert last["macro_f1"] == read(tmp_path / "cut").series("macro_f1_mean").values[-1]
    metrics = {row["metric"] for row in csv.DictReader(texts[0].decode().splitlines())}
    assert {"macro_f1", "macro_f1_mean", "class_0_right", "class_9_accuracy"} <= metrics
