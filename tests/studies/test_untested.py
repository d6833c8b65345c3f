"""Clients without test samples: they train, and nothing is said of an accuracy nobody has."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

import coterie as ct

X, Y = torch.randn(30, 4, generator=torch.Generator().manual_seed(0)), torch.arange(30) % 3
PAIRS = [(X + i, Y) for i in range(3)]


def test_pairs_as_the_documentation_has_them_train_and_are_tested() -> None:
    result = ct.fit(ct.FedAvg(), ct.Population.of(PAIRS), "mclr", rounds=2)
    assert sorted(result.accuracy.values) == ["0", "1", "2"]
    assert 0 <= result.accuracy.mean() <= 1


@pytest.mark.parametrize("method", [ct.FedAvg(), ct.FedAvgFT(), ct.IFCA(clusters=2), ct.Local()])
@pytest.mark.row(20, counts="partitions and clients looked at")
def test_with_nobody_to_test_a_run_ends_without_an_accuracy(
    method: ct.Method, tmp_path: Path
) -> None:
    told = []
    clients = ct.Population.of(PAIRS, test_share=0)
    result = ct.fit(method, clients, "mclr", rounds=2, out=tmp_path / "r", on_event=told.append)
    assert len(result.accuracy) == 0
    assert math.isnan(result.accuracy.mean())
    assert math.isnan(result.accuracy.worst())
    kept = json.loads((tmp_path / "r/summary.json").read_text())
    assert kept[kept["stage"]] == {"accuracy_mean": None, "accuracy_worst": None}
    assert kept["round"] == 2
    assert [e for e in told if "no report" in e.get("text", "")] == []
    assert "has not been tested" in (tmp_path / "r/report.html").read_text()
    assert result.model(1)(X).shape == (30, 3)
    assert result.place({"new": (X, Y)}).model("new")(X).shape == (30, 3)


@pytest.mark.row(20, counts="partitions and clients looked at")
def test_methods_are_not_compared_where_nobody_is_tested(tmp_path: Path) -> None:
    clients = ct.Population.of(PAIRS, test_share=0)
    with pytest.raises(ct.DataError) as error:
        ct.compare([ct.FedAvg(), ct.Local()], clients, "mclr", rounds=1, out=tmp_path / "c")
    assert error.value.code == "D046"
    assert not (tmp_path / "c").exists()


def test_newcomers_name_their_labels_as_the_clients_did() -> None:
    clients = ct.Population.of([(X, Y + 1), (X, Y + 1)])
    result = ct.fit(ct.FedAvg(), clients, "mclr", rounds=1)
    placed = result.place({"new": (X, Y + 1, X, Y + 1)}, epochs=30)
    said = placed.model("new")(X).argmax(1)
    assert float((said == Y).double().mean()) == pytest.approx(placed.after["new"])
    with pytest.raises(ct.DataError, match="client zoe does not fit in"):
        result.place({"zoe": (X, np.array(["word"] * 30))})


def test_what_goes_wrong_in_a_test_is_told_of_the_test() -> None:
    x, y = torch.full((12, 4), 3e38), torch.arange(12) % 2
    people = ct.Population.of([(x, y), (x, y)])
    with pytest.raises(ct.CoterieError) as caught:
        ct.fit(ct.FedAvg(), people, "dnn2", rounds=1)
    assert caught.value.code == "R014"
    assert "in the first test" in str(caught.value)
    assert "too large" in caught.value.why
