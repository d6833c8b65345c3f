"""CIFAR-10 and CIFAR-100 as their authors publish them: binary batches and python batches."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from coterie.core.errors import DataError
from coterie.data.readers.class_names import CIFAR10, CIFAR100, CIFAR100_COARSE
from coterie.data.readers.raw import Array, Raw, content_of, damaged, unfit

_PIXELS = 3 * 32 * 32
_BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")

_damaged = partial(
    damaged, what="is not a CIFAR batch", fix="download and unpack the archive again"
)


def read_cifar_binary(path: Path, *, coarse: bool = False) -> Raw:
    """A folder of .bin batches: data_batch_1..5 and test_batch, or train and test (CIFAR-100).

    `coarse` takes CIFAR-100's 20 superclasses instead of its 100 classes.
    """
    fine = (path / "train.bin").exists()
    labels = 2 if fine else 1  # a record is its labels (coarse, fine), then its pixels
    column = 0 if coarse or not fine else 1
    return _read(path, ".bin", fine, coarse, lambda file: _records(file, labels, column))


def read_cifar_python(path: Path, *, coarse: bool = False) -> Raw:
    """A folder of pickled batches, read without running anything: data_batch_1..5 and test_batch,
    or train and test (CIFAR-100)."""
    fine = (path / "train").is_file()
    key = "labels" if not fine else "coarse_labels" if coarse else "fine_labels"
    return _read(path, "", fine, coarse, lambda file: _batch(file, key))


def _read(
    path: Path,
    suffix: str,
    fine: bool,
    coarse: bool,
    read: Callable[[Path], tuple[Array, Array]],
) -> Raw:
    """The batches of a folder put together; the last one is the test set."""
    if coarse and not fine:
        raise DataError(
            "CIFAR-10 has no coarse labels", code="D004", where=str(path), fix="leave coarse out"
        )
    names = ("train", "test") if fine else _BATCHES
    *train, (x_test, y_test) = (read(path / f"{name}{suffix}") for name in names)
    x, y = (np.concatenate(arrays) for arrays in zip(*train, strict=True))
    classes = CIFAR100_COARSE if coarse else CIFAR100 if fine else CIFAR10
    return Raw(x, y, x_test, y_test, classes=classes, channels="first")


def _records(path: Path, labels: int, column: int) -> tuple[Array, Array]:
    """The images and one column of the labels of a binary batch."""
    content = bytearray(content_of(path))
    length = labels + _PIXELS
    whole, rest = divmod(len(content), length)
    if rest:
        raise DataError(
            f"{path} is cut off: {len(content):,} bytes are {whole:,} records and {rest:,} bytes",
            code="D008",
            where=f"{path}, byte {whole * length:,}",
            why=f"a record has {length:,} bytes: {labels} of labels, {_PIXELS:,} of pixels",
            fix="download and unpack the archive again",
        )
    rows = np.frombuffer(content, np.uint8).reshape(whole, length)
    return rows[:, labels:].reshape(-1, 3, 32, 32), rows[:, column]


class _Piece:
    """A numpy piece of a pickle, kept as the plain values it was to be built from."""

    args: tuple[Any, ...] = ()
    state: Any = None

    def __new__(cls, *args: Any) -> _Piece:
        piece = super().__new__(cls)
        piece.args = args
        return piece

    def __setstate__(self, state: Any) -> None:
        self.state = state


_PIECES = {
    f"numpy.{core}.{name}": name.rsplit(".")[-1]
    for core in ("core", "_core")
    for name in ("multiarray._reconstruct", "numeric._frombuffer")
} | {"numpy.ndarray": "ndarray", "numpy.dtype": "dtype", "_codecs.encode": "encode"}


# The unpickler in Python, not the one in C: a hostile file can make the latter's memo eat all
# memory. A batch has some ten thousand short strings, so its speed does not matter.
class _Unpickler(pickle._Unpickler):
    """An unpickler that runs nothing: numpy's pieces stay plain values, the rest is refused."""

    def __init__(self, file: Any, path: Path) -> None:
        super().__init__(file, encoding="bytes")
        self.path = path

    def find_class(self, module: str, name: str) -> Any:
        """A fresh stand-in for a numpy piece, so that nothing a file does to it outlives it."""
        piece = _PIECES.get(f"{module}.{name}")
        if piece is None:
            why = "a CIFAR batch holds arrays, lists and words; anything else could run code"
            fix = "do not use this file; download the archive from its authors"
            raise unfit(self.path, f"wants to load {module}.{name}", "D005", fix, why)
        if piece == "encode":  # how Python 3 writes bytes in an old protocol
            return lambda text, codec: text.encode("latin1")
        return type(piece, (_Piece,), {})

    def get_extension(self, code: int) -> None:
        """Refused: a registered extension would bypass `find_class`."""
        raise pickle.UnpicklingError(f"extension code {code}")


def _batch(path: Path, key: str) -> tuple[Array, Array]:
    """The images and the labels of a pickled batch."""
    file = io.BytesIO(content_of(path))
    try:
        batch = _Unpickler(file, path).load()
    except DataError:
        raise
    except Exception as error:  # damaged bytes make the unpickler raise nearly anything
        raise _damaged(path, f"{type(error).__name__}: {error}") from error
    if not isinstance(batch, dict):
        raise _damaged(path, f"it holds a {type(batch).__name__}, not a dict")
    content = {k.decode("latin1") if isinstance(k, bytes) else k: v for k, v in batch.items()}
    missing = [name for name in ("data", key) if name not in content]
    if missing:
        why, fix = (
            f"it holds {', '.join(map(str, content))}",
            "download and unpack the archive again",
        )
        raise unfit(path, f"holds no '{missing[0]}'", "D009", fix, why)
    x, labels = _array(content["data"], path), content[key]
    if not (isinstance(labels, list) and all(type(label) is int for label in labels)):
        raise _damaged(path, f"'{key}' is not a list of whole numbers")
    if x.shape != (len(labels), _PIXELS):
        why = f"'data' has shape {x.shape}, expected ({len(labels)}, {_PIXELS})"
        raise _damaged(path, why)
    return x.reshape(-1, 3, 32, 32), np.array(labels, dtype=np.int64)


def _array(piece: object, path: Path) -> Array:
    """The array of bytes that numpy's pieces describe; of no other type, of no other size."""
    match piece:
        case _Piece(state=(_, tuple(shape), _Piece(args=(kind, *_)), fortran, raw)):
            pass  # protocols 0-4
        case _Piece(args=(raw, _Piece(args=(kind, *_)), tuple(shape), order)):
            fortran = order == "F"  # protocol 5
        case _:
            raise _damaged(path, "'data' is not an array")
    if kind not in ("u1", b"u1", "uint8", b"uint8") or not isinstance(raw, bytes | bytearray):
        raise _damaged(path, f"'data' is of type {kind!r}, expected u1")
    sizes = all(type(n) is int and n >= 0 for n in shape)
    if not sizes or int(np.prod(shape, dtype=object)) != len(raw):
        raise _damaged(path, f"'data' declares shape {shape} and holds {len(raw):,} bytes")
    return np.frombuffer(bytearray(raw), np.uint8).reshape(shape, order="F" if fortran else "C")
