"""A part of a data set: some of its classes, or so many of its training samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from coterie.core.errors import DataError
from coterie.core.rng import stream
from coterie.data.dataset import Data


def some_classes(data: Data, classes: Sequence[str | int]) -> Data:
    """The samples of these classes, by name or number; they are numbered anew, in this order.

    >>> whole = Data("abc", torch.eye(3), torch.tensor([0, 1, 2]), ("a", "b", "c"))
    >>> some_classes(whole, ["c", 0]).y.tolist(), some_classes(whole, ["c", 0]).classes
    ([1, 0], ('c', 'a'))
    """
    names = list(data.classes)
    places = [names.index(str(c)) if str(c) in names and isinstance(c, str) else c for c in classes]
    for given, k in zip(classes, places, strict=True):
        if not isinstance(k, int) or not 0 <= k < len(names) or places.count(k) > 1:
            raise DataError(
                f"{given!r} is no class of {data.name}, or is named twice",
                code="D012",
                why=f"it has {', '.join(names[:12])}{', ...' * (len(names) > 12)}",
                fix=f"name classes, or give their numbers: 0 to {len(names) - 1}",
            )
    new = torch.full((len(names),), -1)
    new[torch.tensor(places)] = torch.arange(len(places))
    kept = new[data.y] >= 0
    data = replace(rows(data, kept), classes=tuple(names[int(k)] for k in places))
    data = replace(data, y=new[data.y])
    if data.y_test is None or data.x_test is None:
        return data
    there = new[data.y_test] >= 0
    owner = None if data.owner_test is None else data.owner_test[there]
    y_test = new[data.y_test[there]]
    return replace(data, x_test=data.x_test[there], y_test=y_test, owner_test=owner)


def at_most(data: Data, limit: int) -> Data:
    """So many training samples at most, drawn at random, the same ones whatever the run's seed."""
    if limit >= len(data.y):
        return data
    order = torch.randperm(len(data.y), generator=stream(0, "limit"))
    return rows(data, order[:limit].sort().values)


def rows(data: Data, kept: Tensor) -> Data:
    """These training samples and their owners."""
    owner = None if data.owner is None else data.owner[kept]
    return replace(data, x=data.x[kept], y=data.y[kept], owner=owner)
