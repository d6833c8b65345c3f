"""Fewer rounds than are done: whoever asks for them is told, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import coterie as ct
from coterie.cli.main import call

SMALL = ["--model", "mclr", "--clients", "4", "--method", "fedavg"]


def written(folder: Path) -> dict[str, bytes]:
    """Every file of a folder; the lock says who came last and is no record."""
    files = [f for f in folder.rglob("*") if f.is_file() and f.name != ".lock"]
    return {str(f.relative_to(folder)): f.read_bytes() for f in files}


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def command(*words: str) -> Callable[[], None]:
    def run() -> None:
        assert call(words) == 5, "the exit code of what cannot be continued"
        raise ct.CheckpointError("as the command line says it", code="K020")

    return run


ROADS = {
    "coterie resume": command("resume", "r", "--rounds", "1"),
    "a setting": command("resume", "r", "train.rounds=1", "output.trackers=['tensorboard']"),
    "coterie serve": command("serve", "--insecure", "--resume", "r", "train.rounds=1"),
    "resume of Python": lambda: ct.resume("r", settings=[("train.rounds", 1)]),
}


@pytest.mark.parametrize("road", ROADS)
def test_a_run_is_not_taken_back(road: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["run", *SMALL, "--rounds", "3", "--out", "r", "--quiet"]) == 0
    before = written(Path("r"))
    capsys.readouterr()
    with pytest.raises(ct.CheckpointError) as error:
        ROADS[road]()
    assert error.value.code == "K020"
    told = capsys.readouterr().err or str(error.value)
    assert "r has 3 rounds behind it, more than the 1 asked for" in told
    assert written(Path("r")) == before


def test_as_many_rounds_as_are_done_are_none_to_refuse(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["run", *SMALL, "--rounds", "2", "--out", "r", "--quiet"]) == 0
    assert call(["resume", "r", "--rounds", "2", "--quiet"]) == 0


def test_a_run_of_python_is_not_taken_back() -> None:
    clients = ct.partition("digits", "iid", clients=4)
    ct.fit(ct.FedAvg(), clients, "mclr", rounds=3, out="r", page=False)
    before = written(Path("r"))
    with pytest.raises(ct.CheckpointError) as error:
        ct.fit(ct.FedAvg(), clients, "mclr", rounds=1, out="r", resume=True, page=False)
    assert error.value.code == "K020"
    assert written(Path("r")) == before


def test_a_comparison_is_not_taken_back(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "--methods", "fedavg,local", "--seeds", "1", "model.name=mclr", "--quiet"]
    assert call([*words, "train.rounds=2", "--out", "c"]) == 0
    before = written(Path("c"))
    assert call([*words, "train.rounds=1", "--out", "c"]) == 5
    assert "train.rounds: was 2, is 1" in capsys.readouterr().err
    assert written(Path("c")) == before


def test_a_comparison_of_python_is_not_taken_back() -> None:
    clients, methods = ct.partition("digits", "iid", clients=4), [ct.FedAvg(), ct.Local()]
    ct.compare(methods, clients, "mclr", rounds=2, seeds=1, out="c")
    before = written(Path("c"))
    with pytest.raises(ct.CheckpointError, match="holds another comparison"):
        ct.compare(methods, clients, "mclr", rounds=1, seeds=1, out="c")
    assert written(Path("c")) == before
