"""`coterie audit`: a run or a file, three files beside it, and what it refuses."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from coterie.cli.main import call

SMALL = ["partition.clients=3", "model.name=mclr", "train.rounds=1"]


@pytest.mark.slow
@pytest.mark.row(34)
def test_a_run_is_audited_in_its_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    assert call(["run", "--method", "dapfl", *SMALL, "--out", str(run), "--quiet"]) == 0
    capsys.readouterr()
    assert call(["audit", str(run), "--clients", "2", "--json"]) == 0
    (found,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert found["method"] == "dapfl"
    assert {sent["kind"] for sent in found["sent"]} == {"class counts", "weights"}
    told = {label["source"]: label["overlap"] for label in found["labels"]}
    assert told["class counts (Histogram)"] == 1.0
    assert "original" not in found["rebuilt"][0]  # no sample leaves but on the page
    page = (run / "audit.html").read_text()
    assert "data:image/png" in page
    assert f"coterie audit {run} --clients 2" in page, "the same audit again, not another"
    with (run / "audit.csv").open() as file:
        attacks = {row["attack"] for row in csv.DictReader(file)}
    assert attacks >= {"analytic", "matching", "labels", "membership"}


def test_a_run_keeps_its_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.toml").write_text("seed = 0")
    assert call(["audit", str(tmp_path), "train.rounds=3"]) == 2
    assert "a run has its settings" in capsys.readouterr().err


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    assert call(["audit", str(tmp_path)]) == 5
