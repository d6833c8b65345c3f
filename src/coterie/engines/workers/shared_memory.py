"""Memory that several processes see, for tensors that shall not be copied through a pipe."""

from __future__ import annotations

import copyreg
import math
import mmap
import os
import tempfile
import warnings
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.reduction import DupFd
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

LINE = 64  # bytes: tensors begin where torch itself would let them begin


class Slot(NamedTuple):
    """Where in a buffer a tensor lies."""

    start: int
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def stop(self) -> int:
        """The byte behind it."""
        return self.start + math.prod(self.shape) * self.dtype.itemsize


class Buffer(ABC):
    """Tensors side by side in one memory, which doubles when it is full."""

    bytes: Tensor  # the memory, as far as it is mapped here
    used = 0

    @abstractmethod
    def grow(self) -> None:
        """See that there is room for what is used."""

    def clear(self) -> None:
        """Forget what lies here: the next tensor is laid over it."""
        self.used = 0

    def put(self, t: Tensor) -> Slot:
        """Lay a copy of a tensor here."""
        slot = self.room(t.shape, t.dtype)
        self.see(slot).copy_(t.detach())
        return slot

    def put_rows(self, rows: Sequence[Tensor]) -> Slot:
        """Copies of several tensors of one shape, as one."""
        slot = self.room((len(rows), *rows[0].shape), rows[0].dtype)
        torch.stack([t.detach() for t in rows], out=self.see(slot))
        return slot

    def room(self, shape: Sequence[int], dtype: torch.dtype) -> Slot:
        """A free slot."""
        slot = Slot(-(-self.used // LINE) * LINE, tuple(shape), dtype)
        self.used = slot.stop
        self.grow()
        return slot

    def see(self, slot: Slot) -> Tensor:
        """The tensor in a slot, in place: valid until the buffer is cleared."""
        return self.bytes[slot.start : slot.stop].view(slot.dtype).view(slot.shape)

    def put_all(self, tensors: Mapping[Any, Any]) -> dict[Any, Any]:
        """Several tensors, by name, or mappings of such."""
        return {
            k: self.put(t) if isinstance(t, Tensor) else self.put_all(t) for k, t in tensors.items()
        }

    def see_all(self, slots: Mapping[Any, Any]) -> dict[Any, Any]:
        """What `put_all` laid down."""
        return {
            k: self.see(s) if isinstance(s, Slot) else self.see_all(s) for k, s in slots.items()
        }


class SharedBuffer(Buffer):
    """A buffer in memory that this process shares with those it starts.

    The memory has no name in any file system: nothing is left of it once the last process that
    has it is gone, however it went.

    >>> buffer = SharedBuffer()
    >>> slot = buffer.put(torch.arange(3))
    >>> buffer.see(slot)
    tensor([0, 1, 2])
    """

    def __init__(self, fd: int | None = None) -> None:
        self.fd = nameless() if fd is None else fd
        self.bytes = torch.empty(0, dtype=torch.uint8)
        weakref.finalize(self, os.close, self.fd)

    def __reduce__(self) -> tuple[Any, ...]:
        return received, (DupFd(self.fd),)  # the same memory, in a process about to start

    def grow(self) -> None:
        """See that there is room for what is used."""
        size = os.fstat(self.fd).st_size
        if self.used > size:
            size = max(self.used, 2 * size, mmap.PAGESIZE)
            os.ftruncate(self.fd, size)
            if hasattr(os, "posix_fallocate"):  # too little memory is an error here, not a signal
                os.posix_fallocate(self.fd, 0, size)

    def see(self, slot: Slot) -> Tensor:
        """The tensor in a slot, in place: valid until the buffer is cleared."""
        if slot.stop > len(self.bytes):  # it has grown, here or in another process
            self.bytes = torch.frombuffer(
                mmap.mmap(self.fd, os.fstat(self.fd).st_size), dtype=torch.uint8
            )
        return super().see(slot)


class LocalBuffer(Buffer):
    """A buffer in the memory of this process alone: what lies in it travels as one array.

    >>> buffer = LocalBuffer()
    >>> slot = buffer.put(torch.arange(3))
    >>> LocalBuffer(buffer.array()).see(slot)
    tensor([0, 1, 2])
    """

    def __init__(self, array: NDArray[np.uint8] | None = None) -> None:
        self.bytes = torch.empty(0, dtype=torch.uint8) if array is None else as_tensor(array)
        self.used = len(self.bytes)

    def grow(self) -> None:
        """See that there is room for what is used."""
        if self.used > len(self.bytes):
            wider = torch.empty(max(self.used, 2 * len(self.bytes)), dtype=torch.uint8)
            wider[: len(self.bytes)] = self.bytes
            self.bytes = wider

    def array(self) -> NDArray[np.uint8]:
        """All that lies here, in place."""
        found: NDArray[np.uint8] = self.bytes[: self.used].numpy()
        return found


def as_tensor(array: NDArray[Any]) -> Tensor:
    """The tensor in an array's memory, which may be one that only others write to."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        return torch.from_numpy(array)


def nameless() -> int:
    """A file without a name, in memory where the system has such."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("coterie")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def received(fd: Any) -> SharedBuffer:
    """The buffer of the process that started this one."""
    return SharedBuffer(fd.detach())


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
