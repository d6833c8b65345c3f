"""IDX files, whole and damaged."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.data.load import load
from coterie.data.readers import raw
from tests.data.test_load import fails


def idx(array: np.ndarray) -> bytes:
    return (
        bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + bytes(array)
    )


def write_idx(
    folder: Path, *, gz: bool = False, size: int = 5, prefix: str = "", first: int = 0
) -> dict[str, np.ndarray]:
    """A training set of 6 images and a test set of 3, as the four usual files."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    arrays = {}
    for part, n in (("train", 6), ("t10k" if not prefix else "test", 3)):
        x = rng.integers(0, 256, (n, size, size), dtype=np.uint8)
        y = (np.arange(n) % 3 + first).astype(np.uint8)
        for kind, array in (("images-idx3", x), ("labels-idx1", y)):
            content = idx(np.ascontiguousarray(array))
            name = f"{prefix}{part}-{kind}-ubyte" + (".gz" if gz else "")
            (folder / name).write_bytes(gzip.compress(content) if gz else content)
            arrays[f"{part}-{kind}"] = array
    return arrays


IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


@pytest.mark.parametrize("gz", [False, True])
def test_a_folder_is_read_whole(tmp_path, gz):
    arrays = write_idx(tmp_path, gz=gz)
    data = load(tmp_path)
    assert data.x_test is not None
    assert torch.equal(data.x[:, 0], torch.from_numpy(arrays["train-images-idx3"]))
    assert torch.equal(data.x_test[:, 0], torch.from_numpy(arrays["t10k-images-idx3"]))
    assert data.y.tolist() == arrays["train-labels-idx1"].tolist()


def test_one_file_of_images_brings_its_labels(tmp_path):
    write_idx(tmp_path)
    data = load(tmp_path / "t10k-images-idx3-ubyte")
    assert (len(data.x), data.x_test) == (3, None)


def test_emnist_is_put_upright(tmp_path):
    arrays = write_idx(tmp_path, prefix="emnist-byclass-")
    upright = arrays["train-images-idx3"].swapaxes(1, 2)
    data = load(tmp_path)
    assert torch.equal(data.x[:, 0], torch.from_numpy(upright.copy()))
    assert data.classes == ("0", "1", "2")


def test_emnists_letters_begin_at_a(tmp_path):
    write_idx(tmp_path, prefix="emnist-letters-", first=1)
    data = load(tmp_path)
    assert (data.classes, int(data.y.min())) == (("a", "b", "c"), 0)


def test_a_split_can_be_chosen_and_byclass_is_the_default(tmp_path):
    write_idx(tmp_path, prefix="emnist-letters-", first=1)
    write_idx(tmp_path, prefix="emnist-byclass-")
    assert load(tmp_path).classes == ("0", "1", "2")
    assert load(tmp_path, split="letters").classes == ("a", "b", "c")
    assert "byclass, letters" in str(fails("D009", tmp_path, split="digits"))


@settings(max_examples=30, deadline=None)
@given(st.data())
@pytest.mark.row(23, counts="damaged data")
def test_a_file_cut_anywhere_is_refused(tmp_path_factory, draw):
    folder = tmp_path_factory.mktemp("idx")
    write_idx(folder)
    name = draw.draw(st.sampled_from([IMAGES, LABELS]))
    content = (folder / name).read_bytes()
    cut = draw.draw(st.integers(0, len(content) - 1))
    (folder / name).write_bytes(content[:cut])
    error = fails("D007" if cut < 4 else "D008", folder)
    assert name in error.where


@pytest.mark.row(23, counts="damaged data")
def test_a_short_file_says_what_was_expected_and_found(tmp_path):
    write_idx(tmp_path)
    content = (tmp_path / IMAGES).read_bytes()
    (tmp_path / IMAGES).write_bytes(content[:100])
    error = fails("D008", tmp_path)
    assert "should have 166 bytes and has 100" in error.what
    assert "byte 100" in error.where


@pytest.mark.row(23, counts="damaged data")
def test_surplus_bytes_are_noticed(tmp_path):
    write_idx(tmp_path)
    (tmp_path / IMAGES).write_bytes((tmp_path / IMAGES).read_bytes() + b"x")
    fails("D008", tmp_path)


@pytest.mark.row(23, counts="damaged data")
def test_a_bad_magic_number_is_shown(tmp_path):
    write_idx(tmp_path)
    (tmp_path / IMAGES).write_bytes(b"\x00\x00\x0d\x03" + b"\x00" * 50)
    assert "expected 00 00 08 03, found 00 00 0d 03" in str(fails("D007", tmp_path))


@pytest.mark.row(23, counts="damaged data")
def test_a_damaged_gzip_is_refused(tmp_path):
    write_idx(tmp_path, gz=True)
    path = tmp_path / f"{IMAGES}.gz"
    path.write_bytes(path.read_bytes()[:-20])
    fails("D007", tmp_path)


@pytest.mark.row(23, counts="damaged data")
def test_a_header_beyond_the_limit_is_refused_before_reading(tmp_path, monkeypatch):
    write_idx(tmp_path)
    monkeypatch.setattr(raw, "LIMIT", 100)
    fails("D006", tmp_path)


@pytest.mark.row(23, counts="damaged data")
def test_a_gzip_bomb_is_not_unfolded(tmp_path):
    write_idx(tmp_path, gz=True)
    head = bytes((0, 0, 8, 3)) + struct.pack(">3I", 2, 5, 5)
    bomb = gzip.compress(head + bytes(50) + bytes(10**7))
    (tmp_path / f"{IMAGES}.gz").write_bytes(bomb)
    assert "at least 67" in str(fails("D008", tmp_path))  # one byte beyond what the header says


@pytest.mark.row(23, counts="damaged data")
def test_images_without_their_labels_are_refused(tmp_path):
    write_idx(tmp_path)
    (tmp_path / LABELS).unlink()
    fails("D009", tmp_path)


def test_images_and_labels_of_different_sets_are_refused(tmp_path):
    write_idx(tmp_path)
    (tmp_path / LABELS).write_bytes(idx(np.zeros(5, np.uint8)))
    fails("D011", tmp_path)


def test_a_folder_with_test_files_only_is_refused(tmp_path):
    write_idx(tmp_path)
    (tmp_path / IMAGES).unlink()
    fails("D009", tmp_path)
