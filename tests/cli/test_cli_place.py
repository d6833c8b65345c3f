"""`coterie place`, and a run read back from its folder."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from shutil import rmtree

import numpy as np
import pytest
import torch

import coterie
from coterie import config as configs
from coterie.cli.main import call
from coterie.data.dataset import Scaler
from coterie.data.load import load
from coterie.studies.run import experiment
from coterie.studies.run.training import fit
from tests import tiny

SMALL = [
    "--method",
    "fedavg",
    "--model",
    "mclr",
    "--clients",
    "4",
    "--partition",
    "iid",
    "--rounds",
    "2",
    "--quiet",
]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def archive(name: str = "new.npz", **arrays: np.ndarray) -> str:
    digits = load("digits")
    given = {"x": digits.x[:60].numpy(), "y": digits.y[:60].numpy()} | arrays
    np.savez(name, **given)
    return name


def run(*more: str) -> None:
    assert call(["run", *SMALL, "--out", "r", *more]) == 0


def files() -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in Path("r").rglob("*") if p.is_file()}


def test_a_table_of_newcomers_and_the_folder_is_only_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run()
    before = files()
    capsys.readouterr()
    assert call(["place", "r", "--data", archive(), "--name", "ward"]) == 0
    said = capsys.readouterr()
    head, _, row = said.out.splitlines()
    assert head.split()[:5] == ["newcomer", "samples", "model", "before", "after"]
    assert row.split()[:3] == ["ward", "48", "shared"]
    assert [line.split()[0] for line in said.err.splitlines()] == ["note", "next"]
    assert files() == before


def test_owners_are_newcomers_and_json_has_the_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    run("--method", "fedclust", "fedclust.warmup_epochs=1")
    capsys.readouterr()
    data = archive(owner=np.arange(60) % 2)
    assert (
        call(["place", "r", "--data", data, "--epochs", "1", "--test-share", "0.5", "--json"]) == 0
    )
    said = capsys.readouterr()
    rows = [json.loads(line) for line in said.out.splitlines()]
    assert [row["newcomer"] for row in rows] == ["newcomer-0", "newcomer-1"]
    assert {row["samples"] for row in rows} == {15}
    assert all(0 <= row["accuracy_before"] <= 1 for row in rows)
    assert {(row["bytes_down"], row["bytes_up"]) for row in rows} == {(650 * 4, 650 * 4)}
    assert said.err == ""


def test_the_command_and_python_agree(capsys: pytest.CaptureFixture[str]) -> None:
    """What the run itself held comes back as a newcomer and meets the model as its owner did."""
    run()
    capsys.readouterr()
    result = coterie.open_run("r")
    part = result.population.partition
    digits = load("digits")
    mine, test = part.train[1], part.test[1]
    rows = {"x_train": digits.x[mine], "y_train": digits.y[mine]}
    rows |= {"x_test": digits.x[test], "y_test": digits.y[test]}
    np.savez("same.npz", **{k: v.numpy() for k, v in rows.items()})
    assert call(["place", "r", "--data", "same.npz", "--json"]) == 0
    (row,) = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert row["accuracy_before"] == result.accuracy["1"]
    client = result.population[1]
    placed = result.place((client.x, client.y, client.x_test, client.y_test))
    assert row["accuracy_before"] == placed.before["newcomer-0"]


def test_newcomers_are_scaled_by_the_run_s_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    """Brighter images than the run ever saw stay brighter: their own mean would hide it."""
    run()
    capsys.readouterr()
    digits = load("digits")
    bright, y = digits.x[:60] + 60, digits.y[:60]
    archive(x_test=bright.numpy(), y_test=y.numpy(), x_train=bright.numpy(), y_train=y.numpy())
    assert call(["place", "r", "--data", "new.npz", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    x = Scaler.of(digits)(bright)
    placed = coterie.open_run("r").place((x, y, x, y))
    assert row["accuracy_before"] == placed.before["newcomer-0"]
    own = Scaler.of(replace(digits, x=bright))(bright)
    assert row["accuracy_before"] < coterie.open_run("r").place((x, y, own, y)).before["newcomer-0"]


@pytest.mark.parametrize("method", ["fedavg", "fedrep", "dapfl"])
def test_an_opened_run_is_the_run(method: str) -> None:
    config = configs.load(None, [("method", method), ("train.rounds", 2), *TINY])
    first = experiment.execute(config, "r")
    again = coterie.open_run("r")
    assert tiny.same(first.state, again.state)
    assert first.history == again.history
    assert first.summary == again.summary
    assert first.accuracy == again.accuracy
    kept, back = first.fed.memories(), again.fed.memories()
    assert kept.keys() == back.keys()
    assert all(torch.equal(kept[i][k], back[i][k]) for i in kept for k in kept[i])
    newcomer = (first.population[0].x, first.population[0].y)
    a, b = first.place(newcomer, 1), again.place(newcomer, 1)
    assert torch.equal(a.rows["newcomer-0"], b.rows["newcomer-0"])


TINY = [("model.name", "mclr"), ("partition.clients", 3), ("seed", 3)]


@pytest.mark.parametrize(
    ("break_it", "code"),
    [
        (lambda: rmtree("r/checkpoints"), "K001"),
        (lambda: Path("r/run.toml").unlink(), "K006"),
        (lambda: Path("r/metrics.csv").write_text("round\n"), "K004"),
        (lambda: archive(x=np.zeros((60, 9, 9), np.uint8)), "D018"),
        (lambda: archive(y=np.array(["cow"] * 60)), "D012"),
    ],
)
def test_what_cannot_be_placed(
    break_it: object, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run()
    archive()
    break_it()  # type: ignore[operator]
    capsys.readouterr()
    assert call(["place", "r", "--data", "new.npz"]) == {"K": 5, "D": 3}[code[0]]
    said = capsys.readouterr().err
    assert f"error[{code}]" in said
    if code == "D018":
        assert "(1, 9, 9)" in said
        assert "(1, 8, 8)" in said


def test_the_run_s_own_data_are_not_needed(capsys: pytest.CaptureFixture[str]) -> None:
    run("--data", archive("own.npz"), "--method", "fedclust")
    said = []
    for _ in range(2):
        capsys.readouterr()
        assert call(["place", "r", "--data", archive(), "--json"]) == 0
        said.append(capsys.readouterr().out)
        Path("own.npz").unlink(missing_ok=True)
    assert said[0] == said[1]


def test_a_run_of_python_takes_newcomers(capsys: pytest.CaptureFixture[str]) -> None:
    clients = coterie.Population.of(tiny.clients(2), tiny.CLASSES)
    fit(coterie.FedAvg(), clients, tiny.network(), rounds=1, out="r")
    x, y = clients[0].x.numpy(), clients[0].y.numpy()
    assert call(["place", "r", "--data", archive(x=x, y=y), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["newcomer"] == "newcomer"
