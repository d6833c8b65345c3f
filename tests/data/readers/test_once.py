"""A file that the runs of a study share is read once, and never when it is another one by now."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

import coterie as ct
from coterie.cli.main import call
from coterie.data import load as loading
from coterie.data.readers import npz
from coterie.data.readers.once import read_once
from coterie.data.readers.raw import Raw


def write(path: Path, value: int) -> Path:
    np.savez(path, x=np.full((12, 1, 8, 8), value, np.uint8), y=np.arange(12) % 3)
    return path


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were really read."""
    found: list[Path] = []

    def read(path: Path) -> Raw:
        found.append(path)
        return npz.read_npz(path)

    monkeypatch.setitem(loading.READERS, "npz", read)  # type: ignore[arg-type]
    return found


def values(sets: Sequence[ct.Data]) -> list[int]:
    return [int(data.x.max()) for data in sets]


def test_in_a_study_a_file_is_read_once_and_outside_each_time(
    reads: list[Path], tmp_path: Path
) -> None:
    file = write(tmp_path / "a.npz", 7)
    with read_once():
        first = ct.load(file)
        with read_once():  # a study inside
            second = ct.load(file, limit=6)
        assert values([first, second, ct.load(file)]) == [7, 7, 7]
        assert len(reads) == 1
    ct.load(file), ct.load(file)
    assert len(reads) == 3


def test_a_changed_file_and_another_one_are_read(reads: list[Path], tmp_path: Path) -> None:
    one, two = write(tmp_path / "a.npz", 7), write(tmp_path / "b.npz", 8)
    with read_once():
        found = [ct.load(one)]
        then = os.stat(one).st_mtime_ns
        write(one, 9)
        os.utime(one, ns=(then + 1000, then + 1000))  # as soon as it can be
        found += [ct.load(one), ct.load(two), ct.load(one)]
    assert values(found) == [7, 9, 8, 9]
    assert reads == [one, one, two, one]  # one set is kept at a time


def test_what_a_run_does_with_its_data_changes_nothing_for_the_next(tmp_path: Path) -> None:
    file = write(tmp_path / "a.npz", 7)
    with read_once():
        before = ct.load(file).x.clone()
        for kind in ("rotation", "noise", "permutation", "iid+quantity"):
            ct.partition(ct.load(file), kind, 4, test_share=0.3, scaling="standard")
        assert torch.equal(ct.load(file).x, before)


def test_a_comparison_reads_its_file_once(reads: list[Path], tmp_path: Path) -> None:
    file = write(tmp_path / "a.npz", 7)
    given = [f"data.source={file}", "partition.kind=iid", "partition.clients=3", "model.name=mlp"]
    command = ["compare", "--methods", "fedavg,local", "--seeds", "2", "--quiet", "train.rounds=1"]
    assert call([*command, "--out", str(tmp_path / "out"), *given]) == 0
    assert reads == [file]
