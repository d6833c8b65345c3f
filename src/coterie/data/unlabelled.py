"""Samples that nobody has labelled, to be predicted: tables, arrays, images."""

from __future__ import annotations

import csv
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from coterie.data.dataset import Data
from coterie.data.readers.csv import LABELS
from coterie.data.readers.folder import decoded
from coterie.data.readers.form import in_one_form
from coterie.data.readers.formats import IMAGES
from coterie.data.readers.npz import read_samples
from coterie.data.readers.raw import Array, fault, reading, unfit

OPTIONS = ("size", "gray", "separator", "shape", "channels", "peak")


def load_unlabelled(source: str, options: Mapping[str, Any]) -> Data:
    """Samples from a .csv or .tsv of numbers, the x of an .npz, an image, or a folder of them.

    Columns of a table that are called like a label are left out, and those that `options` name as
    the label's, the owner's or as something about owners. There are no classes then.
    """
    path = Path(source).expanduser()
    own = {key: options[key] for key in OPTIONS if options.get(key) is not None}
    channels = own.get("channels")
    with reading(path):
        path.stat()
        suffix = path.suffix.lower()
        if suffix in (".csv", ".tsv"):
            mark = own.get("separator") or ("\t" if suffix == ".tsv" else ",")
            x = numbers(path, mark, {*LABELS, *beside(options)})
        elif suffix == ".npz":
            x = read_samples(path)
        else:
            files = [path] if suffix in IMAGES else images(path)
            x, channels = decoded(files, own.get("size"), own.get("gray")), "last"
    shape = tuple(own["shape"]) if "shape" in own else None
    x, _, full = in_one_form(x, None, where=path.name, shape=shape, channels=channels)
    peak = float(own.get("peak", full))
    return Data(path.stem, torch.from_numpy(x), torch.empty(0, dtype=torch.long), (), peak=peak)


def images(folder: Path) -> list[Path]:
    """The images right in a folder, by name."""
    listed = sorted(folder.iterdir()) if folder.is_dir() else []
    found = [p for p in listed if p.suffix.lower() in IMAGES and p.is_file()]
    if not found:
        raise unfit(
            folder,
            "holds no samples without labels",
            "D010",
            "name a .csv, .tsv or .npz file, an image, or a folder with images right in it",
        )
    return found


def beside(options: Mapping[str, Any]) -> list[str]:
    """The columns that hold no feature, as a reader is told of them."""
    told = [options.get("label"), options.get("owner"), *str(options.get("about") or "").split(",")]
    return [name.strip().casefold() for name in told if isinstance(name, str) and name.strip()]


def numbers(path: Path, mark: str, others: Collection[str] = LABELS) -> Array:
    """(N, D) the numbers of a table, without its header and the columns of other names."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = [row for row in csv.reader(file, delimiter=mark) if row]
    head = [cell.strip().casefold() for cell in rows[0]] if rows else []
    named = any(not is_number(cell) for cell in head)
    kept = [i for i, cell in enumerate(head) if not (named and cell in others)]
    found = []
    for line, row in enumerate(rows[named:], 1 + named):
        try:
            found.append([float(row[i]) for i in kept])
        except (ValueError, IndexError) as cause:
            what = "the row is not made of numbers" if len(row) == len(head) else "a ragged row"
            raise fault(f"{path}:{line}", what, "D013", "write a number in every cell") from cause
    if not found:
        raise unfit(path, "has no samples", "D010", "write a row of numbers for each sample")
    return np.array(found)


def is_number(cell: str) -> bool:
    """Whether a cell holds a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True
