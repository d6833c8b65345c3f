"""NumPy archives, whole and hostile."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.core.errors import DataError
from coterie.data.load import load
from coterie.data.readers import raw
from tests.data.test_load import fails

X = np.random.default_rng(0).integers(0, 256, (4, 6, 6, 3), dtype=np.uint8)
Y = np.array([0, 1, 0, 1])


@pytest.mark.parametrize(
    "keys",
    [
        ("x_train", "y_train"),
        ("x", "y"),
        ("X", "Y"),
        ("images", "labels"),
        ("data", "target"),
        ("train_images", "train_labels"),
    ],
)
def test_the_usual_names_are_found(tmp_path, keys):
    np.savez(tmp_path / "a.npz", **dict(zip(keys, (X, Y), strict=True)))
    data = load(tmp_path / "a.npz")
    assert torch.equal(data.x, torch.from_numpy(np.moveaxis(X, -1, 1).copy()))
    assert (data.name, data.y.tolist()) == ("a", [0, 1, 0, 1])


def test_test_set_owners_and_class_names_come_along(tmp_path):
    np.savez_compressed(
        tmp_path / "a.npz",
        x_train=X,
        y_train=Y,
        x_test=X[:2],
        y_test=Y[:2],
        owner_train=np.array(list("bbaa")),
        owner_test=np.array(list("ca")),
        classes=np.array(["cat", "dog"]),
    )
    data = load(tmp_path / "a.npz")
    assert data.owner is not None
    assert data.owner_test is not None
    assert (data.owner.tolist(), data.owner_test.tolist()) == ([1, 1, 0, 0], [2, 0])
    assert data.classes == ("cat", "dog")


@pytest.mark.row(23, counts="damaged data")
def test_an_archive_without_labels_lists_what_it_holds(tmp_path):
    np.savez(tmp_path / "a.npz", pictures=X)
    assert "pictures" in fails("D009", tmp_path / "a.npz").why


@pytest.mark.row(23, 27, counts="damaged data")
def test_an_array_of_objects_is_refused_and_not_unpickled(tmp_path):
    canary = tmp_path / "canary"

    class Evil:
        def __reduce__(self):
            return (open, (str(canary), "w"))

    np.savez(tmp_path / "a.npz", x=np.array([Evil(), Evil()], dtype=object), y=np.array([0, 1]))
    fails("D005", tmp_path / "a.npz")
    assert not canary.exists()


def member(header: dict[str, object], body: bytes) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue() + body


@pytest.mark.row(23, counts="damaged data")
def test_a_header_that_promises_more_than_there_is_is_refused(tmp_path):
    header = {"descr": "|u1", "fortran_order": False, "shape": (10**12, 4)}
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", member(header, bytes(8)))
        archive.writestr("y.npy", member(header, bytes(8)))
    assert "4,000,000,000,128 bytes" in str(fails("D008", tmp_path / "a.npz"))


@pytest.mark.row(23, counts="damaged data")
def test_a_zip_bomb_is_refused_by_its_declared_size(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros((1000, 1000)), y=np.zeros(1000))
    assert (tmp_path / "a.npz").stat().st_size < 10**5
    monkeypatch.setattr(raw, "LIMIT", 10**6)
    fails("D006", tmp_path / "a.npz")


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**16), st.integers(1, 255))
@pytest.mark.row(23, counts="damaged data")
def test_a_changed_byte_is_a_data_error_or_changes_no_number(tmp_path_factory, place, flip):
    path = tmp_path_factory.mktemp("npz") / "a.npz"
    np.savez_compressed(path, x=X, y=Y)
    whole = load(path).fingerprint
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= flip
    path.write_bytes(content)
    try:
        changed = load(path).fingerprint
    except DataError:
        return
    assert changed == whole


def test_text_that_is_no_archive_is_refused(tmp_path):
    (tmp_path / "a.npz").write_text("hello")
    fails("D007", tmp_path / "a.npz")


def test_an_archive_of_an_unknown_version_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", x=X, y=Y)
    content = bytearray((tmp_path / "a.npz").read_bytes())
    content[content.rfind(b"PK\x01\x02") + 6] = 132
    (tmp_path / "a.npz").write_bytes(content)
    fails("D007", tmp_path / "a.npz")
