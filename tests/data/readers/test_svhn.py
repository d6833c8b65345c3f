"""SVHN's MATLAB files."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.io import loadmat, savemat

from coterie.core.errors import DataError
from coterie.data.load import load
from coterie.data.readers import raw
from tests.data.test_load import fails

X = np.random.default_rng(0).integers(0, 256, (32, 32, 3, 4), dtype=np.uint8)
Y = np.array([[10], [1], [2], [10]], np.uint8)


def write(folder, **arrays):
    for part in ("train", "test"):
        savemat(folder / f"{part}_32x32.mat", arrays, do_compression=True)


def test_digits_are_read_and_ten_is_zero(tmp_path):
    write(tmp_path, X=X, y=Y)
    data = load(tmp_path)
    assert data.y.tolist() == [0, 1, 2, 0]
    assert torch.equal(data.x[2, 1], torch.from_numpy(X[:, :, 1, 2].copy()))
    assert data.x_test is not None


def test_one_file_is_enough(tmp_path):
    write(tmp_path, X=X, y=Y)
    assert load(tmp_path / "test_32x32.mat").x_test is None


@pytest.mark.parametrize("arrays", [{"X": X}, {"X": X[0], "y": Y}, {"X": X, "y": Y[:2]}, {"z": Y}])
def test_other_content_is_refused(tmp_path, arrays):
    write(tmp_path, **arrays)
    fails("D009", tmp_path)


@pytest.mark.parametrize("x", [X + 0.5, X + 1j, X.astype(object)], ids=["f", "complex", "cells"])
def test_pixels_of_another_type_are_refused(tmp_path, x):
    write(tmp_path, X=x, y=Y)
    fails("D009", tmp_path)


@pytest.mark.parametrize("compressed", [False, True])
def test_every_variable_is_read_as_scipy_reads_it(tmp_path, compressed):
    arrays = {"X": X, "y": Y.astype(float), "note": "words", "none": np.zeros((0, 3))}
    savemat(tmp_path / "a.mat", arrays, do_compression=compressed)
    ours, scipys = load(tmp_path / "a.mat"), loadmat(tmp_path / "a.mat")
    assert torch.equal(ours.x, torch.from_numpy(scipys["X"].transpose(3, 2, 0, 1).copy()))
    assert ours.y.tolist() == (scipys["y"][:, 0] % 10).tolist()


@settings(max_examples=100, deadline=None)
@given(st.booleans(), st.data())
@pytest.mark.row(23, counts="damaged data")
def test_a_damaged_file_is_read_or_is_a_data_error(tmp_path_factory, compressed, draw):
    path = tmp_path_factory.mktemp("mat") / "a.mat"
    savemat(path, {"X": X[:2, :2], "y": Y}, do_compression=compressed)
    content = bytearray(path.read_bytes())
    for place in draw.draw(st.lists(st.integers(116, len(content) - 1), min_size=1, max_size=3)):
        content[place] = draw.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        data = load(path)
    except DataError:
        return
    assert len(data.x) == len(data.y)


@pytest.mark.parametrize("cut", [0, 50, 130, 1000, -5])
def test_a_cut_file_is_refused(tmp_path, cut):
    write(tmp_path, X=X, y=Y)
    path = tmp_path / "train_32x32.mat"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(DataError) as caught:
        load(tmp_path)
    assert caught.value.where == str(path)


def test_a_matlab_73_file_is_refused(tmp_path):
    write(tmp_path, X=X, y=Y)
    (tmp_path / "train_32x32.mat").write_bytes(
        b"MATLAB 7.3".ljust(124) + b"\x00\x02IM" + bytes(512)
    )
    assert "7.3" in fails("D007", tmp_path).why


@pytest.mark.row(23, counts="damaged data")
def test_a_bomb_is_refused_by_its_declared_size(tmp_path, monkeypatch):
    write(tmp_path, X=np.zeros_like(X), y=Y)
    assert (tmp_path / "train_32x32.mat").stat().st_size < 1000 < X.size
    monkeypatch.setattr(raw, "LIMIT", 1000)
    fails("D006", tmp_path)


def test_a_missing_test_file_is_named(tmp_path):
    write(tmp_path, X=X, y=Y)
    (tmp_path / "test_32x32.mat").unlink()
    assert "test_32x32.mat" in str(fails("D009", tmp_path))
