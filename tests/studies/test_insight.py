"""What only the clients' data can tell, and a page that is honest where they are elsewhere."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import coterie
from coterie.methods.fedavg import FedAvg
from coterie.methods.fedclust import FedClust
from coterie.methods.partial import FedRep
from coterie.report.page import look, run_page
from coterie.studies.run.result import cross_test
from coterie.tasks.score import Score
from tests import reported, tiny
from tests.reported import SOLVER

CLUSTERED = FedClust(SOLVER, warmup_epochs=2)


def test_no_worker_is_started_again_for_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = reported.trained(CLUSTERED, engine="pool", workers=2)
    monkeypatch.setattr(multiprocessing, "get_context", lambda *_: pytest.fail("a worker"))
    assert result.report(tmp_path / "r.html").exists()
    assert result.fed.ledger == [], "looking is not traffic"


def test_the_clients_are_tested_once_however_many_charts_are_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = reported.trained(CLUSTERED)
    result.plot("cross")
    monkeypatch.setattr(Score, "__call__", lambda *_: pytest.fail("a test"))
    result.plot("cross")


def test_one_model_for_all_is_not_tested_against_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    result = reported.trained(FedAvg(SOLVER), rounds=1)
    monkeypatch.setattr(Score, "__call__", lambda *_: pytest.fail("a test"))
    found = result.insight
    assert found
    assert found.counts.sum() == result.population.sizes.sum()
    assert found.cross is None


def test_private_layers_are_part_of_what_is_tested() -> None:
    """Every client has the shared body and a head of its own: its test is with that head."""
    result = coterie.fit(
        FedRep(SOLVER, fraction=1.0), reported.population(), tiny.network(), rounds=2
    )
    halves = replace(result.state, models=result.state.models.repeat(2, 1))
    split = halves.reassign(torch.arange(8), torch.arange(8) // 4)
    found = cross_test(replace(result, state=split), [0, 1])
    accuracy = [result.accuracy[name] for name in result.fed.names]
    own = [np.mean(accuracy[:4]), np.mean(accuracy[4:])]
    assert found == pytest.approx(np.array([own, own]).T)


def test_a_page_says_that_the_data_are_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    result = reported.trained(CLUSTERED)
    nothing = torch.zeros(8, tiny.CLASSES, dtype=torch.long)
    monkeypatch.setattr(type(result.population), "label_counts", lambda _: nothing)
    page = run_page(result.run_data())
    assert result.insight is None
    assert "every client keeps its data on its own machine" in page
    assert 'data-chart="labels"' not in page


def test_the_folder_of_a_federation_is_not_looked_up_in_the_servers_own_data(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "run"
    reported.trained(FedAvg(SOLVER), folder, rounds=1)
    (folder / "run.toml").write_text('method = "fedavg"\n[engine]\nname = "flower"\n')
    page = run_page(look(folder, lambda _: pytest.fail("it was")))
    assert "every client keeps its data on its own machine" in page
    assert "did not note where the server stood" in page, "no command is better than a wrong one"


def test_a_result_needs_neither_its_table_nor_its_tensors_from_disk(tmp_path: Path) -> None:
    result = reported.trained(CLUSTERED, tmp_path / "r")
    page = run_page(result.run_data())
    (tmp_path / "r/metrics.csv").unlink()
    for file in (tmp_path / "r").rglob("*.safetensors"):
        file.unlink()
    assert run_page(result.run_data()) == page
