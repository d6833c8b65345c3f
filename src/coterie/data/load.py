"""`load`: one door for every source of data."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from coterie.core import checks
from coterie.core.bounds import Positive
from coterie.core.errors import DataError
from coterie.data.choosing import at_most, some_classes
from coterie.data.dataset import Data
from coterie.data.named import NAMED, Named, canonical, require
from coterie.data.readers import arrays, cifar, csv, folder, hf, idx, leaf, npz, svhn
from coterie.data.readers.form import as_classes, as_owners, in_one_form
from coterie.data.readers.formats import Format, format_of
from coterie.data.readers.once import unless_kept
from coterie.data.readers.raw import Array, Raw, unfit

Reader = Callable[..., Raw]
_EMBEDDED: Mapping[str, Reader] = {"digits": arrays.read_digits, "synthetic": arrays.read_synthetic}
READERS: Mapping[Format, Reader] = {
    "npz": npz.read_npz,
    "csv": csv.read_csv,
    "idx": idx.read_idx,
    "cifar-binary": cifar.read_cifar_binary,
    "cifar-python": cifar.read_cifar_python,
    "svhn": svhn.read_svhn,
    "leaf": leaf.read_leaf,
    "folder": folder.read_folder,
}


def load(
    source: Any,
    *,
    test_source: Any = None,
    name: str | None = None,
    shape: tuple[int, ...] | None = None,
    channels: str | None = None,
    peak: Positive | None = None,
    only: Sequence[str | int] | None = None,
    limit: int | None = None,
    **options: Any,
) -> Data:
    """A labelled set from a name, a path, arrays or a torch dataset.

    `source` is a named set (see `coterie.data.named`), the path of a file or folder, `hf:org/name`,
    `(x, y)` or `(x, y, x_test, y_test)`, or a map-style torch dataset. A name wins over a file of
    that name: write `./mnist` for the file. `test_source` is a second source for the test set, of
    any kind. `shape` gives flat samples the shape of images, `channels` ("first" or "last") says
    where unclear arrays keep theirs, `peak` which stored value means "full"; `only` (classes, by
    name or number) and `limit` (training samples) take a part of it. The other options are those
    of the reader (see `coterie.data.readers`).

    >>> data = load("digits")
    >>> data.x.shape, data.x.dtype, data.peak, len(data.classes)
    (torch.Size([1797, 1, 8, 8]), torch.uint8, 16.0, 10)
    """
    if limit is not None:
        checks.whole(limit, "limit", 1)
    given = {"shape": shape, "channels": channels, "peak": peak, "name": name}
    common = _checked(load, {key: value for key, value in given.items() if value is not None})
    raw, called, entry = _read(source, options)
    if test_source is not None:
        raw = raw.tested(_read(test_source, options)[0])
    data = _in_final_form(raw, common.pop("name", called), entry, **common)
    if only:
        data = some_classes(data, only)
    if limit is not None:
        data = at_most(data, limit)
    part = {"only": list(only) if only else None, "limit": limit}
    again = {"source": source, "test_source": test_source, **given, **part, **options}
    return replace(data, source=_plain({k: v for k, v in again.items() if v is not None}))


def _plain(asked: Mapping[str, Any]) -> dict[str, Any] | None:
    """What was asked for as JSON can hold it, paths from the root; None if it cannot."""
    found = {}
    for key, value in asked.items():
        if isinstance(value, os.PathLike) or (
            key in ("source", "test_source") and isinstance(value, str) and os.path.exists(value)
        ):
            named = isinstance(value, str) and (canonical(value) or value.startswith("hf:"))
            value = value if named else os.path.abspath(os.path.expanduser(value))
        parts = value if isinstance(value, list | tuple) else [value]
        if not all(isinstance(part, str | int | float | bool) for part in parts):
            return None
        found[key] = list(parts) if isinstance(value, list | tuple) else value
    return found


def _read(source: Any, options: Mapping[str, Any]) -> tuple[Raw, str, Named | None]:
    """What the right reader makes of a source, what it is called, and its entry if it has one."""
    if isinstance(source, str) and source.startswith("hf:"):
        hub = source.removeprefix("hf:")
        return hf.read_hf(hub, **_checked(hf.read_hf, options)), hub, None
    if isinstance(source, str) and (known := canonical(source)):
        entry = NAMED[known]
        if known in _EMBEDDED:
            return _EMBEDDED[known](**_checked(_EMBEDDED[known], options)), known, entry
        path = require(known)
        stem = path.stem if path.suffix == ".npz" else known
        # A part of a set (cifar100_first20.npz) keeps its own name, so that no table hides it.
        return _file(path, options), known if canonical(stem) == known else stem, entry
    if isinstance(source, str | os.PathLike):
        path = Path(os.path.expanduser(source))
        if not os.path.exists(path):
            raise DataError(
                f"'{source}' is no named set and no file or folder",
                code="D002",
                where=str(source),
                why=f"named sets are {', '.join(NAMED)}; relative paths start at {Path.cwd()}",
                fix="check the spelling, or list the named sets: `coterie datasets`",
            )
        return _file(path, options), path.resolve().stem, None
    if isinstance(source, tuple | list):
        return arrays.read_arrays(source, **_checked(arrays.read_arrays, options)), "arrays", None
    if hasattr(source, "__getitem__") or isinstance(source, torch.utils.data.Dataset):
        raw = arrays.read_dataset(source, **_checked(arrays.read_dataset, options))
        return raw, type(source).__name__, None
    raise DataError(
        f"{type(source).__name__} is no source of data",
        code="D003",
        why="expected a name, a path, (x, y) or a torch dataset",
        fix='for instance load("digits"), load("./photos"), load((x, y))',
    )


def _file(path: Path, options: Mapping[str, Any]) -> Raw:
    """What the reader of a file or folder makes of it."""
    kind = format_of(path)
    if kind == "pickle":
        why = "it is a file of Python objects, and reading one can run any code"
        fix = "save the arrays instead: np.savez('data.npz', x=x, y=y)"
        raise unfit(path, "is not read", "D005", fix, why)
    if kind is None:
        raise unfit(
            path,
            "is of no kind that can be read",
            "D003",
            why="known are .npz, .csv, .tsv, IDX files, CIFAR batches, SVHN's .mat, LEAF's .json, "
            "and a folder with one subfolder of images per class",
            fix="unpack archives first, and give the folder that holds the files",
        )
    reader = READERS[kind]
    return unless_kept(path, options, lambda: reader(path, **_checked(reader, options)))


def _checked(reader: Callable[..., object], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options as the reader's own signature types them; an unknown or unfit one is an error."""
    hints = get_type_hints(reader, include_extras=True)
    parameters = inspect.signature(reader).parameters.values()
    known = [p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
    checked = {}
    for key, value in options.items():
        if key not in known:
            raise DataError(
                f"the option '{key}' does not exist for this kind of data",
                code="D004",
                where=f"{key} = {value!r}"[:200],
                fix=f"its options are {', '.join(known)}" if known else "it has no options",
            )
        try:
            checked[key] = TypeAdapter(hints[key]).validate_python(value)
        except ValidationError as error:
            raise DataError(
                f"{key} = {value!r} cannot be meant"[:200],
                code="D004",
                where=key,
                why="; ".join(problem["msg"] for problem in error.errors()),
                fix="correct the option, or leave it out for its default",
            ) from error
    return checked


def _in_final_form(
    raw: Raw,
    name: str,
    entry: Named | None,
    *,
    shape: tuple[int, ...] | None = None,
    channels: str | None = None,
    peak: float | None = None,
) -> Data:
    """The set in its final form: one shape, one kind of numbers, labels 0..K-1."""
    _expect_equal_counts(raw, name)
    wanted = entry.shape if entry and entry.shape else None
    if shape is None and wanted and raw.x.ndim == 2:
        shape = wanted  # LEAF and some archives store images flat
    x, x_test, full = in_one_form(
        raw.x, raw.x_test, where=name, shape=shape, channels=channels or raw.channels
    )
    known = raw.classes or (entry.labels if entry and entry.labels else None)
    y, y_test, classes = as_classes(
        raw.y, raw.y_test, known, f"{name}, row {{}}".format, f"{name}, test row {{}}".format
    )
    said = f"{name}, owner of row {{}}".format
    owner, owner_test, owners = as_owners(raw.owner, raw.owner_test, said)
    if wanted and x.shape[1:] != wanted:
        raise DataError(
            f"the samples of {name} have shape {x.shape[1:]}, expected {wanted}",
            code="D022",
            where=name,
            why="a file with the name of a public set holds that set",
            fix="load the file by its path if it is another set on purpose",
        )
    others = _tensor(x_test), _tensor(y_test), _tensor(owner), _tensor(owner_test)
    peak = peak or raw.peak or full
    xs, ys = torch.from_numpy(x), torch.from_numpy(y)
    return Data(name, xs, ys, classes, *others, peak, owners, about=raw.about)


def _tensor(array: Array | None) -> Tensor | None:
    """An array as a tensor, where there is one."""
    return None if array is None else torch.from_numpy(np.ascontiguousarray(array))


def _expect_equal_counts(raw: Raw, name: str) -> None:
    """Refuse an empty set, and samples, labels or owners that differ in number."""
    for part, x, y, owner in (
        ("", raw.x, raw.y, raw.owner),
        ("test ", raw.x_test, raw.y_test, raw.owner_test),
    ):
        if x is None or y is None:
            continue
        if not x.ndim or not len(x) or not x.size:
            fix = "give at least one sample with its label"
            raise unfit(name, f"has no {part}samples", "D010", fix)
        counts = {"labels": y, "owners": owner}
        for what, other in counts.items():
            if other is not None and (len(other) if other.ndim else 0) != len(x):
                there = (
                    f"has {len(x):,} {part}samples and {len(other) if other.ndim else 1:,} {what}"
                )
                raise unfit(name, there, "D011", f"give one of the {what} for each sample")
