"""Rows on disk are rows: whatever is done with them comes out the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from coterie.core import rows
from coterie.core.loop import run
from coterie.methods.dapfl import DAPFL
from coterie.methods.fedamp import FedAMP
from coterie.tasks.solver import Solver
from tests.tiny import federation, same

SOLVER = Solver(lr=0.1, batch=8)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Everything is large, and the temporary folder is one that can be looked at."""
    monkeypatch.setattr(rows, "LARGE", 1)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def mapped(t: torch.Tensor) -> bool:
    """Whether a tensor's memory is that of a file of rows."""
    here = t.data_ptr()
    for line in Path("/proc/self/maps").read_text().splitlines():
        low, high = (int(end, 16) for end in line.split()[0].split("-"))
        if low <= here < high:
            return "coterie-rows" in line
    return False


def test_small_rows_stay_in_memory() -> None:
    assert not mapped(rows.repeated(torch.ones(4), 3))


def test_large_rows_lie_on_disk_and_leave_nothing_behind(disk: Path) -> None:
    a = rows.repeated(torch.arange(4.0), 3)
    assert mapped(a)
    assert torch.equal(a, torch.arange(4.0).repeat(3, 1))
    assert not list(disk.iterdir())


def test_exchanging_rows_on_disk_leaves_those_given_alone(disk: Path) -> None:
    a = rows.repeated(torch.zeros(2), 3)
    b = rows.put(a, torch.tensor([1]), torch.ones(1, 2))
    assert mapped(b)
    assert not a.any()
    assert b.tolist() == [[0, 0], [1, 1], [0, 0]]
    assert mapped(rows.stacked(a, b))
    assert rows.stacked(a, b).tolist() == [*a.tolist(), *b.tolist()]


@pytest.mark.parametrize("method", [DAPFL(SOLVER, 0.6), FedAMP(SOLVER, 0.6)])
def test_a_run_on_disk_gives_the_same_bits(method: DAPFL | FedAMP, disk: Path) -> None:
    *_, end = run(method, federation(), 3)
    assert mapped(end.models)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "LARGE", 2**30)
        *_, expected = run(method, federation(), 3)
    assert not mapped(expected.models)
    assert same(end, expected)
