"""The one form of every set: images (N, C, H, W) or features (N, D), labels 0..K-1 and names."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from coterie.core.errors import DataError
from coterie.data.readers.raw import Array, fault

CHANNELS = (1, 3, 4)  # what a channel axis is recognised by: gray, RGB, RGBA

At = Callable[[int], str]  # says in words where a row is


def in_one_form(
    x: Array,
    x_test: Array | None,
    *,
    where: str,
    shape: tuple[int, ...] | None = None,
    channels: str | None = None,
) -> tuple[Array, Array | None, float]:
    """Both sets in one form, and the peak that means "full".

    Images (N, H, W), (N, H, W, C) or (N, C, H, W) become (N, C, H, W): uint8 where they are whole
    numbers in 0..255 (peak 255), else float32. Anything of one or two axes is features, float32.
    """
    if x_test is not None and x_test.shape[1:] != x.shape[1:]:
        what = f"test samples have shape {x_test.shape[1:]}, training samples {x.shape[1:]}"
        raise fault(where, what, "D019", "bring both to one shape")
    formed = [axes_in_order(t, where, shape, channels) for t in (x, x_test) if t is not None]
    images = formed[0].ndim == 4
    pixels = images and all(
        t.dtype.kind in "biu" and (not t.size or (t.min() >= 0 and t.max() <= 255)) for t in formed
    )
    kind: type[np.generic] = np.uint8 if pixels else np.float32
    peak = 255.0 if pixels else 65535.0 if images and formed[0].dtype == np.uint16 else 1.0
    stored = [_stored(t, kind, where) for t in formed]
    return stored[0], stored[1] if len(stored) > 1 else None, peak


def axes_in_order(
    x: Array, where: str, shape: tuple[int, ...] | None, channels: str | None
) -> Array:
    """The same numbers with the axes in order: (N, C, H, W) or (N, D).

    >>> axes_in_order(np.zeros((5, 32, 32, 3)), "x", None, None).shape
    (5, 3, 32, 32)
    """
    if x.dtype.kind not in "biuf":
        what = f"samples are of type {x.dtype}, not numbers"
        raise fault(where, what, "D013", "give integers or floats")
    if channels not in (None, "first", "last"):
        raise DataError(
            f"channels = {channels!r} cannot be meant",
            code="D004",
            where=where,
            fix='channels is "first" for (N, C, H, W) or "last" for (N, H, W, C)',
        )
    if shape is not None:
        try:
            x = x.reshape(len(x), *shape)
        except (ValueError, TypeError) as error:
            what = f"samples of shape {x.shape[1:]} cannot be given the shape {shape!r}"
            fix = "the product of the shape is the number of values of one sample"
            raise fault(where, what, "D018", fix) from error
    if x.ndim <= 2:
        return x.reshape(len(x), -1)
    if x.ndim == 3:
        return x[:, None]
    if x.ndim == 4:
        last = _last(x.shape, where) if channels is None else channels == "last"
        return np.moveaxis(x, -1, 1) if last else x
    why = f"the array has shape {x.shape}; images have two or three axes, features one"
    fix = "flatten or split the samples, or give shape=(C, H, W)"
    raise fault(where, f"samples have {x.ndim - 1} axes", "D018", fix, why)


def _last(shape: tuple[int, ...], where: str) -> bool:
    """Whether the last axis is the channels, told from the sizes; unclear sizes are an error."""
    first, last = shape[1] in CHANNELS, shape[3] in CHANNELS
    if first and last:  # tiny images: the two equal axes are height and width
        first, last = shape[2] == shape[3], shape[1] == shape[2]
    if first == last:
        what = f"it is unclear which axis of {shape} holds the channels"
        why = "an axis of size 1, 3 or 4 at one end, or square images, would say it"
        raise fault(where, what, "D018", 'say channels="first" or channels="last"', why)
    return last


def _stored(x: Array, kind: type[np.generic], where: str) -> Array:
    """Samples as numbers of one kind in memory of their own, all of them finite."""
    with np.errstate(over="ignore"):  # what does not fit a float32 is caught just below
        stored = np.ascontiguousarray(x, dtype=kind)
    if kind is np.float32 and not np.isfinite(stored).all():
        row = int((~np.isfinite(stored)).reshape(len(stored), -1).any(1).argmax())
        raise DataError(
            f"{where}: sample {row} holds a value that is not a finite number",
            code="D013",
            where=f"{where}, sample {row}",
            why="missing values and infinities cannot be trained on",
            fix="fill or leave out the samples with missing values",
        )
    return stored if stored.flags.writeable else stored.copy()


def _bad(row: int, at: At, what: str, fix: str) -> DataError:
    """The error about one label."""
    return fault(at(row), what, "D012", fix)


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


def as_owners(
    owner: Array | None, owner_test: Array | None, at: At
) -> tuple[Array | None, Array | None, tuple[str, ...]]:
    """The owner of each row as a long, and the owners' names: words are put in sorted order.

    Numbers, also where they are written as words, are kept and are their own names.

    >>> as_owners(np.array(["Rome", "Bern"]), None, "row {}".format)
    (array([1, 0]), None, ('Bern', 'Rome'))
    """
    given = {
        name: o.reshape(-1) for name, o in (("", owner), ("test", owner_test)) if o is not None
    }
    if all(o.dtype.kind in "biuf" for o in given.values()):
        numbered = {name: whole(o, at) for name, o in given.items()}
        return numbered.get(""), numbered.get("test"), ()
    words = {name: np.char.strip(o.astype(str)) for name, o in given.items()}
    for part in words.values():
        _expect_names(part, at)
    names = np.unique(np.concatenate(list(words.values())))
    if all(word.isdecimal() and str(int(word)) == word for word in names.tolist()):
        numbered = {name: part.astype(np.int64) for name, part in words.items()}
        return numbered.get(""), numbered.get("test"), ()
    numbered = {name: np.searchsorted(names, part) for name, part in words.items()}
    return numbered.get(""), numbered.get("test"), tuple(names.tolist())


def _expect_names(words: Array, at: At) -> None:
    """Refuse an owner that nobody could be told by: no name at all, or one that is not printed."""
    for row, word in enumerate(words.tolist()):
        if not word:
            raise _bad(row, at, "the owner is missing", "say whose row it is, or remove it")
        if not word.isprintable():
            raise _bad(row, at, f"the owner is called {word!r}", "use a name that can be printed")


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
