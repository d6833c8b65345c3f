"""Names that want to be paths: of clients, of files in archives."""

from __future__ import annotations

import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import coterie as ct
from coterie.cli.main import call
from coterie.cli.models import files
from coterie.core.client import Client
from tests.tiny import clients, network

HOSTILE = (
    "../../out",
    "/etc/passwd",
    "a/../../b",
    "..",
    ".",
    "con\x00",
    "x\n../y",
    "~root",
    "%2e%2e",
)


@pytest.mark.row(27, counts="hostile files and names")
def test_a_clients_name_never_leaves_the_folder_of_an_export(tmp_path: Path) -> None:
    made = files(list(HOSTILE), tmp_path / "export", "safetensors")
    assert len(set(made.values())) == len(HOSTILE)
    for file in made.values():
        assert file.resolve().parent == (tmp_path / "export").resolve()


@pytest.mark.row(27, counts="hostile files and names")
def test_clients_with_hostile_names_train_and_write_nothing_elsewhere(tmp_path: Path) -> None:
    them = [
        Client(c.x, c.y, c.x_test, c.y_test, name=name)
        for c, name in zip(clients(3), ("../../out", "/etc/coterie", "a/b"), strict=True)
    ]
    people = ct.Population.of(them, classes=4)
    home = tmp_path / "deep" / "er"
    ct.fit(ct.Local(ct.Solver(lr=0.1, batch=8)), people, network(), rounds=1, out=home / "r")
    assert call(["export", str(home / "r"), "--all"]) == 0
    outside = [p for p in tmp_path.rglob("*") if p.is_file() and not p.is_relative_to(home / "r")]
    assert outside == []
    assert len(list((home / "r" / "export").iterdir())) == 3


@pytest.mark.row(27, counts="hostile files and names")
@pytest.mark.parametrize("name", ["../../canary.npy", "/tmp/canary.npy", "x/../../canary.npy"])
def test_an_archive_writes_nothing_wherever_its_names_point(name: str, tmp_path: Path) -> None:
    file = tmp_path / "a" / "b" / "x.npz"
    file.parent.mkdir(parents=True)
    np.savez(file, x=np.zeros((4, 3), np.float32), y=np.arange(4) % 2)
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr(name, b"\x93NUMPY")
    before = set(tmp_path.rglob("*"))
    with suppress(ct.DataError):  # read or refused, both are well
        ct.load(file)
    assert set(tmp_path.rglob("*")) == before
    assert not Path("/tmp/canary.npy").exists()


@pytest.mark.row(27, counts="hostile files and names")
@pytest.mark.parametrize("name", [n for n in HOSTILE if n != "con\x00"])
def test_no_key_is_made_for_a_name_that_is_a_path(name: str, tmp_path: Path) -> None:
    pytest.importorskip("flwr")
    assert call(["certs", str(tmp_path / "certs"), "--clients", f"good,{name}"]) == 2
    assert not (tmp_path / "certs").exists()
