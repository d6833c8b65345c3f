"""Tensors on their way to other processes as arrays, which these can read where they lie."""

from __future__ import annotations

import copyreg
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.engines.workers.shared_memory import as_tensor


@contextmanager
def in_place() -> Iterator[None]:
    """Tensors that are pickled meanwhile become arrays: a memory once, however many share it."""
    arrays: dict[int, NDArray[Any]] = {}

    def laid(t: Tensor) -> Any:
        if t.device.type != "cpu" or t.layout != torch.strided:
            return t.__reduce_ex__(4)
        memory = t.detach().untyped_storage()
        array = torch.empty(0, dtype=torch.uint8).set_(memory).numpy()
        array = arrays.setdefault(memory.data_ptr(), array)
        return lifted, (array, t.dtype, tuple(t.shape), t.stride(), t.storage_offset())

    usual = copyreg.dispatch_table.get(Tensor)
    copyreg.pickle(Tensor, laid)
    try:
        yield
    finally:
        del copyreg.dispatch_table[Tensor]
        if usual is not None:
            copyreg.dispatch_table[Tensor] = usual


def lifted(array: NDArray[Any], dtype: torch.dtype, shape: Any, stride: Any, start: int) -> Tensor:
    """A tensor that was laid down."""
    return as_tensor(array).view(dtype).as_strided(shape, stride, start)
