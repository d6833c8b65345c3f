"""Which kind of source a path is, told from names alone: nothing is opened, nothing is imported."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal

Format = Literal[
    "npz", "csv", "idx", "cifar-binary", "cifar-python", "svhn", "leaf", "folder", "pickle"
]

# `train-images-idx3-ubyte.gz`, `train-images.idx3-ubyte`, `emnist-byclass-train-images-idx3-ubyte`
IDX_IMAGES = re.compile(
    r"(?:emnist-(?P<split>\w+)-)?(?P<part>train|t10k|test)-images[-.]idx3-ubyte(?:\.gz)?"
)
IMAGES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm"})

_FILES: dict[str, Format] = {
    ".npz": "npz",
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "leaf",
    ".mat": "svhn",
    ".pkl": "pickle",
    ".pickle": "pickle",
    ".pt": "pickle",
    ".pth": "pickle",
    ".joblib": "pickle",
}


def format_of(path: Path) -> Format | None:
    """The format of a file or folder, or None if it is none that can be read.

    >>> format_of(Path("table.csv")), format_of(Path("notes.txt"))
    ('csv', None)
    """
    if os.path.isdir(path):
        return _folder(path)
    if IDX_IMAGES.fullmatch(path.name):
        return "idx"
    return _FILES.get(path.suffix.lower())


def _folder(path: Path) -> Format | None:
    """The format of a folder, told from the names in it."""
    try:
        with os.scandir(path) as entries:
            folders = {e.name: e.is_dir() for e in entries if not e.name.startswith(".")}
    except OSError:
        return None
    files = {name for name, folder in folders.items() if not folder}
    if any(IDX_IMAGES.fullmatch(name) for name in files):
        return "idx"
    if "data_batch_1.bin" in files or "train.bin" in files:
        return "cifar-binary"
    if "data_batch_1" in files or {"train", "meta"} <= files:
        return "cifar-python"
    if "train_32x32.mat" in files:
        return "svhn"
    if any(name.endswith(".json") for name in files) or _json(path / "train"):
        return "leaf"
    return "folder" if len(files) < len(folders) else None


def _json(path: Path) -> bool:
    """Whether a folder holds JSON files."""
    return os.path.isdir(path) and next(path.glob("*.json"), None) is not None
