"""NumPy archives (.npz), read member by member so that no object array is ever unpickled."""

from __future__ import annotations

import lzma
import struct
import zipfile
import zlib
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy

from coterie.data.readers.raw import Array, Raw, bounded, damaged, reading, unfit

# The names under which samples, labels and owners are found: of the only set, or of the training
# set; and of the test set.
_TRAIN = (
    ("x_train", "y_train"),
    ("train_images", "train_labels"),
    ("x", "y"),
    ("images", "labels"),
    ("data", "target"),
)
_TEST = (("x_test", "y_test"), ("test_images", "test_labels"))
_OWNER = ("owner_train", "writer_train", "owner", "writer")
_OWNER_TEST = ("owner_test", "writer_test")

# What a damaged archive or array header makes zipfile and numpy raise.
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    LookupError,
    MemoryError,  # of Python's own parser, for a header of brackets
    RecursionError,
    OverflowError,
    RuntimeError,  # encrypted, or of an unknown version
    SyntaxError,
    TypeError,
    ValueError,
)

_broken = partial(
    damaged, what="is not a whole .npz archive", fix="write or download the file again"
)


def read_npz(path: Path) -> Raw:
    """An archive with x_train and y_train (x_test, y_test), or x and y, images and labels, data
    and target; `owner_train` or `writer_train` name who each row belongs to."""
    with reading(path), _opened(path) as archive:
        members = {i.filename.removesuffix(".npy").lower(): i for i in archive.infolist()}
        bounded(sum(info.file_size for info in members.values()), str(path))
        pair = next((p for p in _TRAIN if set(p) <= members.keys()), None)
        if pair is None:
            why = f"it holds {', '.join(members) or 'nothing'}"
            fix = "name the arrays x_train, y_train, x_test, y_test; or x, y"
            raise unfit(path, "holds no samples with labels under a known name", "D009", fix, why)

        def array(name: str) -> Array:
            return _member(archive, members[name], f"{path}:{name}")

        def first(names: tuple[str, ...]) -> Array | None:
            return next((array(name) for name in names if name in members), None)

        classes = first(("classes",))
        names = None if classes is None else tuple(str(name) for name in classes.reshape(-1))
        raw = Raw(array(pair[0]), array(pair[1]), owner=first(_OWNER), classes=names)
        test = next((p for p in _TEST if set(p) <= members.keys()), None)
        if test is None:
            return raw
        return raw.tested(Raw(array(test[0]), array(test[1]), owner=first(_OWNER_TEST)))


def read_samples(path: Path) -> Array:
    """The samples of an archive alone, under any of the names that they may have."""
    with reading(path), _opened(path) as archive:
        members = {i.filename.removesuffix(".npy").lower(): i for i in archive.infolist()}
        bounded(sum(info.file_size for info in members.values()), str(path))
        name = next((x for x, _ in (*_TRAIN, *_TEST) if x in members), None)
        if name is None:
            why = f"it holds {', '.join(members) or 'nothing'}"
            raise unfit(path, "holds no samples", "D009", "name the array of the samples x", why)
        return _member(archive, members[name], f"{path}:{name}")


def _opened(path: Path) -> zipfile.ZipFile:
    """An archive, open for reading."""
    try:
        return zipfile.ZipFile(path)
    except _DAMAGE as error:
        raise _broken(path, error) from error


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, where: str) -> Array:
    """One array of an archive."""
    try:
        with archive.open(info) as file:
            _header(file, info, where)
        with archive.open(info) as file:
            array: Array = npy.read_array(file, allow_pickle=False)
            return array
    except _DAMAGE as error:
        raise _broken(where, error) from error


def _header(file: IO[bytes], info: zipfile.ZipInfo, where: str) -> None:
    """Refuse a member whose header promises objects, or not what the archive holds."""
    version = npy.read_magic(file)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read(file)
    if dtype.hasobject:
        why = "such arrays are pickles, and reading a pickle can run any code"
        fix = "save it as numbers or words: np.asarray(x.tolist())"
        raise unfit(where, "is an array of Python objects", "D005", fix, why)
    expected = file.tell() + int(np.prod(shape, dtype=object)) * dtype.itemsize
    if expected != info.file_size:
        what = f"should have {expected:,} bytes and has {info.file_size:,}"
        why = f"its header declares {dtype} of shape {shape}"
        raise unfit(where, what, "D008", "write or download the file again", why)
