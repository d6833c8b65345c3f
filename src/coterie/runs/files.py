"""The files of a run's folder, which may have been damaged, moved or sent by somebody."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from coterie.core.errors import CheckpointError, CoterieError
from coterie.core.reading import DAMAGE, read_bytes, reason


@contextmanager
def understanding(path: Path) -> Iterator[None]:
    """Inside it a file of a run is read; what its damage raises becomes one error with its name.

    Every file of a run's or a comparison's folder is read inside of one.
    """
    try:
        yield
    except CoterieError:
        raise
    except OSError as cause:
        raise CheckpointError(
            f"{path} cannot be read",
            code="K017",
            why=reason(cause),
            fix="check the file and its permissions, or take it from a copy of the run",
        ) from cause
    except DAMAGE as cause:
        raise CheckpointError(
            f"{path} is damaged",
            code="K018",
            why=reason(cause),
            fix="put it back from a copy of the run; what other files hold can still be used",
        ) from cause


def text_of(path: Path) -> str:
    """The text of a file."""
    with understanding(path):
        return read_bytes(path).decode()


def toml_of(path: Path) -> dict[str, Any]:
    """The tree of a TOML file."""
    with understanding(path):
        return tomllib.loads(read_bytes(path).decode())


def json_of(path: Path) -> dict[str, Any]:
    """The object in a JSON file."""
    with understanding(path):
        found = json.loads(read_bytes(path))
        if not isinstance(found, Mapping):
            raise TypeError(f"it holds a {type(found).__name__}, not an object")
        return dict(found)
