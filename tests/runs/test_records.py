"""What a run writes down."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from coterie.core.errors import CheckpointError
from coterie.data.population import Population
from coterie.methods import find
from coterie.methods.fedavg import FedAvg, FedAvgFT
from coterie.methods.fedclust import FedClust
from coterie.runs.history import from_csv
from coterie.studies.run.training import fit
from coterie.tasks.solver import Solver
from tests.tiny import clients, network

SOLVER = Solver(lr=0.1, batch=8)


def people(n: int = 6) -> Population:
    return Population.of(clients(n), classes=4, group=[i * 2 // n for i in range(n)])


def test_every_client_is_measured_every_round_before_and_after_adaptation(tmp_path: Path) -> None:
    fit(FedAvgFT(SOLVER, 0.3), people(), network(), rounds=2, out=tmp_path / "r")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "r" / "metrics.csv").read_text())))
    assert list(rows[0]) == ["round", "client", "cluster", "stage", "metric", "value"]
    seen = {(r["round"], r["client"], r["stage"]) for r in rows if r["metric"] == "accuracy"}
    assert seen == {
        (str(t), str(i), stage) for t in range(3) for i in range(6) for stage in ("before", "after")
    }


def test_bytes_in_the_records_are_those_of_the_ledger(tmp_path: Path) -> None:
    result = fit(FedAvg(SOLVER, 0.5), people(), network(), rounds=2)
    size = 4 * result.fed.layout.size
    assert result.history.series("bytes_up", "traffic") == {0: 0, 1: 3 * size, 2: 3 * size}
    assert result.summary["bytes_down"] == 6 * size


def test_clusters_are_written_with_the_planted_group(tmp_path: Path) -> None:
    fit(FedClust(SOLVER, 1.0, clusters=2), people(), network(), rounds=1, out=tmp_path / "r")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "r" / "clusters.csv").read_text())))
    last = [(r["client"], r["cluster"], r["group"]) for r in rows if r["round"] == "1"]
    assert last == [(str(i), str(i // 3), str(i // 3)) for i in range(6)]


def test_a_history_reads_back_to_the_same_numbers(tmp_path: Path) -> None:
    result = fit(FedAvg(SOLVER), people(), network(), rounds=2, out=tmp_path / "r")
    assert from_csv((tmp_path / "r" / "metrics.csv").read_text()) == result.history


def test_the_summary_names_each_way_to_choose_rounds(tmp_path: Path) -> None:
    result = fit(
        FedAvg(SOLVER), people(), network(), rounds=4, out=tmp_path / "r", last_k=2, target=0.3
    )
    summary = json.loads((tmp_path / "r" / "summary.json").read_text())["before"]
    curve = [v for t, v in result.history.series("accuracy_mean").items() if t]
    assert summary["accuracy_mean"] == curve[-1]
    assert summary["accuracy_last_2"] == pytest.approx(sum(curve[-2:]) / 2)
    assert summary["accuracy_top_5"] == pytest.approx(sum(curve) / 4)
    first = next(t for t, v in enumerate(curve, 1) if v >= 0.3)
    assert summary["rounds_to_target"] == first
    assert summary["bytes_to_target"] == first * 12 * 4 * result.fed.layout.size


def test_python_runs_resume_to_the_same_bits(tmp_path: Path) -> None:
    whole = fit(FedClust(SOLVER), people(), network(), rounds=4, out=tmp_path / "whole")
    fit(FedClust(SOLVER), people(), network(), rounds=2, out=tmp_path / "half")
    rest = fit(FedClust(SOLVER), people(), network(), rounds=4, out=tmp_path / "half", resume=True)
    assert torch.equal(whole.state.models, rest.state.models)
    a, b = ((tmp_path / name / "metrics.csv").read_bytes() for name in ("whole", "half"))
    assert a == b


@pytest.mark.row(4, counts="changed runs")
def test_other_data_is_refused_on_resume(tmp_path: Path) -> None:
    fit(FedAvg(SOLVER), people(), network(), rounds=1, out=tmp_path / "r")
    others = clients(6)
    others[2] = replace(others[2], x=others[2].x + 1)
    changed = Population.of(others, classes=4, group=[0, 0, 0, 1, 1, 1])
    with pytest.raises(CheckpointError, match="not the ones this run was started with"):
        fit(FedAvg(SOLVER), changed, network(), rounds=2, out=tmp_path / "r", resume=True)


def test_a_folder_with_a_run_is_not_written_over(tmp_path: Path) -> None:
    fit(FedAvg(SOLVER), people(), network(), rounds=1, out=tmp_path / "r")
    before = (tmp_path / "r" / "metrics.csv").read_bytes()
    with pytest.raises(CheckpointError, match="already holds a run"):
        fit(FedAvg(SOLVER), people(), network(), rounds=1, out=tmp_path / "r")
    assert (tmp_path / "r" / "metrics.csv").read_bytes() == before


def test_peculiar_clients_are_told_by_name(tmp_path: Path) -> None:
    odd = clients(4)
    odd[1] = replace(odd[1], x=odd[1].x[:1], y=odd[1].y[:1])
    odd[2] = replace(odd[2], y=torch.zeros_like(odd[2].y))
    events: list[dict[str, object]] = []
    fit(FedAvg(SOLVER), Population.of(odd, classes=4), network(), rounds=1, on_event=events.append)
    told = [str(e["text"]) for e in events if e["event"] == "warning"]
    assert "1 of 4 clients hold a single training sample: 1" in told
    assert "1 of 4 clients hold a single class: 2" in told


@pytest.mark.parametrize("name", ["local", "fedavg-ft", "ditto", "fedrep", "fedclust", "dapfl"])
def test_the_model_of_a_client_is_the_one_whose_accuracy_is_told(name: str) -> None:
    method = find(name)(solver=SOLVER)  # type: ignore[call-arg]
    result = fit(method, people(), network(), rounds=3)
    for i, client in enumerate(result.population):
        right = (result.model(i)(client.x_test).argmax(1) == client.y_test).double().mean()
        assert float(right) == result.accuracy[i]
