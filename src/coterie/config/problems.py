"""What is wrong with an experiment file: every problem at once, each with place, reason and fix."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from coterie.config import toml
from coterie.core.errors import ConfigError
from coterie.core.units import count

Path = tuple[str, ...]


class Absent:
    """The value of a key that is not there."""


@dataclass(frozen=True)
class Problem:
    """One thing to put right: at which key, what stands there, why it cannot be, what to do."""

    path: Path
    value: Any
    reason: str
    fix: str = ""

    @property
    def shown(self) -> str:
        """The key and its value as the file has them.

        >>> Problem(("train", "lr"), -1, "must be > 0").shown
        '[train] lr = -1'
        """
        *table, key = self.path
        if isinstance(self.value, Mapping):
            return f"[{'.'.join(map(toml.bare, self.path))}]"
        head = f"[{'.'.join(map(toml.bare, table))}] " if table else ""
        value = "" if self.value is Absent else f" = {shorten(toml.inline(self.value))}"
        return f"{head}{toml.bare(key)}{value}"


@dataclass
class Findings:
    """What is noted of a file on the way: its problems, and new path -> old of every alias."""

    problems: list[Problem] = field(default_factory=list)
    renamed: dict[Path, Path] = field(default_factory=dict)


def shorten(text: str, width: int = 40) -> str:
    """A text cut to a width, with dots where it was cut."""
    text = " ".join(text.split())
    return text if len(text) <= width else f"{text[: width - 1]}…"


def width(column: Iterable[str], most: int = 40) -> int:
    """How wide a column is made; a cell that is longer still pushes its own line only."""
    return max((n for cell in column if (n := len(cell)) <= most), default=most)


class ProblemsError(ConfigError):
    """An experiment that cannot be meant: all its problems, laid out one to a line."""

    def __init__(
        self, file: str, problems: Sequence[Problem], places: Mapping[Path, int | str]
    ) -> None:
        problems = [p for i, p in enumerate(problems) if p not in problems[:i]]
        what = f"{count(len(problems), 'problem')} in {file}"
        super().__init__(what, code="C012", fix=problems[0].fix)
        self.rows = sorted(
            ((place(p.path, file, places), p) for p in problems), key=lambda row: row[0][0]
        )

    def __str__(self) -> str:
        cells = [(where, p.shown, p.reason) for (_, where), p in self.rows]
        first, second, third = (width(c[i] for c in cells) for i in range(3))
        widths = first + 2, max(second + 2, 32), 23 if third < 23 else third + 2
        lines = []
        for cell, (_, problem) in zip(cells, self.rows, strict=True):
            row = (text.ljust(max(w, len(text) + 1)) for text, w in zip(cell, widths, strict=True))
            lines.append(f"  {''.join(row)}{problem.fix}".rstrip())
        return "\n".join([self.what, *lines])


def place(path: Path, file: str, places: Mapping[Path, int | str]) -> tuple[int, str]:
    """Where a key was given: its line, its table's if it is missing, or the command line."""
    for end in range(len(path), 0, -1):
        if (found := places.get(path[:end])) is not None:
            return (found, f"{file}:{found}") if isinstance(found, int) else (10**9, found)
    return 10**9, file
