"""IDX files, plain or gzip: MNIST, Fashion-MNIST, EMNIST."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import IO, cast

import numpy as np

from coterie.core.errors import DataError
from coterie.data.readers.class_names import EMNIST
from coterie.data.readers.formats import IDX_IMAGES
from coterie.data.readers.raw import Array, Raw, bounded, damaged, reading, unfit

AGAIN = "download the file again"
_CHUNK = 2**24  # read in pieces: a header may promise more than there is


def read_idx(path: Path, *, split: str | None = None) -> Raw:
    """A folder of IDX files, or one file of images beside its labels.

    `split` chooses among EMNIST's (byclass, bymerge, balanced, letters, digits, mnist); left out,
    it is byclass, or the only one there is. EMNIST's images lie on their side and are put upright.
    """
    if path.is_file():
        match = IDX_IMAGES.fullmatch(path.name)
        x, y = _pair(path)
        return _upright(Raw(x, y), match["split"] if match else None)
    with reading(path):
        found = [m for file in sorted(path.iterdir()) if (m := IDX_IMAGES.fullmatch(file.name))]
    kind = _split(path, sorted({m["split"] or "" for m in found}), split)
    parts = {m["part"]: path / m[0] for m in found if (m["split"] or "") == kind}
    if "train" not in parts:
        why = f"it holds {', '.join(p.name for p in parts.values())}"
        fix = "put train-images-idx3-ubyte and train-labels-idx1-ubyte there"
        raise unfit(path, "holds no training images", "D009", fix, why)
    test = parts.get("t10k") or parts.get("test")
    raw = Raw(*_pair(parts["train"]), *(_pair(test) if test else ()))
    return _upright(raw, kind or None)


def read_array(path: Path, axes: int) -> Array:
    """The unsigned bytes of one IDX file with so many axes, checked against its header."""
    try:
        with reading(path), _open(path) as file:
            head = file.read(4 + 4 * axes)
            expected = bytes((0, 0, 8, axes))
            if head[:4] != expected:
                why = f"expected {expected.hex(' ')}, found {head[:4].hex(' ') or 'nothing'}"
                what = f"does not begin as an IDX file of bytes with {axes} axes"
                raise damaged(path, why, f"{path}, bytes 0-3", what=what, fix=AGAIN)
            if len(head) < 4 + 4 * axes:
                raise _length(path, 4 + 4 * axes, len(head), "its header is cut off")
            shape = tuple(int(n) for n in np.frombuffer(head, ">u4", offset=4))
            count = bounded(int(np.prod(shape, dtype=object)), str(path))
            body = _body(file, count + 1)  # one more than needed, to notice a surplus
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise damaged(path, error, what="is a damaged gzip file", fix=AGAIN) from error
    if len(body) != count:
        raise _length(path, len(head) + count, len(head) + len(body), f"its header says {shape}")
    return np.frombuffer(body, np.uint8).reshape(shape)


def _open(path: Path) -> IO[bytes]:
    """A file opened for reading, unpacked if it is packed."""
    return cast(IO[bytes], gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def _body(file: IO[bytes], count: int) -> bytearray:
    """At most so many bytes of what is left of a file."""
    body = bytearray()
    while len(body) < count and (piece := file.read(min(_CHUNK, count - len(body)))):
        body += piece
    return body


def _length(path: Path, expected: int, found: int, why: str) -> DataError:
    """The error about a file that is longer or shorter than it should be."""
    more = "at least " if found > expected else ""
    return DataError(
        f"{path} should have {expected:,} bytes and has {more}{found:,}",
        code="D008",
        where=f"{path}, byte {min(expected, found):,}",
        why=why,
        fix=AGAIN,
    )


def _pair(images: Path) -> tuple[Array, Array]:
    """Images and their labels, from the file of images and the one beside it."""
    name = images.name.removesuffix(".gz").replace("images", "labels").replace("idx3", "idx1")
    plain, packed = images.with_name(name), images.with_name(f"{name}.gz")
    x, y = read_array(images, 3), read_array(plain if plain.exists() else packed, 1)
    if len(x) != len(y):
        what = f"holds {len(x):,} images, {name} {len(y):,} labels"
        raise unfit(images, what, "D011", "download both files again: they are not of one set")
    return x, y


def _split(path: Path, present: list[str], wanted: str | None) -> str:
    """Which of EMNIST's splits is meant; empty for a set without splits."""
    default = "byclass" if "byclass" in present else ""
    choice = wanted if wanted is not None else default if default in present else None
    if choice is None and len(present) == 1:
        choice = present[0]
    if choice not in present:
        what = f"holds no split '{wanted}'" if wanted else "holds several splits"
        why = f"it holds {', '.join(name or 'a set without splits' for name in present)}"
        fix = f'say split="{present[0]}"' if present[0] else "leave the split out"
        raise unfit(path, what, "D009", fix, why)
    return choice


def _upright(raw: Raw, split: str | None) -> Raw:
    """EMNIST's images put upright, and its labels counted from 0; other sets as they are."""
    if split is None:
        return raw
    x_test = None if raw.x_test is None else raw.x_test.swapaxes(1, 2)
    first = 1 if split == "letters" else 0  # the only split whose labels begin at 1
    y_test = None if raw.y_test is None else raw.y_test - first
    classes = EMNIST.get(split)
    return Raw(raw.x.swapaxes(1, 2), raw.y - first, x_test, y_test, classes=classes)
