"""A checkpoint that is damaged is passed over aloud; a folder is looked at by who holds it."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

import coterie as ct
from coterie.cli.main import call, show_warning
from coterie.runs import records
from coterie.runs.records import RunFolder
from tests.tiny import clients, network

SOLVER = ct.Solver(lr=0.1, batch=8)


def train(out: Path, rounds: int = 3, **how: Any) -> ct.Result:
    people = ct.Population.of(clients(3), classes=4)
    return ct.fit(ct.FedAvg(SOLVER), people, network(), rounds=rounds, out=out, page=False, **how)


def damage(run: Path) -> Path:
    """Change a byte of the newest checkpoint."""
    newest = sorted((run / "checkpoints").iterdir())[-1] / "state.safetensors"
    data = bytearray(newest.read_bytes())
    data[-1] ^= 1
    newest.write_bytes(data)
    return newest


@pytest.mark.row(12)
def test_an_older_checkpoint_is_used_aloud_when_a_run_goes_on(tmp_path: Path) -> None:
    train(tmp_path / "r")
    damage(tmp_path / "r")
    told: list[dict[str, Any]] = []
    train(tmp_path / "r", 4, resume=True, on_event=told.append)
    (text,) = [e["text"] for e in told if e["event"] == "warning" and "damaged" in e["text"]]
    assert text.endswith("round 2 is used instead")
    kept = [json.loads(line) for line in (tmp_path / "r/events.jsonl").read_text().splitlines()]
    assert text in [e.get("text") for e in kept]


@pytest.mark.row(12)
def test_an_older_checkpoint_is_used_aloud_when_a_run_is_opened(tmp_path: Path) -> None:
    train(tmp_path / "r")
    file = damage(tmp_path / "r")
    with pytest.warns(ct.CoterieWarning, match=rf"{file.parent.name}.*round 2 is used instead"):
        found = ct.open_run(tmp_path / "r", model=network())
    assert found.state.round == 2


@pytest.mark.row(12)
def test_commands_say_it_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    train(tmp_path / "r")
    damage(tmp_path / "r")
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        monkeypatch.setattr(warnings, "showwarning", show_warning)
        assert call(["report", str(tmp_path / "r")]) == 0
    assert "round 2 is used instead" in capsys.readouterr().err
    assert "round 2 is used instead" in (tmp_path / "r/report.html").read_text()


@pytest.mark.row(13, counts="second processes")
def test_a_run_that_came_between_is_not_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process trains to its end while this one is on its way to the lock."""
    out, lock = tmp_path / "r", records.fcntl.flock

    def late(*given: Any) -> None:
        monkeypatch.setattr(records.fcntl, "flock", lock)
        train(out, rounds=1)
        lock(*given)

    monkeypatch.setattr(records.fcntl, "flock", late)
    with pytest.raises(ct.CheckpointError) as error:
        train(out, rounds=2)
    assert error.value.code == "K005"
    assert json.loads((out / "summary.json").read_text())["rounds"] == 1


@pytest.mark.row(13, counts="second processes")
def test_a_folder_that_is_held_is_not_even_looked_at(tmp_path: Path) -> None:
    train(tmp_path / "r")
    with RunFolder(tmp_path / "r"), pytest.raises(ct.CheckpointError) as error:
        train(tmp_path / "r")
    assert error.value.code == "K007"
