"""Folders written by an earlier coterie still resume, open and report.

`written_before` holds two runs of two rounds and a comparison, as coterie wrote them before its
modules moved into packages, and the metrics that the same code wrote after two rounds more.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

import coterie as ct
from coterie.cli import main
from coterie.runs.history import from_csv

BEFORE = Path(__file__).parent / "written_before"
SINCE = ("clients", "absent", "samples")  # what is measured that was not then
METHODS = pytest.mark.parametrize("method", ["fedclust", "ditto"])  # ditto: clients remember


def copied(name: str, to: Path) -> Path:
    return Path(shutil.copytree(BEFORE / name, to / name))


def call(*words: str) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["coterie", *words])
        with pytest.raises(SystemExit) as end:
            main()
    return int(end.value.code or 0)


@METHODS
def test_a_run_goes_on_as_it_would_have(method: str, tmp_path: Path) -> None:
    folder = copied(method, tmp_path)
    ct.resume(folder, settings=[("train.rounds", 4)])
    meant = from_csv((BEFORE / f"{method}-after-4-rounds.csv").read_text()).rows
    rows = from_csv((folder / "metrics.csv").read_text()).rows
    found = [row for row in rows if row.metric not in SINCE]
    if method == "ditto":  # then everybody was said to be in cluster 0
        meant = [row._replace(cluster="own" if row.cluster else "") for row in meant]
        found = [row._replace(cluster=row.cluster.replace("0", "own")) for row in found]
        told = {(row.round, row.client, row.stage, row.metric) for row in found}
        meant = [row for row in meant if (row.round, row.client, row.stage, row.metric) in told]
    assert [(*row,)[:5] for row in found] == [(*row,)[:5] for row in meant]
    # Sums of another processor may round differently; of the one it was written on they do not.
    values, expected = (torch.tensor([row.value for row in rows]) for rows in (found, meant))
    torch.testing.assert_close(values, expected, rtol=1e-4, atol=1e-5)


@METHODS
def test_a_run_opens_and_its_models_are_those_that_were_measured(method: str) -> None:
    result = ct.open_run(BEFORE / method)
    assert result.state.round == 2
    client = result.population[3]
    with torch.no_grad():
        right = result.model(3).eval()(client.x_test).argmax(1) == client.y_test
    assert float(right.double().mean()) == pytest.approx(result.accuracy[3], abs=1e-6)


@METHODS
def test_a_run_is_reported(method: str, tmp_path: Path) -> None:
    folder = copied(method, tmp_path)
    assert call("report", str(folder)) == 0
    assert method in (folder / "report.html").read_text()


def test_a_comparison_is_read_and_reported(tmp_path: Path) -> None:
    folder = copied("compared", tmp_path)
    assert call("report", str(folder)) == 0
    assert "fedclust" in (folder / "report.html").read_text()
    assert (folder / "table.csv").read_bytes() == (BEFORE / "compared/table.csv").read_bytes()


def test_a_comparison_that_is_done_does_nothing_again(tmp_path: Path) -> None:
    folder = copied("compared", tmp_path)
    settings = ["partition.kind=rotation", "partition.clients=6", "model.name=mclr"]
    settings += ["train.rounds=2", "engine.name=serial"]
    assert (
        call(
            *("compare", "--methods", "fedavg,fedclust", "--seeds", "1", *settings),
            *("--out", str(folder)),
        )
        == 0
    )
    for file in BEFORE.glob("compared/*/metrics.csv"):
        assert (folder / file.relative_to(BEFORE / "compared")).read_bytes() == file.read_bytes()
