"""A disk that fails at the n-th change: every call by which Python changes files is counted."""

from __future__ import annotations

import builtins
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

How = Literal["not done", "half done", "lost"]
HOWS: tuple[How, ...] = ("not done", "half done", "lost")
CALLS = ("mkdir", "replace", "rename", "unlink", "remove", "rmdir", "truncate")


class PowerCut(BaseException):
    """The process is gone: nothing in the library catches this."""


class Disk:
    """What changes below a folder, one operation after another, until the last one.

    The last is not done, or a write by half, or ("lost") it is done as little as all else that was
    not brought to the disk by fsync: what a cut of power leaves. After it nothing changes any more,
    whatever the dying program tries.
    """

    def __init__(self, home: Path, last: float = float("inf"), how: How = "not done") -> None:
        self.home, self.last, self.how = os.path.realpath(home), last, how
        self.count, self.dead = 0, False
        self.fault: Callable[[], None] | None = None  # raised in the place of a cut
        self.safe: dict[str, int] = {}  # bytes of each file that are on the disk itself
        self.names: list[str] = []

    def ours(self, path: Any, dir_fd: int | None = None) -> str | None:
        """The path, if it is below the folder."""
        if isinstance(path, int):
            whole = os.readlink(f"/proc/self/fd/{path}")
        elif dir_fd is not None:
            whole = os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), os.fsdecode(path))
        else:
            whole = os.path.abspath(os.fsdecode(path))
        return whole if f"{whole}/".startswith(f"{self.home}/") else None

    def step(self, name: str, path: str, half: Callable[[], object] = lambda: None) -> None:
        """Count an operation that is about to be done; the last one ends everything."""
        if self.dead:
            raise PowerCut
        self.count += 1
        self.names.append(f"{name} {os.path.relpath(path, self.home)}")
        if self.count < self.last:
            return
        if self.fault is not None:
            self.fault()
            return
        if self.how == "half done":
            half()
        self.dead = True
        if self.how == "lost":
            for file, size in self.safe.items():
                if os.path.exists(file) and os.path.getsize(file) > size:
                    TRUNCATE(file, size)
        raise PowerCut

    def open(self, path: Any, mode: str = "r", *more: Any, **options: Any) -> Any:
        """A file; one that may change is watched."""
        whole = None if isinstance(path, int) else self.ours(path)
        if whole is None or not set(mode) & set("wax+"):
            return OPEN(path, mode, *more, **options)
        new = "w" in mode or not os.path.exists(whole)
        if new:
            self.step("open", whole)
            self.safe[whole] = 0
        else:  # what was there before is on the disk
            self.safe.setdefault(whole, os.path.getsize(whole))
        return File(self, OPEN(path, mode, *more, **options), whole)

    def fsync(self, handle: int) -> None:
        """What is in a file is on the disk itself from now on."""
        whole = self.ours(handle)
        if whole is not None:
            self.step("fsync", whole)
            if os.path.isfile(whole):
                self.safe[whole] = os.path.getsize(whole)
        FSYNC(handle)

    def moved(self, name: str, done: Any) -> Any:
        """A call that changes what a path means."""

        def call(path: Any, *more: Any, **options: Any) -> Any:
            whole = self.ours(path, options.get("dir_fd"))
            if whole is None or (name == "mkdir" and os.path.exists(whole)):
                return done(path, *more, **options)
            self.step(name, whole)
            out = done(path, *more, **options)
            if name in ("replace", "rename"):
                to = str(self.ours(more[0]))
                for file in [f for f in self.safe if f == whole or f.startswith(f"{whole}/")]:
                    self.safe[to + file.removeprefix(whole)] = self.safe.pop(file)
            return out

        return call

    @contextmanager
    def watched(self) -> Iterator[Disk]:
        """Inside it, everything goes through this disk."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(builtins, "open", self.open)
            patch.setattr(io, "open", self.open)
            patch.setattr(os, "fsync", self.fsync)
            for name in CALLS:
                patch.setattr(os, name, self.moved(name, getattr(os, name)))
            yield self


class File:
    """A file that may change; whatever is written is with the system at once."""

    def __init__(self, disk: Disk, file: Any, path: str) -> None:
        self.disk, self.file, self.path = disk, file, path

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def __enter__(self) -> File:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def write(self, data: Any) -> Any:
        """A write is one operation, however long it is; none is none."""
        if not len(data):
            return 0

        def half() -> None:
            self.file.write(data[: len(data) // 2])
            self.file.flush()

        self.disk.step("write", self.path, half)
        n = self.file.write(data)
        self.file.flush()
        return n

    def writelines(self, pieces: Any) -> None:
        """Each piece is a write."""
        for piece in pieces:
            self.write(piece)

    def truncate(self, size: int | None = None) -> Any:
        """A change, too."""
        at = self.file.tell() if size is None else size
        if at != os.path.getsize(self.path):
            self.disk.step("truncate", self.path)
        self.disk.safe[self.path] = min(self.disk.safe.get(self.path, 0), at)
        return self.file.truncate(size)


OPEN, FSYNC, TRUNCATE = builtins.open, os.fsync, os.truncate
