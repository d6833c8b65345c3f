"""Sets of the Hugging Face hub (`hf:org/name`) or saved by its library (`hf:./folder`)."""

from __future__ import annotations

import inspect
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from coterie.core.errors import DataError
from coterie.data.readers.folder import Size, decoded
from coterie.data.readers.raw import Array, Raw, fault, inside, reading, unfit

LABELS = ("label", "labels", "fine_label", "target", "class", "y")
TESTS = ("test", "validation", "valid", "val")  # the first of them that there is


def read_hf(
    name: str,
    *,
    config: str | None = None,
    revision: str | None = None,
    image: str | None = None,
    label: str | None = None,
    owner: str | None = None,
    size: Size | None = None,
    gray: bool | None = None,
) -> Raw:
    """A set of the hub: its image column, or else its columns of numbers; and its label column.

    `image`, `label` and `owner` name columns that are not found by themselves. The test set is the
    split `test`, or where there is none `validation`. Scripts of a set are never run.
    """
    splits = _splits(name, config, revision)
    train = splits.get("train")
    if train is None:
        fix = "choose a configuration that has one: config=..."
        raise _lacks(name, "split 'train'", f"its splits are {', '.join(splits)}", fix)
    target = _label(train, name, label)
    columns = _columns(train, name, image, {target, owner})
    options = {"size": size, "gray": gray}
    raw = _part(train, name, columns, target, owner, options)
    test = next((splits[split] for split in TESTS if split in splits), None)
    return raw if test is None else raw.tested(_part(test, name, columns, target, owner, options))


def _splits(name: str, config: str | None, revision: str | None) -> Mapping[str, Any]:
    """The splits of a set by name; one that has none is its own training split."""
    try:
        import datasets
    except ImportError as error:
        raise DataError(
            "the package 'datasets' is not installed",
            code="D020",
            where=f"hf:{name}",
            why="sets of the Hugging Face hub are read with it",
            fix="pip install 'coterie[hf]'",
        ) from error
    try:
        if Path(name).is_dir():
            found = datasets.load_from_disk(name)
        else:
            # Versions that can run a set's own script are told not to.
            able = "trust_remote_code" in inspect.signature(datasets.load_dataset).parameters
            never = {"trust_remote_code": False} if able else {}
            found = datasets.load_dataset(name, config, revision=revision, **never)
    except (OSError, ValueError, RuntimeError) as error:
        fix = "check the name, the configuration (config=...) and the network"
        raise unfit(f"hf:{name}", "cannot be opened", "D021", fix, str(error)[:500]) from error
    return found if isinstance(found, Mapping) else {"train": found}


def _lacks(name: str, what: str, why: str, fix: str) -> DataError:
    """The error about something that a set does not have."""
    return unfit(f"hf:{name}", f"has no {what}", "D009", fix, why)


def _has(part: Any) -> str:
    """What a split has, in words."""
    return f"its columns are {', '.join(part.features)}"


def _label(part: Any, name: str, label: str | None) -> str:
    """The column of the labels: the one named, else a column of classes, else a usual name."""
    typed = [key for key, kind in part.features.items() if type(kind).__name__ == "ClassLabel"]
    usual = [key for key in LABELS if key in part.features]
    wanted = [label] if label else [*(key for key in usual if key in typed), *typed, *usual]
    if not wanted or wanted[0] not in part.features:
        what = f"column {label!r}" if label else "label column"
        raise _lacks(name, what, _has(part), 'name the column of the classes: label="..."')
    return str(wanted[0])


def _columns(part: Any, name: str, image: str | None, taken: set[str | None]) -> list[str]:
    """The image column alone, or the columns of numbers."""
    images = [key for key, kind in part.features.items() if type(kind).__name__ == "Image"]
    if image or images:
        images = [image] if image else images[:1]
        columns = [key for key in images if key in part.features]
    else:
        columns = [k for k, v in part.features.items() if k not in taken and _numeric(v)]
    if not columns:
        fix = 'name the column of the images: image="..."'
        raise _lacks(name, "column of images or numbers", _has(part), fix)
    return columns


def _numeric(kind: Any) -> bool:
    """Whether a column holds numbers, or lists of numbers of any depth."""
    while (inner := getattr(kind, "feature", None)) is not None:
        kind = inner
    dtype = str(getattr(kind, "dtype", ""))
    return type(kind).__name__ != "ClassLabel" and dtype.startswith(("int", "uint", "float"))


def _part(
    part: Any,
    name: str,
    columns: list[str],
    label: str,
    owner: str | None,
    options: Mapping[str, Any],
) -> Raw:
    """The samples, labels and owners of one split."""
    where = f"hf:{name}"
    missing = [key for key in (*columns, label, owner) if key and key not in part.features]
    if missing:
        fix = "name columns that the training and the test split share"
        raise _lacks(name, f"column {missing[0]!r} in every split", _has(part), fix)
    if type(part.features[columns[0]]).__name__ == "Image":
        x, channels = _images(part, columns[0], where, options), "last"
    else:
        parts = [_numbers(part, key, where) for key in columns]
        alone = len(parts) == 1
        x = parts[0] if alone else np.concatenate([a.reshape(len(a), -1) for a in parts], axis=1)
        channels = None
    names = getattr(part.features[label], "names", None)
    return Raw(
        x,
        _values(part, label, where),
        owner=_values(part, owner, where) if owner else None,
        classes=tuple(names) if names else None,
        channels=channels,
    )


def _images(part: Any, column: str, where: str, options: Mapping[str, Any]) -> Array:
    """(N, H, W, C) the images of a column."""
    import datasets

    stored = part.select_columns([column]).cast_column(column, datasets.Image(decode=False))
    root = Path(datasets.config.HF_CACHE_HOME)
    files, names = [], []
    for row, item in enumerate(stored):
        names.append(f"{where}, image {row}")
        content = item[column] or {}
        data, path = content.get("bytes"), content.get("path")
        if data is None and not path:
            raise unfit(names[-1], "is missing", "D015", "leave out the rows without an image")
        if data is None:  # a file beside the set: only where the library itself puts such files
            with reading(str(path)):
                data = inside(Path(str(path)), root).read_bytes()
        files.append(io.BytesIO(data))
    return decoded(files, options["size"], options["gray"], names)


def _numbers(part: Any, column: str, where: str) -> Array:
    """(N, ...) the numbers of a column."""
    values = part.with_format(None)[column][:]
    try:
        return np.array(values, dtype=np.float64)
    except (ValueError, TypeError) as error:
        at, what = f"{where}, column '{column}'", "the rows are not numbers of one shape"
        fix = "leave the column out, or fill and pad its rows"
        raise fault(at, what, "D014", fix, str(error)) from error


def _values(part: Any, column: str, where: str) -> Array:
    """(N,) the labels or owners of a column, none of them missing."""
    values = list(part.with_format(None)[column][:])
    empty = next((row for row, value in enumerate(values) if value is None), None)
    if empty is not None:
        raise DataError(
            f"{where}, column '{column}': row {empty} holds nothing",
            code="D012",
            where=f"{where}, row {empty}",
            fix="leave out the rows without a value",
        )
    return np.array(values)
