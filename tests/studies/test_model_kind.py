"""Shared, clustered and personal are three things, in the API and wherever a run is told of."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import coterie as ct
from coterie.cli import main
from coterie.methods.ditto import Ditto
from coterie.methods.fedavg import FedAvg
from coterie.methods.fedclust import FedClust
from coterie.methods.local import Local
from coterie.report import read
from coterie.report.page import run_page

METHODS = {
    "local": ("personal", "own"),
    "ditto": ("personal", "own"),
    "fedamp": ("personal", "own"),
    "fedavg-ft": ("personal", "own"),
    "fedavg": ("shared", "shared"),
    "fedclust": ("clustered", None),
}
ALL = pytest.mark.parametrize("method", list(METHODS))
SETTINGS = ["partition.kind=rotation", "partition.clients=8", "model.name=mclr"]
SETTINGS += ["train.rounds=2", "engine.name=serial"]


def run(method: str, folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "sys.argv", ["coterie", "run", *SETTINGS, f"method={method}", f"--out={folder}"]
        )
        with pytest.raises(SystemExit) as end:
            main()
    assert not end.value.code


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("kinds")
    for method in METHODS:
        run(method, place / method)
    return {method: place / method for method in METHODS}


def lines(file: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(file.read_text().splitlines()))


@ALL
def test_the_records_say_which(method: str, folders: dict[str, Path]) -> None:
    kind, word = METHODS[method]
    folder = folders[method]
    held = {row["cluster"] for row in lines(folder / "clusters.csv") if row["round"] == "2"}
    assert held == {word} if word else {"0", "1", "2", "3"}
    told = {row["cluster"] for row in lines(folder / "metrics.csv") if row["client"]}
    assert word is None or told == {word}
    measured = {
        row["metric"] for row in lines(folder / "metrics.csv") if row["stage"] == "clusters"
    }
    grouped = {"clusters", "ari", "nmi", "clusters_correct", "churn"}
    assert (measured & grouped == grouped) if kind == "clustered" else measured == {"unplaced"}
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["kind"] == kind
    assert ("ari" in summary["clusters"]) == (kind == "clustered")
    start = json.loads((folder / "events.jsonl").read_text().splitlines()[0])
    assert start["kind"] == kind


@ALL
def test_the_result_says_which(method: str, folders: dict[str, Path]) -> None:
    result = ct.open_run(folders[method])
    assert result.kind == METHODS[method][0]
    assert len(result.clusters) == (8 if result.kind == "clustered" else 0)


@ALL
def test_the_page_says_which(method: str, folders: dict[str, Path]) -> None:
    page = run_page(read(folders[method]))
    told = {
        "personal": "each with a model of its own",
        "shared": "with one model for all",
        "clustered": "in 4 clusters",
    }
    for kind, words in told.items():
        assert (words in page) == (kind == METHODS[method][0]), words
    assert ("ARI 1.00" in page) == (method == "fedclust")


def test_an_open_run_has_the_page_of_its_folder(folders: dict[str, Path]) -> None:
    for method, folder in folders.items():
        in_hand, on_disk = ct.open_run(folder).run_data(), read(folder)
        assert in_hand.kind == on_disk.kind == METHODS[method][0]
        assert (in_hand.assign == on_disk.assign).all()


def test_the_terminal_says_which(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = {"local": "own", "fedavg": "1 for all", "fedclust": "4 clusters (ARI 1.00)"}
    for method, words in told.items():
        run(method, tmp_path / method)
        row = capsys.readouterr().out.splitlines()[-1]
        assert words in row


def test_a_comparison_has_no_agreement_of_what_has_no_clusters(tmp_path: Path) -> None:
    methods: Any = {"local": Local(), "fedavg": FedAvg(), "ditto": Ditto(), "fedclust": FedClust()}
    population = ct.partition("digits", "rotation", clients=8)
    found = ct.compare(methods, population, "mclr", rounds=2, seeds=1, out=tmp_path / "c")
    rows = {row["method"]: row for row in found.table()}
    assert {m: row["models"] for m, row in rows.items()} == {
        "local": "personal",
        "fedavg": "shared",
        "ditto": "personal",
        "fedclust": "clustered",
    }
    assert [m for m, row in rows.items() if row["ari"] is not None] == ["fedclust"]
    shown = {
        line.split()[0]: line for line in str(found).split("models and cost")[1].splitlines()[3:7]
    }
    assert "own" in shown["local"]
    assert "n/a" in shown["local"]
    assert "1 for all" in shown["fedavg"]
    assert "4 clusters" in shown["fedclust"]


def test_a_newcomer_is_told_whose_model_it_was_given() -> None:
    population = ct.partition("digits", "rotation", clients=9)
    x, y = population[8].x, population[8].y
    for method, clusters in ((Local(), {}), (FedAvg(), {}), (FedClust(), {"newcomer-0": 0})):
        result = ct.fit(method, population, "mclr", rounds=1)
        placed = result.place((x, y), epochs=1)
        assert placed.kind == result.kind
        assert placed.clusters.keys() == clusters.keys()


def test_a_method_that_declares_nothing_is_told_by_what_it_does() -> None:
    class Silent(FedAvg):
        kind = "something else"

    class Alone(Local):
        kind = ""

    population = ct.partition("digits", "rotation", clients=4)
    assert ct.fit(Silent(), population, "mclr", rounds=1).kind == "shared"
    assert ct.fit(Alone(), population, "mclr", rounds=1).kind == "personal"
