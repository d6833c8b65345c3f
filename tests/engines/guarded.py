"""Memory for compiled code in which any step aside is seen: forbidden pages, and canaries."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np

from coterie.engines.compiled.network import TYPES
from coterie.engines.compiled.settings import WIDE

PAGE = mmap.PAGESIZE
LIBC: Any = ctypes.CDLL(None)


class Guard:
    """Allots buffers that end, with the room for a vector, at a forbidden page, as they begin.

    What lies around their numbers is NaN: who uses it passes that on, and who writes it is found.
    """

    def __init__(self, room: int = WIDE) -> None:
        self.room = room  # numbers beyond the last that may be read
        self.around: list[Any] = []

    def __call__(self, kind: str, n: int) -> Any:
        dtype = np.dtype(TYPES[kind])
        room, size = self.room * dtype.itemsize, n * dtype.itemsize
        pages = -(-(size + room) // PAGE)
        raw = np.frombuffer(mmap.mmap(-1, (pages + 2) * PAGE), np.uint8)
        for page in (0, pages + 1):
            assert LIBC.mprotect(ctypes.c_void_p(raw.ctypes.data + page * PAGE), PAGE, 0) == 0
        inside = raw[PAGE : (pages + 1) * PAGE]
        inside[:] = 0xFF
        first = len(inside) - room - size
        self.around += [inside[:first], inside[first + size :]]
        numbers = inside[first : first + size].view(dtype)
        numbers[:] = 0
        return numbers

    def check(self) -> None:
        """Nothing was written around any buffer."""
        assert self.around
        assert all((canary == 0xFF).all() for canary in self.around)
