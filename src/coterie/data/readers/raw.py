"""What a reader hands over: arrays as they were stored, before they are given their form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.errors import DataError
from coterie.core.reading import expect_file_or_folder, reason

Array = NDArray[Any]

LIMIT = 8 * 2**30  # bytes a source may decode to; a file that declares more is refused


@dataclass(frozen=True)
class Raw:
    """Samples and labels as stored. Labels and owners are integers or words."""

    x: Array  # (N, ...)
    y: Array  # (N,)
    x_test: Array | None = None
    y_test: Array | None = None
    owner: Array | None = None  # (N,)
    owner_test: Array | None = None
    classes: tuple[str, ...] | None = None  # the names of labels 0..K-1, where they are known
    peak: float | None = None
    channels: str | None = None  # "first" or "last", where the format fixes it
    about: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # column, owner: value

    def tested(self, other: Raw) -> Raw:
        """The same with another source's samples as the test set."""
        return replace(self, x_test=other.x, y_test=other.y, owner_test=other.owner)


def fault(where: str, what: str, code: str, fix: str, why: str = "") -> DataError:
    """The error about one place in a source: where it is, and what is wrong there."""
    return DataError(f"{where}: {what}", code=code, where=where, why=why, fix=fix)


def unfit(source: Path | str, what: str, code: str, fix: str, why: str = "") -> DataError:
    """The error about a whole source: which it is, and what is wrong with it."""
    return DataError(f"{source} {what}", code=code, where=str(source), why=why, fix=fix)


def damaged(path: Path | str, why: object, where: str = "", *, what: str, fix: str) -> DataError:
    """The error about a file that is not what it should be."""
    return DataError(f"{path} {what}", code="D007", where=where or str(path), why=str(why), fix=fix)


@contextmanager
def reading(path: Path | str) -> Iterator[None]:
    """Inside it a refusal by the operating system becomes a `DataError` that names the path.

    A pipe or a device is refused before anything opens it, and waits.
    """
    try:
        expect_file_or_folder(path)
        yield
    except FileNotFoundError as error:
        raise unfit(path, "is missing", "D009", "put the file there") from error
    except OSError as error:
        fix = "check the file and its permissions"
        raise unfit(path, "cannot be read", "D023", fix, reason(error)) from error


def bounded(count: int, where: str) -> int:
    """The same number of bytes, if it is within the limit."""
    if count > LIMIT:
        what = f"declares {count:,} bytes of data, more than the limit of {LIMIT:,}"
        why = "so much cannot be meant: the file is damaged or made to exhaust memory"
        fix = "check where the file comes from; raise coterie.data.readers.raw.LIMIT if it is meant"
        raise unfit(where, what, "D006", fix, why)
    return count


def content_of(path: Path) -> bytes:
    """All the bytes of a file, if they are within the limit."""
    with reading(path):
        bounded(path.stat().st_size, str(path))
        return path.read_bytes()


def inside(path: Path, root: Path) -> Path:
    """The same path, if it does not lead out of its folder through a link or `..`."""
    try:
        target = path.resolve()
    except (OSError, RuntimeError) as error:  # a link to itself
        fix = "remove the link, or copy what it should lead to"
        raise unfit(path, "leads nowhere", "D017", fix, reason(error)) from error
    if not target.is_relative_to(root.resolve()):
        why = f"it points to {target}, outside {root}"
        raise unfit(path, "leads out of its folder", "D017", "copy the files into the folder", why)
    return path


def stack(rows: list[Array], at: str) -> Array:
    """(N, ...) of samples that must agree in shape; `at` names what a row is."""
    shapes = [row.shape for row in rows]
    odd = next((i for i, shape in enumerate(shapes) if shape != shapes[0]), None)
    if odd is not None:
        raise DataError(
            f"{at} {odd} has shape {shapes[odd]}, the first has {shapes[0]}",
            code="D014",
            where=f"{at} {odd}",
            why="all samples of a set have one shape",
            fix="crop, pad or leave out the samples that differ",
        )
    return np.stack(rows) if rows else np.empty((0,))
