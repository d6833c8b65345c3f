"""Reading a run's folder: while it is written, after a stop, and with a part of it damaged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from coterie.core.errors import CheckpointError
from coterie.core.types import State
from coterie.runs.reading import RunReader, run_state
from coterie.runs.records import RunFolder
from tests.recorded import ROUND, START, begin, happen, measure

NAMES = ("a", "b", "c", "d")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three rounds, the second of which was done again after a stop."""
    path = begin(tmp_path / "run")
    happen(path, START)
    for t in range(3):
        measure(path, t, NAMES)
    happen(path, {**START, "event": "resume", "round": 1})
    happen(path, {**ROUND, "round": 2, "seconds": 4.0})
    return path


def test_a_round_that_was_done_twice_counts_once_as_it_was_done_last(folder: Path) -> None:
    assert RunReader(folder).seconds == 0.5 + 0.5 + 4.0


def test_the_time_of_clients_tests_and_server_adds_up(tmp_path: Path) -> None:
    path = begin(tmp_path / "run")
    happen(path, START)
    asked = {"Train": {"clients": 2, "down": 1, "up": 1, "seconds": 1.5}}
    happen(path, {**ROUND, "round": 1, "seconds": 4.0, "evaluate_seconds": 2.0, "asked": asked})
    assert RunReader(path).spent == {"clients": 1.5, "tests": 2.0, "server": 0.5}


def test_a_line_that_is_half_written_waits(folder: Path) -> None:
    whole = RunReader(folder)
    for name in ("events.jsonl", "metrics.csv", "clusters.csv"):
        with open(folder / name, "a") as file:
            file.write("3,a")
    half = RunReader(folder)
    assert half.events == whole.events
    assert half.history == whole.history
    assert np.array_equal(half.clusters.assign, whole.clusters.assign)


def test_a_round_without_all_its_clients_waits(folder: Path) -> None:
    with open(folder / "clusters.csv", "a") as file:
        file.write("3,a,0,\n3,b,1,\n")
    assert RunReader(folder).clusters.rounds.tolist() == [0, 1, 2]


def test_clusters_are_those_of_the_table(folder: Path) -> None:
    found = RunReader(folder).clusters
    assert found.names == NAMES
    assert found.assign.tolist() == [[0, 1, 0, 1]] * 3
    assert found.group is None
    assert found.until(1).rounds.tolist() == [0, 1]


def test_a_run_that_has_not_begun_is_empty(tmp_path: Path) -> None:
    found = RunReader(begin(tmp_path / "run"))
    assert (found.events, len(found.history), found.summary, found.notes) == ((), 0, {}, {})
    assert found.clusters.assign.shape == (0, 0)
    assert found.newest == (None, [])


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError) as error:
        RunReader(tmp_path).settings  # noqa: B018  reading is what refuses
    assert error.value.code == "K006"


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """Two rounds with a checkpoint each."""
    state = State.shared(torch.zeros(3), 2)
    with RunFolder(tmp_path / "run") as run:
        run.begin('method = "fedavg"\n')
        for t in (0, 1):
            run.record(State(state.models, state.assign, t), [], ("a", "b"), None)
            run.checkpoint(State(state.models, state.assign, t), {}, {"population": f"at {t}"})
    return tmp_path / "run"


def test_notes_are_those_of_the_newest_checkpoint_that_is_whole(saved: Path) -> None:
    assert RunReader(saved).notes["population"] == "at 1"
    (saved / "checkpoints/000001/manifest.json").write_text("{}")
    assert RunReader(saved).notes["population"] == "at 0"


def test_a_history_is_given_as_it_was_saved_and_refused_if_it_was_changed(saved: Path) -> None:
    found = RunReader(saved)
    with open(saved / "metrics.csv", "a") as file:
        file.write("2,,,before,accuracy_mean,0.5\n")
    assert len(found.history_at(found.notes)) == 0, "a line that came later is not part of it"
    (saved / "metrics.csv").write_text("round,client\n")
    with pytest.raises(CheckpointError) as error:
        found.history_at(found.notes)
    assert error.value.code == "K004"


def test_the_end_is_found_behind_many_events_and_a_line_that_was_cut(folder: Path) -> None:
    for _ in range(60):
        happen(folder, {"event": "warning", "text": "x" * 90})
    assert run_state(folder) == "stopped"
    happen(folder, {"event": "done", "seconds": 1.0})
    happen(folder, {"event": "warning", "text": "a tracker failed"})
    assert run_state(folder) == "done"
