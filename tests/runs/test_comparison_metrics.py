"""Metrics beside accuracy in a comparison: columns, a table, and tests that know what is better."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import coterie as ct
from coterie.report.charts import CHARTS
from coterie.report.run_data import read
from coterie.runs.comparison import Comparison

ASKED = ["macro_f1", "calibration_error", "per_class_accuracy"]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    people = ct.partition("digits", "rotation:2", clients=4, seed=0)
    solver = ct.Solver(lr=0.05, batch=16)
    methods = {"avg": ct.FedAvg(solver), "alone": ct.Local(solver)}
    out = tmp_path_factory.mktemp("metrics") / "c"
    how = {"seeds": 1, "metrics": ASKED, "engine": "serial", "page": False}
    return ct.compare(methods, people, "mclr", rounds=1, out=out, **how)  # type: ignore[arg-type]


def test_the_table_has_the_mean_of_each_metric(compared: Comparison) -> None:
    assert compared.metrics == tuple(ASKED)
    for row in compared.table():
        own = compared[row["method"], 0].clients("macro_f1")
        assert row["macro_f1"] == pytest.approx(np.mean(list(own.values())))
        assert row["per_class_accuracy"] == compared[row["method"], 0].numbers["per_class_accuracy"]
    text = compared.to("text")
    assert (
        "other metrics: mean over clients and seeds; less is better for calibration error" in text
    )
    assert "By macro-F1: " in text
    assert "macro_f1,macro_f1_interval" in compared.to("csv")


def test_where_less_is_better_the_smaller_wins(compared: Comparison) -> None:
    avg, alone = (compared[m, 0].clients("calibration_error") for m in ("avg", "alone"))
    pair = compared.tests("calibration_error").pairs[0]
    assert (pair.first, pair.second) == ("alone", "avg")
    assert pair.clients.wins == sum(alone[c] < avg[c] for c in avg)
    more = compared.tests("macro_f1").pairs[0].clients
    avg, alone = (compared[m, 0].clients("macro_f1") for m in ("avg", "alone"))
    assert more.wins == sum(alone[c] > avg[c] for c in avg)


def test_the_page_of_a_run_draws_them(compared: Comparison) -> None:
    run = read(Path(compared["avg", 0].folder))
    names = [trace.name for trace in CHARTS["metrics"](run).figure().data]
    assert names == ["macro-F1", "calibration error"]
    bars = CHARTS["classes"](run).figure().data[0]
    assert len(bars.x) == 10
    assert bars.x[3] == compared["avg", 0].history.series("class_3_accuracy")[1]
