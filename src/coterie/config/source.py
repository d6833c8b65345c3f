"""What the user wrote: a file's text, and the settings given on the command line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path as File
from typing import Any

from coterie.config import toml
from coterie.config.problems import Path
from coterie.core.errors import ConfigError
from coterie.core.reading import read_bytes, reason
from coterie.core.shell import command
from coterie.core.suggest import closest

COMMAND_LINE = "command line"
DEEPEST = 32  # levels of tables and lists in each other: no setting has as many
SYNTAX = {  # a word of tomllib's message, and what to do about it
    "overwrite": "keep one of the two",
    "twice": "keep one of the two",
    "invalid value": 'put texts in quotes: name = "cnn-s"',
    "unclosed": "close the bracket",
    "']'": "close the bracket",
    "unterminated": "close the quotes",
    "": 'a key and its value are written key = value, texts in quotes: name = "cnn-s"',
}


@dataclass
class Written:
    """The settings as given, before any default, and where each was given: a line, or a word."""

    name: str
    tree: dict[str, Any] = field(default_factory=dict)
    places: dict[Path, int | str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def read(file: File | str) -> Written:
    """What an experiment file says, not yet checked."""
    name = str(file)
    try:
        text = read_bytes(File(file)).decode()
    except FileNotFoundError as cause:
        folder = File(file).absolute().parent
        found = sorted(p.name for p in folder.glob("*.toml")) if folder.is_dir() else []
        other = closest(File(file).name, found)
        raise ConfigError(
            f"there is no file {name}",
            code="C010",
            where=str(folder),
            fix=f"name {other}, which is there"
            if other
            else f"write one: `{command('init', name)}`",
        ) from cause
    except UnicodeDecodeError as cause:
        raise ConfigError(
            f"{name} is not a text file",
            code="C010",
            why=f"byte {cause.start + 1} is not UTF-8",
            fix="save it as UTF-8 text",
        ) from cause
    except OSError as cause:
        raise ConfigError(
            f"{name} cannot be read: {reason(cause)}",
            code="C010",
            fix="name an experiment file (TOML)",
        ) from cause
    return parse(text, name)


def parse(text: str, name: str) -> Written:
    """What the text of an experiment file says, not yet checked."""
    try:
        tree = _frozen(tomllib.loads(text))
    except tomllib.TOMLDecodeError as cause:
        raise syntax_error(text, name, str(cause)) from cause
    except (RecursionError, ValueError) as cause:  # brackets in brackets; a date that is none
        what = "it is nested too deeply" if isinstance(cause, RecursionError) else str(cause)
        raise ConfigError(
            f"{name} is not valid TOML",
            code="C011",
            why=what,
            fix="write it as `coterie init` does",
        ) from cause
    return Written(name, tree, dict(toml.lines(text)))


def syntax_error(text: str, name: str, message: str) -> ConfigError:
    """Where a text stops being TOML, with the line shown and the place marked."""
    rows = text.splitlines() or [""]
    at = re.search(r" \(at (?:line (\d+), column (\d+)|end of document)\)", message)
    line, column = (int(at[1]), int(at[2])) if at and at[1] else (len(rows), len(rows[-1]) + 1)
    shown = rows[line - 1] if line <= len(rows) else ""
    what = message[: at.start()] if at else message
    return ConfigError(
        f"{name} is not valid TOML",
        code="C011",
        where=f"{name}:{line}:{column}\n{shown}\n{' ' * (column - 1)}^",
        why=what[:1].lower() + what[1:],
        fix=next(fix for word, fix in SYNTAX.items() if word in what.lower()),
    )


def override(written: Written, key: str, value: Any) -> None:
    """Set one dotted key from the command line; it stands above the file."""
    path = tuple(key.split("."))
    if path == ("partition", "kind"):
        _forget(written, path[:1], keep=("clients",), why=f"partition.kind = {toml.inline(value)}")
    if path == ("method",):
        old = written.tree.get("method")
        for name in old if isinstance(old, tuple) else (old,):
            if isinstance(name, str) and name != value:
                _forget(written, (name,), why=f"method = {toml.inline(value)}")
    table = written.tree
    for depth, part in enumerate(path[:-1], 1):
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise _no_table(path, depth, table)
    table[path[-1]] = _frozen(value)
    written.places[path] = COMMAND_LINE


def _no_table(path: Path, depth: int, value: Any) -> ConfigError:
    """The error about a key below a value: whichever of the two is meant, it is not dropped."""
    name, key = ".".join(path[:depth]), ".".join(path)
    fix = (
        f"write {name}.kind = {toml.inline(value)}" if name == "partition" else f"leave out {name}"
    )
    return ConfigError(
        f"{name} = {toml.inline(value)} is no table, and {key} is a key of one",
        code="C012",
        fix=fix,
    )


def _forget(written: Written, path: Path, why: str, keep: Sequence[str] = ()) -> None:
    """Leave out what the file says for something the command line has replaced."""
    table = written.tree.get(path[0])
    if isinstance(table, dict):
        for key in [k for k in table if k not in keep]:
            if written.places.get((*path, key)) != COMMAND_LINE:
                del table[key]
                if key != "kind":
                    place = f"{written.name}:{written.places.get((*path, key))}"
                    written.notes.append(f"{path[0]}.{key} of {place} left out: {why} was given")
        if not table:
            del written.tree[path[0]]


def assignment(text: str) -> tuple[str, Any]:
    """A `key=value` of the command line; the value is TOML, or else a bare word.

    >>> assignment("train.rounds=50"), assignment("partition.kind=dirichlet:0.3")
    (('train.rounds', 50), ('partition.kind', 'dirichlet:0.3'))
    """
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not re.fullmatch(r"[\w-]+(\.[\w-]+){,9}", key):
        raise ConfigError(
            f"{text!r} is not a setting",
            code="C013",
            where=COMMAND_LINE,
            fix="write key=value with the table before the key: train.rounds=50",
        )
    return key, word(value)


def word(text: str) -> Any:
    """A value of the command line: TOML, or else the text as it stands."""
    try:
        tree = tomllib.loads(f"value = {text}")
        _frozen(tree)
    except (RecursionError, ValueError):
        return text
    return tree["value"] if len(tree) == 1 else text


def _frozen(value: Any, left: int = DEEPEST) -> Any:
    """Lists as tuples, all the way down; what is deeper than any setting is left to nobody else."""
    if not left:
        raise RecursionError
    if isinstance(value, Mapping):
        return {k: _frozen(v, left - 1) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return tuple(_frozen(v, left - 1) for v in value)
    return value
