"""LEAF's JSON: users, and for each user its samples."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from coterie.core.errors import DataError
from coterie.data.readers.raw import Array, Raw, content_of, damaged, fault, inside, reading, stack

_broken = partial(
    damaged, what="is not a LEAF file", fix="build the set again with LEAF's preprocess.sh"
)


def read_leaf(path: Path) -> Raw:
    """A folder with train/*.json and test/*.json, a folder of such files, or one file.

    A row's owner is its user.
    """
    if path.is_file():
        return _part([path])
    divided = (path / "train").is_dir()
    train = _part(_files(path / "train" if divided else path, path))
    test = _files(path / "test", path) if divided and (path / "test").is_dir() else []
    return train.tested(_part(test)) if test else train


def _files(folder: Path, root: Path) -> list[Path]:
    """The JSON files of a folder, none of them outside of the root."""
    with reading(folder):
        return [inside(file, root) for file in sorted(folder.glob("*.json"))]


def _part(files: list[Path]) -> Raw:
    """The samples of every user in some files."""
    x: list[Array] = []
    y: list[Any] = []
    owner: list[str] = []
    for file in files:
        content = _content(file)
        for name in content["users"]:
            rows, labels = _user(content, name, file)
            x += rows
            y += labels
            owner += [name] * len(rows)
    if not x:
        raise DataError(
            "there are no samples in " + (", ".join(map(str, files)) or "the folder"),
            code="D010",
            fix="build the set again: LEAF writes train/*.json and test/*.json",
        )
    return Raw(stack(x, "sample"), np.array(y), owner=np.array(owner, dtype=str))


def _content(file: Path) -> dict[str, Any]:
    """One file, with its list of users and their data."""
    text = content_of(file)
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise _broken(file, error.msg, f"{file}:{error.lineno}:{error.colno}") from error
    except (ValueError, RecursionError) as error:  # no UTF-8, a number of thousands of digits, ...
        raise _broken(file, error) from error
    match content:
        case {"users": [*users], "user_data": dict()} if all(isinstance(u, str) for u in users):
            return content  # type: ignore[no-any-return]
    found = ", ".join(list(content)[:9]) if isinstance(content, dict) else type(content).__name__
    raise _broken(file, f"expected users (a list) and user_data (a table), found {found}")


def _user(content: dict[str, Any], name: str, file: Path) -> tuple[list[Array], list[Any]]:
    """The samples and labels of one user, checked against each other."""
    where = f"{file}, user {name}"
    match content["user_data"].get(name):
        case {"x": [*x], "y": [*y]}:
            pass
        case None:
            raise _broken(file, "the user is listed and has no user_data", where)
        case _:
            raise _broken(file, "expected x and y, two lists", where)
    if len(x) != len(y):
        raise fault(where, f"{len(x)} samples and {len(y)} labels", "D011", "build the set again")
    declared = dict(zip(content["users"], content.get("num_samples", []), strict=False))
    if declared.get(name, len(x)) != len(x):
        what = f"num_samples says {declared[name]}, user_data holds {len(x)}"
        raise fault(where, what, "D008", "build the set again: the file is not whole")
    for label in y:
        if not isinstance(label, int | float | str):
            what = f"the label {label!r} is neither a number nor a word"
            raise fault(where, what, "D012", "label every sample")
    return [_sample(row, where) for row in x], y


def _sample(row: Any, where: str) -> Array:
    """One sample as an array."""
    try:
        with np.errstate(over="ignore"):  # what does not fit is found with what is not a number
            return np.asarray(row, dtype=np.float32)
    except (ValueError, TypeError) as error:
        fix = "give every sample as numbers; words must be encoded first"
        raise fault(where, "a sample is not a list of numbers", "D013", fix, str(error)) from error
