"""The runs of a study follow one another in one process: a file they share is read once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from coterie.data.readers.raw import Raw

# The file that was read last; None: nothing is kept, for a single run reads its data once anyway.
_kept: ContextVar[dict[tuple[object, ...], Raw] | None] = ContextVar("kept", default=None)


@contextmanager
def read_once() -> Iterator[None]:
    """In here the file that was read last is kept, as long as it is not changed."""
    if _kept.get() is not None:  # a study inside a study
        yield
        return
    token = _kept.set({})
    try:
        yield
    finally:
        _kept.reset(token)


def unless_kept(path: Path, options: Mapping[str, Any], read: Callable[[], Raw]) -> Raw:
    """What is in a file, read with these options now or a moment ago."""
    kept = _kept.get()
    if kept is None or not path.is_file():
        return read()
    about = path.stat()
    key = (path.absolute(), about.st_ino, about.st_size, about.st_mtime_ns, repr(options))
    if key not in kept:
        kept.clear()  # not two sets at a time
        kept[key] = read()
    return kept[key]
