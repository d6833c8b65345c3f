"""Which reader reads which format. None of them can run code from a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from coterie.core.errors import DataError
from coterie.data.readers.cifar import read_cifar_binary, read_cifar_python
from coterie.data.readers.csv import read_csv
from coterie.data.readers.folder import read_folder
from coterie.data.readers.formats import Format, format_of
from coterie.data.readers.idx import read_idx
from coterie.data.readers.leaf import read_leaf
from coterie.data.readers.npz import read_npz
from coterie.data.readers.raw import Raw
from coterie.data.readers.svhn import read_svhn

Reader = Callable[..., Raw]

READERS: Mapping[Format, Reader] = {
    "npz": read_npz,
    "csv": read_csv,
    "idx": read_idx,
    "cifar-binary": read_cifar_binary,
    "cifar-python": read_cifar_python,
    "svhn": read_svhn,
    "leaf": read_leaf,
    "folder": read_folder,
}


def reader_of(path: Path) -> Reader:
    """The reader of an existing file or folder."""
    kind = format_of(path)
    if kind == "pickle":
        raise DataError(
            f"{path} is not read",
            code="D005",
            where=str(path),
            why="it is a file of Python objects, and reading one can run any code",
            fix="save the arrays instead: np.savez('data.npz', x=x, y=y)",
        )
    if kind is None:
        raise DataError(
            f"{path} is of no kind that can be read",
            code="D003",
            where=str(path),
            why="known are .npz, .csv, .tsv, IDX files, CIFAR batches, SVHN's .mat, LEAF's .json, "
            "and a folder with one subfolder of images per class",
            fix="unpack archives first, and give the folder that holds the files",
        )
    return READERS[kind]
