"""Reading what others may have made or damaged: nothing hangs, and nothing raises a riddle."""

from __future__ import annotations

import csv
import errno
import os
import stat
from pathlib import Path

# What a damaged text makes parsers and whoever looks at its parts raise, beside refusals of the
# system: UnicodeError and the errors of json, tomllib and pydantic are ValueErrors.
DAMAGE = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    csv.Error,
)
KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


def read_bytes(path: Path) -> bytes:
    """All the bytes of a file; whatever else has its name is refused before it is opened."""
    expect_file(path)
    return path.read_bytes()


def expect_file(path: Path | str) -> None:
    """Refuse, as the system would, what is no file: to open a pipe is to wait for its writer."""
    kind = stat.S_IFMT(os.stat(path).st_mode)
    if kind != stat.S_IFREG:
        refuse(path, kind)


def expect_file_or_folder(path: Path | str) -> None:
    """Refuse what is neither a file nor a folder; what is not there is left to whoever opens it."""
    try:
        kind = stat.S_IFMT(os.stat(path).st_mode)
    except FileNotFoundError:
        return
    if kind not in (stat.S_IFREG, stat.S_IFDIR):
        refuse(path, kind)


def refuse(path: Path | str, kind: int) -> None:
    """Say what something is that is no file."""
    code = errno.EISDIR if kind == stat.S_IFDIR else errno.EINVAL
    raise OSError(code, f"it is {KINDS.get(kind, 'no file')}", str(path))


def reason(cause: BaseException) -> str:
    """Why something could not be read, in a line: what the system says, or the error itself."""
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror[:1].lower() + cause.strerror[1:]
    text = " ".join(str(cause).split())[:300]
    return f"{type(cause).__name__}: {text}" if text else type(cause).__name__
