"""A crash at any storage operation leaves the end of some round, which resumes exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coterie.core import storage
from coterie.data.population import Population
from coterie.methods.local import Local
from coterie.runs import checkpoint
from coterie.studies.training import fit
from coterie.tasks.solver import Solver
from tests.tiny import clients, network

OPERATIONS = ("make_folder", "write_file", "append_file", "truncate_file", "publish")


class PowerCut(BaseException):
    """Nothing in the library catches this."""


class Disk:
    """The storage functions, until the n-th operation; that one is not done, or only by half."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, last: float, half: bool) -> None:
        self.count, self.last, self.half = 0, last, half
        for name in OPERATIONS:
            monkeypatch.setattr(storage, name, self.counted(name, getattr(storage, name)))

    def counted(self, name: str, done: Any) -> Any:
        def operation(*args: Any, **options: Any) -> Any:
            self.count += 1
            if self.count == self.last:
                if self.half and name in ("write_file", "append_file"):
                    path, data = args
                    done(path, data[: len(data) // 2], **options)
                raise PowerCut
            return done(*args, **options)

        return operation


def go(folder: Path, rounds: int = 3) -> None:
    people = Population.of(clients(3), classes=4)
    fit(Local(Solver(lr=0.1, batch=8)), people, network(), rounds=rounds, out=folder, resume=True)


def written(folder: Path) -> dict[str, bytes]:
    last = checkpoint.rounds(folder / "checkpoints")[0]
    files = [folder / "metrics.csv", folder / "clusters.csv", *sorted(last.glob("*.safetensors"))]
    return {str(f.relative_to(folder)): f.read_bytes() for f in files}


@pytest.mark.slow
@pytest.mark.parametrize("half", [False, True], ids=["not done", "half done"])
def test_a_crash_at_every_storage_operation_resumes_to_the_same_bytes(
    tmp_path: Path, half: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        whole = Disk(patch, float("inf"), half)
        go(tmp_path / "whole")
    expected = written(tmp_path / "whole")
    assert whole.count > 40
    for n in range(1, whole.count + 1):
        folder = tmp_path / str(n)
        with pytest.MonkeyPatch.context() as patch:
            Disk(patch, n, half)
            with pytest.raises(PowerCut):
                go(folder)
        go(folder)
        assert written(folder) == expected, f"operation {n}"
        assert not list(folder.rglob("*.tmp")), f"operation {n} left something behind"
