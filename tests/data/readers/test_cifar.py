"""CIFAR's binary and python batches, whole, damaged and hostile."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.core.errors import DataError
from coterie.data.load import load
from coterie.data.readers.cifar import read_cifar_python
from tests.data.test_load import fails

PIXELS = 3072
BATCHES = [f"data_batch_{i}" for i in range(1, 6)]
RNG = np.random.default_rng(0)
X = RNG.integers(0, 256, (12, PIXELS), dtype=np.uint8)  # two rows for each of six batches


def write_binary(folder: Path) -> None:
    for i, name in enumerate([*BATCHES, "test_batch"]):
        labels = np.array([[i], [i + 1]], np.uint8)
        (folder / f"{name}.bin").write_bytes(bytes(np.hstack([labels, X[2 * i : 2 * i + 2]])))


def write_python(folder: Path, protocol: int = 2) -> None:
    for i, name in enumerate([*BATCHES, "test_batch"]):
        batch = {
            b"batch_label": f"batch {i}".encode(),
            b"labels": [i, i + 1],
            b"data": X[2 * i : 2 * i + 2],
            b"filenames": [b"a.png", b"b.png"],
        }
        (folder / name).write_bytes(pickle.dumps(batch, protocol=protocol))


def as_read(data):
    """All that a test wrote, as it was read: images in rows of bytes, by their shape."""
    shapes = data.x.shape[1:], data.x_test.shape[1:]
    images = data.x.flatten(1).tolist(), data.x_test.flatten(1).tolist()
    return shapes, images, data.y.tolist(), data.classes[:2]


WRITTEN = (
    ((3, 32, 32), (3, 32, 32)),
    (X[:10].tolist(), X[10:].tolist()),
    [0, 1, 1, 2, 2, 3, 3, 4, 4, 5],
    ("airplane", "automobile"),
)


def test_binary_batches_are_read_in_order(tmp_path):
    write_binary(tmp_path)
    assert as_read(load(tmp_path)) == WRITTEN


@pytest.mark.parametrize("protocol", range(6))
def test_python_batches_of_any_protocol_are_read(tmp_path, protocol):
    write_python(tmp_path, protocol)
    assert as_read(load(tmp_path)) == WRITTEN


def test_a_batch_written_by_python_2_is_read(tmp_path):
    # Protocol 2 with short byte strings where Python 3 would write text: the published form.
    def text(word: bytes) -> bytes:
        return b"U" + bytes([len(word)]) + word

    content = X[:2].tobytes()
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85"
        + text(b"b")
        + b"\x87R(K\x01K\x02M\x00\x0c\x86cnumpy\ndtype\n"
        + text(b"u1")
        + b"K\x00K\x01\x87R(K\x03"
        + text(b"|")
        + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T"
        + len(content).to_bytes(4, "little")
        + content
        + b"tb"
    )
    batch = b"\x80\x02}(" + text(b"data") + array + text(b"labels") + b"](K\x03K\x04eu."
    for name in [*BATCHES, "test_batch"]:
        (tmp_path / name).write_bytes(batch)
    data = load(tmp_path)
    assert data.y.tolist() == [3, 4] * 5
    assert torch.equal(data.x[:2].reshape(2, -1), torch.from_numpy(X[:2]))


def test_arrays_in_fortran_order_keep_their_rows(tmp_path):
    write_python(tmp_path)
    batch = {"data": np.asfortranarray(X[:2]), "labels": [0, 1]}
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps(batch, protocol=4))
    assert as_read(load(tmp_path)) == WRITTEN


@pytest.mark.parametrize("kind", ["binary", "python"])
@pytest.mark.parametrize(("coarse", "labels"), [(False, [50, 99]), (True, [4, 19])])
def test_cifar100_has_fine_and_coarse_labels(tmp_path, kind, coarse, labels):
    for name in ("train", "test"):
        if kind == "binary":
            head = np.array([[4, 50], [19, 99]], np.uint8)
            (tmp_path / f"{name}.bin").write_bytes(bytes(np.hstack([head, X[:2]])))
        else:
            batch = {"data": X[:2], "fine_labels": [50, 99], "coarse_labels": [4, 19]}
            (tmp_path / name).write_bytes(pickle.dumps(batch))
            (tmp_path / "meta").write_bytes(b"")
    data = load(tmp_path, coarse=coarse)
    assert data.y.tolist() == labels
    assert data.classes[labels[1]] == ("vehicles_2" if coarse else "worm")


def test_cifar10_has_no_coarse_labels(tmp_path):
    write_binary(tmp_path)
    assert "no coarse labels" in str(fails("D004", tmp_path, coarse=True))


@pytest.mark.row(23, counts="damaged data")
def test_a_cut_binary_batch_says_where_it_ends(tmp_path):
    write_binary(tmp_path)
    path = tmp_path / "data_batch_3.bin"
    path.write_bytes(path.read_bytes()[:-10])
    error = fails("D008", tmp_path)
    assert "data_batch_3.bin, byte 3,073" in error.where


def test_a_missing_batch_is_named(tmp_path):
    write_binary(tmp_path)
    (tmp_path / "data_batch_4.bin").unlink()
    assert "data_batch_4.bin" in str(fails("D009", tmp_path))


def test_a_label_beyond_the_classes_is_refused(tmp_path):
    write_binary(tmp_path)
    (tmp_path / "data_batch_1.bin").write_bytes(bytes([10]) + bytes(PIXELS))
    assert "row 0: the label 10 is none of the 10" in str(fails("D012", tmp_path))


# --- hostile pickles ---------------------------------------------------------------------------


class Call:
    """Pickles as a call of any function."""

    def __init__(self, function, *args):
        self.function, self.args = function, args

    def __reduce__(self):
        return self.function, self.args


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("function", [os.system, eval, open, __import__])
@pytest.mark.row(27, counts="hostile files and names")
def test_a_malicious_batch_runs_nothing(tmp_path, protocol, function):
    write_python(tmp_path)
    canary = tmp_path / "canary"
    args = {
        os.system: (f"touch {canary}",),
        eval: (f"open({str(canary)!r}, 'w')",),
        open: (str(canary), "w"),
        __import__: ("antigravity",),
    }[function]
    content = pickle.dumps({"data": Call(function, *args), "labels": [0]}, protocol=protocol)
    (tmp_path / "data_batch_2").write_bytes(content)
    assert "data_batch_2" in str(fails("D005", tmp_path))
    assert not canary.exists()


@pytest.mark.row(27, counts="hostile files and names")
def test_numpys_own_dangerous_names_are_refused_too(tmp_path):
    write_python(tmp_path)
    (tmp_path / "data_batch_1").write_bytes(b"cnumpy\nload\n(S'x'\ntR.")
    assert "numpy.load" in str(fails("D005", tmp_path))


@pytest.mark.row(27, counts="hostile files and names")
def test_a_dotted_name_does_not_reach_through_a_piece(tmp_path):
    write_python(tmp_path)
    content = b"\x80\x04\x8c\x05numpy\x8c\x15ndarray.__class__.mro\x93."
    (tmp_path / "data_batch_1").write_bytes(content)
    assert "numpy.ndarray.__class__.mro" in str(fails("D005", tmp_path))


@pytest.mark.row(27, counts="hostile files and names")
def test_an_extension_code_is_refused(tmp_path):
    write_python(tmp_path)
    (tmp_path / "data_batch_1").write_bytes(b"\x80\x02\x82\x01.")
    assert "extension code 1" in str(fails("D007", tmp_path))


@pytest.mark.row(27, counts="hostile files and names")
def test_a_huge_memo_index_costs_nothing(tmp_path):
    write_python(tmp_path)
    (tmp_path / "data_batch_1").write_bytes(b"\x80\x02]r\xff\xff\xff\x7f.")
    fails("D007", tmp_path)


@pytest.mark.parametrize(
    "batch",
    [
        [1, 2],
        {"labels": [0]},
        {"data": X[:2]},
        {"data": [1, 2], "labels": [0, 1]},
        {"data": X[:2].astype(np.float64), "labels": [0, 1]},
        {"data": X[:2], "labels": [0]},
        {"data": X[:2], "labels": ["a", "b"]},
        {"data": X[:2, :100], "labels": [0, 1]},
        {"data": np.array([{}, {}], dtype=object), "labels": [0, 1]},
    ],
    ids=["list", "no data", "no labels", "nested", "floats", "short", "words", "narrow", "objects"],
)
def test_a_batch_of_another_form_is_refused(tmp_path, batch):
    write_python(tmp_path)
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps(batch))
    with pytest.raises(DataError, match="data_batch_1"):
        load(tmp_path)


@settings(max_examples=80, deadline=None)
@given(st.data())
@pytest.mark.row(23, counts="damaged data")
def test_a_damaged_python_batch_is_read_or_is_a_data_error(tmp_path_factory, draw):
    folder = tmp_path_factory.mktemp("cifar")
    write_python(folder, draw.draw(st.integers(0, 5)))
    content = bytearray((folder / "data_batch_1").read_bytes())
    head = [*range(250), *range(len(content) - 120, len(content))]  # around the pixels
    for place in draw.draw(st.lists(st.sampled_from(head), min_size=1, max_size=3)):
        content[place] = draw.draw(st.integers(0, 255))
    (folder / "data_batch_1").write_bytes(content)
    try:
        raw = read_cifar_python(folder)
    except DataError:
        return
    assert raw.x.shape[1:] == (3, 32, 32)
