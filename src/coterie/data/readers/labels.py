"""Labels and owners of any kind, brought into numbers 0..K-1 and names."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from coterie.core.errors import DataError
from coterie.data.readers.raw import Array

At = Callable[[int], str]  # says in words where a row is


def _bad(row: int, at: At, what: str, fix: str) -> DataError:
    """The error about one label."""
    return DataError(f"{at(row)}: {what}", code="D012", where=at(row), fix=fix)


def whole(y: Array, at: At) -> Array:
    """(N,) long: numbers that are labels already; floats must be whole, none may be negative.

    >>> whole(np.array([0.0, 2.0]), "row {}".format).tolist()
    [0, 2]
    """
    if y.dtype.kind == "f":
        odd = ~np.isfinite(y)
        if odd.any():
            raise _bad(int(odd.argmax()), at, "the label is missing (NaN)", "label every sample")
        odd = y != np.trunc(y)
        if odd.any():
            row = int(odd.argmax())
            fix = "labels are classes, not measurements: number the classes 0, 1, 2, ..."
            raise _bad(row, at, f"the label {y[row]:g} is not a whole number", fix)
    odd = (y < 0) | (y > np.iinfo(np.int64).max)
    if odd.any():
        row = int(odd.argmax())
        fix = "number the classes 0, 1, 2, ... and leave out samples without a label"
        raise _bad(row, at, f"the label {y[row]} is no class", fix)
    return y.astype(np.int64)


def as_classes(
    y: Array, y_test: Array | None, classes: tuple[str, ...] | None, at: At, at_test: At
) -> tuple[Array, Array | None, tuple[str, ...]]:
    """Labels in 0..K-1 and the K class names, the same for the training and the test set.

    Numbers that are 0..K-1 are kept; other numbers and words are put in sorted order. With known
    `classes` a number is a position in them, and trailing classes that nobody holds are left out.

    >>> as_classes(np.array([7, 3, 7]), None, None, "row {}".format, str)
    (array([1, 0, 1]), None, ('3', '7'))
    """
    train, test = _flat(y, at), None if y_test is None else _flat(y_test, at_test)
    if test is not None and (train.dtype.kind == "U") != (test.dtype.kind == "U"):
        raise _bad(
            0,
            at_test,
            f"test labels are {_kind(test)}, training labels {_kind(train)}",
            "write both in the same way",
        )
    if classes is not None:
        train = _numbered(train, classes, at)
        test = None if test is None else _numbered(test, classes, at_test)
    values = np.unique(train if test is None else np.concatenate([train, test]))
    dense = values.dtype.kind != "U" and values[-1] == len(values) - 1  # all of 0, 1, ..., k-1
    if classes is not None:
        return train, test, classes[: len(values)] if dense else classes
    if not dense:
        train = np.searchsorted(values, train)
        test = None if test is None else np.searchsorted(values, test)
    return train, test, tuple(str(value) for value in values)


def owners(
    owner: Array | None, owner_test: Array | None, at: At
) -> tuple[Array | None, Array | None]:
    """The owner of each row as a long: numbers are kept, words are put in sorted order."""
    given = {
        name: o.reshape(-1) for name, o in (("", owner), ("test", owner_test)) if o is not None
    }
    if all(o.dtype.kind in "biuf" for o in given.values()):
        numbered = {name: whole(o, at) for name, o in given.items()}
    else:
        words = {name: o.astype(str) for name, o in given.items()}
        names = np.unique(np.concatenate(list(words.values())))
        numbered = {name: np.searchsorted(names, o) for name, o in words.items()}
    return numbered.get(""), numbered.get("test")


def _kind(y: Array) -> str:
    """What labels are, in a word."""
    return "words" if y.dtype.kind == "U" else "numbers"


def _flat(y: Array, at: At) -> Array:
    """(N,) long or words, of labels (N,) or (N, 1)."""
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        fix = "give one class number per sample; for one-hot rows: y.argmax(1)"
        raise _bad(0, at, f"labels have shape {y.shape}, expected (N,)", fix)
    if y.dtype.kind in "biuf":
        return whole(y.astype(np.uint8) if y.dtype.kind == "b" else y, at)
    if y.dtype.kind == "O" and all(isinstance(value, str) for value in y):
        y = y.astype(str)
    if y.dtype.kind != "U":
        fix = "labels are whole numbers or words"
        raise _bad(0, at, f"labels of type {y.dtype}", fix)
    empty = np.char.str_len(y) == 0
    if empty.any():
        raise _bad(int(empty.argmax()), at, "the label is missing", "label every sample")
    return y


def _numbered(y: Array, classes: tuple[str, ...], at: At) -> Array:
    """Labels as positions in the known classes."""
    if y.dtype.kind == "U":
        place = {name: i for i, name in enumerate(classes)}
        places = np.array([place.get(str(name), len(classes)) for name in y], dtype=np.int64)
    else:
        places = y
    beyond = places >= len(classes)
    if beyond.any():
        row = int(beyond.argmax())
        fix = f"the classes are {', '.join(classes[:12])}{', ...' if len(classes) > 12 else ''}"
        raise _bad(row, at, f"the label {y[row]} is none of the {len(classes)} classes", fix)
    return places
