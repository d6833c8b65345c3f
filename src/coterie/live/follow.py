"""Following events.jsonl: whole lines as they come, from where a reader was."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Line(NamedTuple):
    """One event as it was written, and where in the file it ends."""

    text: str
    end: int


class Tail:
    """A file that grows. A reader that was at `at` goes on there, if that is still the end of a
    line; a file that became shorter, or another one, is read from its beginning.
    """

    def __init__(self, path: Path, at: int = 0) -> None:
        self.path, self.at = path, at
        self.file: int | None = None  # which file it was: its inode
        self.again = False  # what was read before is void; whoever heard it sets it back

    def read(self) -> Iterator[Line]:
        """Every whole line since the last time."""
        try:
            with open(self.path, "rb") as file:
                found = os.fstat(file.fileno())
                moved = self.file is not None and found.st_ino != self.file
                if moved or found.st_size < self.at or not self.at_a_line(file.fileno()):
                    self.at, self.again = 0, True
                self.file = found.st_ino
                if found.st_size == self.at:
                    return
                file.seek(self.at)
                data = file.read()
        except FileNotFoundError:
            self.again, self.at = self.again or self.at > 0, 0
            return
        for line in data[: data.rfind(b"\n") + 1].splitlines(keepends=True):
            self.at += len(line)
            yield Line(line.decode(errors="replace").strip(), self.at)

    def at_a_line(self, file: int) -> bool:
        """Whether the place we were at is still the end of a line."""
        return self.at == 0 or os.pread(file, 1, self.at - 1) == b"\n"
