"""SVHN's cropped digits as their authors publish them: MATLAB 5 files.

Only the few elements such a file is made of are understood, every length checked before use:
general readers of the format crash on damaged files.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from coterie.data.readers.class_names import DIGITS
from coterie.data.readers.raw import Array, Raw, bounded, content_of, damaged, unfit

_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8"}
_NUMBERS |= {12: "i8", 13: "u8"}
_MATRIX, _COMPRESSED = 14, 15
_COMPLEX = 0x0800


class _DamageError(Exception):
    """What is wrong with a file, before it is known which file."""


def read_svhn(path: Path) -> Raw:
    """A folder with train_32x32.mat and test_32x32.mat, or one such file. Its label 10 is a 0."""
    if path.is_file():
        return Raw(*_digits(path), classes=DIGITS, channels="last")
    train, test = path / "train_32x32.mat", path / "test_32x32.mat"
    return Raw(*_digits(train), *_digits(test), classes=DIGITS, channels="last")


def _digits(path: Path) -> tuple[Array, Array]:
    """The images and labels of one file."""
    content = content_of(path)
    try:
        found = dict(_variables(content, str(path)))
    except (_DamageError, zlib.error) as error:
        fix = "download the file again from http://ufldl.stanford.edu/housenumbers"
        raise damaged(path, error, what="is not a whole MATLAB 5 file", fix=fix) from error
    x, y = found.get("X"), found.get("y")
    if x is None or y is None or x.ndim != 4 or x.dtype != np.uint8 or y.size != x.shape[3]:
        shapes = ", ".join(f"{name} {array.dtype}{array.shape}" for name, array in found.items())
        why = f"expected X uint8(32, 32, 3, N) and y (N, 1), found {shapes or 'nothing'}"
        fix = "use train_32x32.mat and test_32x32.mat (format 2: cropped digits)"
        raise unfit(path, "does not hold cropped digits", "D009", fix, why)
    y = y.reshape(-1)
    return np.moveaxis(x, 3, 0), np.where(y == 10, 0, y)


def _variables(content: bytes, where: str) -> Iterator[tuple[str, Array]]:
    """The arrays of numbers in a file, by name; everything else in it is passed over."""
    order = {b"IM": "<", b"MI": ">"}.get(content[126:128])
    version = content[124:126] if order == ">" else content[125:123:-1]
    if order is None or version != b"\x01\x00":
        raise _DamageError(
            "its header is not that of MATLAB 5 (MATLAB 7.3 files are of another kind)"
        )
    view = memoryview(content)[128:]
    while len(view):
        kind, body, view = _element(view, order)
        if kind == _COMPRESSED:
            kind, body, _ = _element(_unpacked(body, order, where), order)
        if kind == _MATRIX and (variable := _matrix(body, order)):
            yield variable


def _element(view: memoryview, order: str) -> tuple[int, memoryview, memoryview]:
    """The type and the bytes of the first element, and what follows it."""
    if len(view) < 8:
        raise _DamageError("an element is cut off")
    kind, size = (int(n) for n in np.frombuffer(view[:8], f"{order}u4"))
    if kind >> 16:  # up to four bytes are kept inside the tag itself
        kind, size, start, end = kind & 0xFFFF, kind >> 16, 4, 8
    else:
        start, end = 8, 8 + size
        if kind != _COMPRESSED:
            end += -size % 8  # elements begin at multiples of 8
    if size > end - start or start + size > len(view):
        raise _DamageError(f"an element should have {size:,} bytes, {len(view) - start:,} are left")
    return kind, view[start : start + size], view[end:]


def _unpacked(body: memoryview, order: str, where: str) -> memoryview:
    """One unpacked element; no more is unpacked than its tag declares."""
    stream = zlib.decompressobj()
    tag = stream.decompress(body, 8)
    size = int(np.frombuffer(tag, f"{order}u4")[1]) if len(tag) == 8 else 0
    bounded(size, where)
    rest = stream.decompress(stream.unconsumed_tail, size) if size else b""
    return memoryview(tag + rest)


def _matrix(view: memoryview, order: str) -> tuple[str, Array] | None:
    """The name and the numbers of a real array; None for cells, structures and other objects."""
    parts = []
    for _ in range(4):  # flags, sizes, name, numbers
        if not len(view):
            return None
        kind, body, view = _element(view, order)
        parts.append((kind, body))
    (_, flags), (_, sizes), (_, name), (kind, numbers) = parts
    if kind not in _NUMBERS or len(flags) != 8 or len(sizes) % 4:
        return None
    if int(np.frombuffer(flags, f"{order}u4")[0]) & _COMPLEX:
        return None
    shape = tuple(int(n) for n in np.frombuffer(sizes, f"{order}i4"))
    dtype = np.dtype(order + _NUMBERS[kind])
    expected = int(np.prod(shape, dtype=object)) * dtype.itemsize
    if min(shape, default=0) < 0 or expected != len(numbers):
        raise _DamageError(
            f"an array of shape {shape} has {len(numbers):,} bytes, not {expected:,}"
        )
    array = np.frombuffer(numbers, dtype).reshape(shape, order="F")
    return bytes(name).decode("latin1"), array.astype(dtype.newbyteorder("="))
