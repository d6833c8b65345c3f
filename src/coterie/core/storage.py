"""Writing that survives a crash: every byte of a run goes to disk through these few functions."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from coterie.core.errors import StorageError

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}  # room would help


@contextlib.contextmanager
def speaking(path: Path, size: int = 0) -> Iterator[None]:
    """Turn what the system refuses to write into an error that names the path and the space."""
    try:
        yield
    except OSError as cause:
        home = next((p for p in (path, *path.parents) if os.path.exists(p)), Path("/"))
        free = shutil.disk_usage(home).free
        full = cause.errno in FULL
        raise StorageError(
            f"cannot write {shortened(path)}: {cause.strerror or cause}",
            code="S001",
            why=f"{size:,} bytes wanted, {free:,} free on its disk" if full else "",
            fix=f"{'make room or ' * full}choose another --out; what was saved before is intact",
        ) from cause


def shortened(path: Path) -> str:
    """A path as it can be shown: of one that is too long for the system, the beginning.

    >>> len(shortened(Path("x" * 5000)))
    200
    """
    text = str(path)
    return text if len(text) <= 200 else f"{text[:199]}…"


def make_folder(path: Path) -> None:
    """A folder, with its parents."""
    with speaking(path):
        path.mkdir(parents=True, exist_ok=True)


def write_file(path: Path, data: bytes | Sequence[bytes | memoryview]) -> None:
    """A file that is whole on disk when this returns; given in pieces, it is never copied."""
    pieces = [data] if isinstance(data, bytes) else data
    with speaking(path, sum(map(len, pieces))), open(path, "wb") as file:
        file.writelines(pieces)
        file.flush()
        os.fsync(file.fileno())


def append_file(path: Path, data: bytes, *, sync: bool = False) -> None:
    """More bytes at the end of a file."""
    with speaking(path, len(data)), open(path, "ab") as file:
        file.write(data)
        file.flush()
        if sync:
            os.fsync(file.fileno())


def truncate_file(path: Path, size: int) -> None:
    """Only the first `size` bytes of a file."""
    with speaking(path), open(path, "r+b") as file:
        file.truncate(size)
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """The names in a folder, on disk."""
    with speaking(path):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def publish(temporary: Path, final: Path) -> None:
    """Give a finished file or folder its name, in one step that a crash cannot divide."""
    with speaking(final):
        os.replace(temporary, final)
        sync_folder(final.parent)


def replace_file(path: Path, data: bytes) -> None:
    """New contents for a file: the old ones or the new ones are there, never a mixture."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        write_file(temporary, data)
        publish(temporary, path)
    except StorageError:
        with contextlib.suppress(OSError):
            temporary.unlink()  # half of it is of no use, and in the way on a full disk
        raise


def remove_folder(path: Path) -> None:
    """Remove a folder and all that is in it."""
    with speaking(path):
        shutil.rmtree(path)
