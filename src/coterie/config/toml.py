"""TOML as experiment files use it: where each key stands, and how a table is written."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

Path = tuple[str, ...]

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}' r"|'''.*?'{3,5}" r'|"(?:\\.|[^"\\\n])*"' r"|'[^'\n]*'", re.DOTALL
)
_SCALAR = re.compile(r"[^,\]}#\n]+")


def lines(text: str) -> dict[Path, int]:
    """The line on which each table and key of a valid TOML text stands, counted from 1.

    >>> lines('seed = 1\\n[train]\\nlr = 0.1  # small')
    {('seed',): 1, ('train',): 2, ('train', 'lr'): 3}
    """
    return _Scan(text).document()


class _Scan:
    """One pass over a text that tomllib has already found to be valid."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.found: dict[Path, int] = {}

    def document(self) -> dict[Path, int]:
        """Read all tables and pairs; the lines found."""
        table: Path = ()
        self.take(_BLANK)
        while self.at < len(self.text):
            if self.text[self.at] == "[":
                depth = 2 if self.text.startswith("[[", self.at) else 1
                self.at += depth
                table = self.key(())
                self.at += depth
            else:
                self.pair(table)
            self.take(_BLANK)
        return self.found

    def pair(self, table: Path) -> None:
        """A key and its value, below a table."""
        path = self.key(table)
        self.at += 1  # the equals sign
        self.take(_BLANK)
        self.value(path)

    def key(self, table: Path) -> Path:
        """A dotted key below a table; every part of it is noted where it is first seen."""
        path = table
        while True:
            self.take(_BLANK)
            line = self.text.count("\n", 0, self.at) + 1
            raw = self.take(_STRING) or self.take(_BARE)
            path = (*path, _unquoted(raw))
            self.found.setdefault(path, line)
            self.take(_BLANK)
            if self.text[self.at] != ".":
                return path
            self.at += 1

    def value(self, path: Path) -> None:
        """Pass over a value; the keys of an inline table are noted."""
        match self.text[self.at]:
            case "[":
                self.items("]", lambda: self.value(path))
            case "{":
                self.items("}", lambda: self.pair(path))
            case '"' | "'":
                self.take(_STRING)
            case _:
                self.take(_SCALAR)

    def items(self, end: str, one: Any) -> None:
        """What stands between brackets, separated by commas."""
        self.at += 1
        self.take(_BLANK)
        while self.text[self.at] != end:
            one()
            self.take(_BLANK)
            self.at += self.text[self.at] == ","
            self.take(_BLANK)
        self.at += 1

    def take(self, pattern: re.Pattern[str]) -> str:
        """Pass over what a pattern matches here, and give it back."""
        match = pattern.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return match.group() if match else ""


def _unquoted(raw: str) -> str:
    """A key without its quotes."""
    return str(tomllib.loads(f"key = {raw}")["key"]) if raw[0] in "\"'" else raw


def inline(value: Any) -> str:
    """A value as TOML writes it on one line.

    >>> inline({"epochs": 10, "lr": 1e-05, "names": ("a", "b")})
    '{ epochs = 10, lr = 1e-05, names = ["a", "b"] }'
    """
    match value:
        case bool():
            return str(value).lower()
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case float() if not math.isfinite(value):
            return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
        case int() | float():
            return repr(value)
        case list() | tuple():
            return f"[{', '.join(map(inline, value))}]"
        case Mapping():
            pairs = (f"{bare(k)} = {inline(v)}" for k, v in value.items() if v is not None)
            body = ", ".join(pairs)
            return f"{{ {body} }}" if body else "{}"
        case _:  # dates: TOML has them, an experiment does not
            return str(value)


def bare(key: str) -> str:
    """A key, in quotes only where it needs them."""
    return key if _BARE.fullmatch(key) else inline(key)


def write(tree: Mapping[str, Any], table: Path = ()) -> str:
    """Nested tables as TOML text, in their own order; None is left out.

    >>> print(write({"seed": 1, "train": {"lr": 0.1}}))
    seed = 1
    <BLANKLINE>
    [train]
    lr = 0.1
    <BLANKLINE>
    """
    plain = {k: v for k, v in tree.items() if v is not None and not isinstance(v, Mapping)}
    tables = {k: v for k, v in tree.items() if isinstance(v, Mapping)}
    text = "".join(f"{bare(k)} = {inline(v)}\n" for k, v in plain.items())
    if table and (plain or not tables):
        text = f"[{'.'.join(map(bare, table))}]\n{text}"
    parts = [text] if text else []
    return "\n".join([*parts, *(write(v, (*table, k)) for k, v in tables.items())])


def leaves(tree: Mapping[str, Any], above: Path = ()) -> Iterator[Path]:
    """The path of every value in nested tables.

    >>> list(leaves({"seed": 1, "train": {"lr": 0.1}}))
    [('seed',), ('train', 'lr')]
    """
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from leaves(value, (*above, key))
        else:
            yield (*above, key)
