"""Data that is in memory already: arrays, tensors, and torch datasets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from coterie.core.errors import DataError
from coterie.data.readers.raw import Array, Raw, stack


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
    raw = Raw(x, y, owner=None if owner is None else _array(owner), classes=names)
    if not test:
        return raw
    return raw.tested(
        Raw(test[0], test[1], owner=None if owner_test is None else _array(owner_test))
    )


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
