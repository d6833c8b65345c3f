"""Data that needs no file: arrays, torch datasets, scikit-learn's digits, Gaussian clouds."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from annotated_types import Ge

from coterie.core.bounds import Count, NonNegative
from coterie.core.errors import DataError
from coterie.core.rng import numpy_stream
from coterie.data.readers.class_names import DIGITS
from coterie.data.readers.raw import Array, Raw, bounded, stack


def read_arrays(
    source: Sequence[Any],
    *,
    owner: Any = None,
    owner_test: Any = None,
    classes: Sequence[str] | None = None,
) -> Raw:
    """(x, y) or (x, y, x_test, y_test): arrays, tensors or nested lists. They are copied."""
    if len(source) not in (2, 4):
        raise DataError(
            f"a sequence of {len(source)} things is no data",
            code="D003",
            why="expected (x, y) or (x, y, x_test, y_test)",
            fix="give samples and labels, and perhaps those of a test set",
        )
    x, y, *test = (_array(part) for part in source)
    names = None if classes is None else tuple(map(str, classes))
    x_test, y_test = test or (None, None)
    given = owner, owner_test if test else None
    owners = [None if who is None else _array(who) for who in given]
    return Raw(x, y, x_test, y_test, owners[0], owners[1], names)


def read_dataset(source: Any, *, classes: Sequence[str] | None = None) -> Raw:
    """Any map-style torch dataset whose items are (sample, label): tensors, arrays, images.

    Class names are taken from its `classes`, if it has them.
    """
    try:
        count = len(source)
    except TypeError as error:
        raise DataError(
            f"{type(source).__name__} has no length",
            code="D003",
            why="only map-style datasets can be divided among clients",
            fix="collect the stream first: list(dataset)",
        ) from error
    rows, labels = [], []
    for i in range(count):
        item = source[i]
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise DataError(
                f"item {i} of {type(source).__name__} is no (sample, label) pair",
                code="D003",
                where=f"item {i}",
                why=f"it is a {type(item).__name__}",
                fix="give a dataset whose items are (sample, label)",
            )
        rows.append(_array(item[0]))
        labels.append(_array(item[1]))
    names = classes if classes is not None else getattr(source, "classes", None)
    known = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
    y = stack(labels, "label")
    return Raw(stack(rows, "item"), y, classes=tuple(names) if known and names else None)


def read_digits() -> Raw:
    """1,797 handwritten digits: (1797, 8, 8), whole numbers in 0..16."""
    table = digits_table()
    return Raw(
        table[:, :64].reshape(-1, 8, 8).astype(np.uint8),
        table[:, 64].astype(np.int64),
        classes=DIGITS,
        peak=16.0,
    )


def digits_table() -> Array:
    """(1797, 65) pixels and label, from the file that scikit-learn comes with.

    It is read without scikit-learn, which takes seconds to import; if it is elsewhere, by it.
    """
    package = importlib.util.find_spec("sklearn")
    for folder in (package and package.submodule_search_locations) or ():
        file = Path(folder) / "datasets" / "data" / "digits.csv.gz"
        if file.is_file():
            return np.loadtxt(file, delimiter=",")
    from sklearn.datasets import load_digits

    digits = load_digits()
    return np.column_stack([digits.data, digits.target])


def read_synthetic(
    *,
    samples: Count = 2000,
    classes: Annotated[int, Ge(2)] = 10,
    features: Count = 32,
    separation: NonNegative = 3.0,
    seed: int = 0,
) -> Raw:
    """Gaussian clouds of deviation 1 around one prototype per class, equally many of each.

    The prototypes point in random directions at distance `separation` from the origin, so 0 leaves
    nothing to learn and 10 nothing to err on. The prototypes depend on the seed but not on the
    number of samples.
    """
    if samples < classes:
        raise DataError(
            f"{samples} samples cannot show {classes} classes",
            code="D004",
            where="synthetic",
            fix=f"samples must be at least {classes}",
        )
    bounded(8 * samples * features, "synthetic")
    prototypes = numpy_stream(seed, "synthetic", "prototypes").normal(size=(classes, features))
    prototypes *= separation / np.linalg.norm(prototypes, axis=1, keepdims=True)
    rng = numpy_stream(seed, "synthetic", "samples")
    y = rng.permutation(np.arange(samples) % classes)
    x = prototypes[y] + rng.normal(size=(samples, features))
    return Raw(x.astype(np.float32), y)


def _array(part: Any) -> Array:
    """A copy as numpy, so that what the caller does to the original later changes nothing."""
    if isinstance(part, torch.Tensor):
        part = part.detach().cpu()
        if part.dtype == torch.bfloat16:  # unknown to numpy
            part = part.float()
        part = part.numpy()
    try:
        return np.array(part)
    except ValueError as error:  # nested lists of unequal lengths
        raise DataError(
            "the rows of an array differ in length",
            code="D014",
            why=str(error),
            fix="give samples of one shape",
        ) from error
