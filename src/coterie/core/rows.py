"""Rows: a model for each of very many clients, on disk where they would fill the memory.

A tensor of at least `LARGE` bytes is mapped from a nameless file in the temporary folder (TMPDIR):
it is a tensor like any other, and the system keeps in memory what is in use. Nothing has to be
removed; the file goes when the tensor does.
"""

from __future__ import annotations

import os
import tempfile

import torch
from torch import Tensor

LARGE = 2**30  # bytes from which on rows lie on disk


def rows(k: int, P: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """(k, P) numbers still to be filled in, on disk if there are many.

    >>> rows(2, 3).shape
    torch.Size([2, 3])
    """
    if k * P * dtype.itemsize < LARGE:
        return torch.empty(k, P, dtype=dtype)
    handle, path = tempfile.mkstemp(prefix="coterie-rows-")
    try:
        os.truncate(handle, k * P * dtype.itemsize)
        return torch.from_file(path, shared=True, size=k * P, dtype=dtype).view(k, P)
    finally:
        os.close(handle)
        os.unlink(path)


def repeated(row: Tensor, k: int) -> Tensor:
    """The same row k times: (P,) -> (k, P).

    >>> repeated(torch.tensor([1.0, 2.0]), 2).tolist()
    [[1.0, 2.0], [1.0, 2.0]]
    """
    return rows(k, len(row), row.dtype).copy_(row.expand(k, -1))


def stacked(a: Tensor, b: Tensor) -> Tensor:
    """One below the other: (j, P), (k, P) -> (j + k, P); the second itself if there is no first.

    >>> stacked(torch.zeros(1, 1), torch.ones(1, 1)).tolist()
    [[0.0], [1.0]]
    """
    if not len(a):
        return b
    whole = rows(len(a) + len(b), a.shape[1], a.dtype)
    whole[: len(a)] = a
    whole[len(a) :] = b
    return whole


def put(models: Tensor, index: Tensor, values: Tensor) -> Tensor:
    """The models with some rows exchanged; those that were given stay as they are.

    >>> put(torch.zeros(3, 1), torch.tensor([2, 0]), torch.tensor([[5.0], [7.0]])).tolist()
    [[7.0], [0.0], [5.0]]
    """
    if models.nbytes < LARGE:
        return models.index_copy(0, index, values)
    k, P = models.shape
    return rows(k, P, models.dtype).copy_(models).index_copy_(0, index, values)
