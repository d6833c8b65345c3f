"""How commands speak: results on stdout, everything else on stderr, tables that line up."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from coterie.core.shell import command
from coterie.core.units import percent as percent
from coterie.core.units import seconds as seconds
from coterie.core.units import size as size
from coterie.runs.text_table import columns


def result(text: str = "") -> None:
    """Print a line of what was asked for, on stdout."""
    print(harmless(text), flush=True)


def line(value: Mapping[str, Any]) -> None:
    """Print one JSON object on a line of stdout."""
    print(json.dumps(finite(value), default=str, allow_nan=False), flush=True)


def finite(value: Any) -> Any:
    """A value as JSON can hold it: what is not a number is null.

    >>> finite({"a": [1.0, float("nan")]})
    {'a': [1.0, None]}
    """
    if isinstance(value, Mapping):
        return {key: finite(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def note(text: str = "") -> None:
    """Print a line of anything else, on stderr."""
    print(harmless(text), file=sys.stderr, flush=True)


def harmless(text: str) -> str:
    """A text that no terminal takes for a command: names in files are not ours.

    >>> print(harmless("a\\x1b[2Jb\\nc"))
    a\\x1b[2Jb
    c
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)


def label(word: str, text: str) -> None:
    """Print a note behind a word (data, run, next), on stderr."""
    for i, part in enumerate(text.splitlines()):
        note(f"{'' if i else word:<7} {part}")


def page(file: Path, folder: Path | None = None) -> None:
    """Say where a page is, and the command that opens it: by its folder, or by the file itself."""
    label("report", f"{file}    open it: {command('open', folder or file)}")


def table(head: Sequence[str], rows: Iterable[Sequence[object]], numbers: bool = False) -> str:
    """Cells in columns, numbers to the right if they are numbers, and a rule under the head.

    >>> print(table(("name", "size"), [("a", 10), ("bcd", 5)]))
    name  size
    ────  ────
    a     10
    bcd   5
    """
    return columns(head, [[str(c) for c in row] for row in rows], numbers=numbers)
