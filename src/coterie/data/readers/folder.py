"""A folder of class folders: photos/cat/1.jpg, photos/dog/2.jpg."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal

import numpy as np

from coterie.core.errors import DataError
from coterie.data.readers.formats import IMAGES
from coterie.data.readers.raw import Array, Raw, bounded, inside, reading, unfit

if TYPE_CHECKING:
    from PIL import Image

PIXELS = 2**26  # of one image; a small file can unfold into any number of them

# Only formats that Pillow decodes itself: EPS, for one, would start another program.
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
_GRAY = ("1", "L", "LA", "La")
_COLOUR = ("RGB", "RGBA", "RGBa", "RGBX", "P", "PA", "CMYK", "YCbCr", "LAB", "HSV")

Size = int | tuple[int, int]
Source = Path | IO[bytes]


def read_folder(
    path: Path,
    *,
    size: Size | None = None,
    gray: bool | None = None,
    owner: Literal["folder"] | None = None,
) -> Raw:
    """Images in one folder per class, the folder's name being the class; `train` and `test`
    subfolders are honoured. `size` resizes to (H, W); `gray` drops the colours (left out, an image
    set is gray if every image of it is). With `owner = "folder"` there is one folder per owner, and
    in each of them one per class."""
    parts = [path / "train", path / "test"] if (path / "train").is_dir() else [path]
    listed = [_of_owners(part, path, owner is not None) for part in parts if part.is_dir()]
    train = listed[0]
    empty = [home for home, classes in train.items() if not classes]
    empty += [home / name for home, found in train.items() for name, f in found.items() if not f]
    if not train or empty:
        raise DataError(
            f"{empty[0] if empty else parts[0]} holds no images",
            code="D010",
            where=str(parts[0]),
            why="every subfolder is a class and holds its images: " + ", ".join(sorted(IMAGES)),
            fix="put images into it, or remove it",
        )
    known = list(dict.fromkeys(name for found in train.values() for name in found))
    for part in listed[1:]:
        for home, found in part.items():
            if strange := [name for name in found if name not in known]:
                raise DataError(
                    f"the class '{strange[0]}' is in the test folder only",
                    code="D019",
                    where=str(home / strange[0]),
                    why=f"the training folder has the classes {', '.join(known)}",
                    fix="give the folder the same name in both, or remove it",
                )
    rows = [
        [
            (home.name, name, file)
            for home, found in part.items()
            for name in found
            for file in found[name]
        ]
        for part in listed
    ]
    x = decoded([file for part in rows for *_, file in part], size, gray)
    whose, y, _ = (np.array(column) for column in zip(*chain(*rows), strict=True))
    cut, owned = len(rows[0]), None if owner is None else whose
    raw = Raw(x[:cut], y[:cut], owner=None if owned is None else owned[:cut], channels="last")
    if len(x) == cut:
        return raw
    return raw.tested(Raw(x[cut:], y[cut:], owner=None if owned is None else owned[cut:]))


def decoded(
    files: Sequence[Source],
    size: Size | None = None,
    gray: bool | None = None,
    names: list[str] | None = None,
) -> Array:
    """(N, H, W, C) bytes of images of one size; all are looked at before any is decoded."""
    from PIL import Image  # here and below: most data need no Pillow

    names = names or [str(file) for file in files]
    modes, sizes = [], []
    for file, name in zip(files, names, strict=True):
        with _opened(file, name) as image:
            modes.append(image.mode)
            sizes.append(image.size)
    if gray is None:
        gray = all(mode in _GRAY for mode in modes)
    odd = next((i for i, found in enumerate(sizes) if found != sizes[0]), None)
    if size is None and odd is not None:
        (w, h), (w0, h0) = sizes[odd], sizes[0]
        why = "all images of a set have one size (height x width)"
        least = min(min(found) for found in sizes)
        fix = (
            f"resize them while reading: data.size={least} (in Python: size={least});\n"
            f"data.size=[{h0},{w0}] says height and width"
        )
        raise unfit(names[odd], f"is {h}x{w} pixels, the first image {h0}x{w0}", "D016", fix, why)
    height, width = _size(size) if size is not None else sizes[0][::-1]
    channels = 1 if gray else 3
    bounded(len(files) * height * width * channels, f"{len(files):,} images")
    x = np.empty((len(files), height, width, channels), np.uint8)
    for i, (file, name) in enumerate(zip(files, names, strict=True)):
        with _opened(file, name) as image:
            converted = _converted(image, name, "L" if gray else "RGB")
            if converted.size != (width, height):
                converted = converted.resize((width, height), Image.Resampling.BILINEAR)
            x[i] = np.asarray(converted).reshape(height, width, channels)
    return x


def _opened(file: Source, name: str) -> Image.Image:
    """An image with its header read and its size checked."""
    if not isinstance(file, Path):
        file.seek(0)
    from PIL import Image

    with _decoding(name):
        image = Image.open(file, formats=_FORMATS)
    if image.width * image.height > PIXELS:
        size = f"{image.width}x{image.height}"
        image.close()
        raise _undecoded(name, f"it unfolds to {size}, more than {PIXELS:,} pixels")
    return image


@contextmanager
def _decoding(name: str) -> Iterator[None]:
    """Inside it only Pillow runs, which may raise nearly anything at a damaged file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about damaged metadata, and a bound of its own
            yield
    except Exception as error:
        raise _undecoded(name, f"{type(error).__name__}: {error}") from error


def _undecoded(name: str, why: str) -> DataError:
    """The error about a file that is no image that can be read."""
    return unfit(name, "cannot be decoded as an image", "D015", "repair or remove the file", why)


def _converted(image: Image.Image, name: str, mode: str) -> Image.Image:
    """A decoded image, gray or in colours."""
    if image.mode not in _GRAY + _COLOUR:
        raise _undecoded(name, f"its pixels are of mode {image.mode}, expected 8 bits per channel")
    with _decoding(name):
        image.load()
        return image if image.mode == mode else image.convert(mode)


def _size(size: Size) -> tuple[int, int]:
    """Height and width of the images that are wanted."""
    pair = (size, size) if isinstance(size, int) else tuple(size)
    if len(pair) != 2 or not all(isinstance(n, int) and 0 < n <= 2**13 for n in pair):
        raise DataError(
            f"size = {size!r} cannot be meant",
            code="D004",
            fix="size is a number of pixels, or a pair (height, width)",
        )
    return pair[0], pair[1]


def _of_owners(folder: Path, root: Path, owned: bool) -> dict[Path, dict[str, list[Path]]]:
    """The classes in each owner's folder; without owners, in the folder itself."""
    if not owned:
        classes = _listed(folder, root)
        return {folder: classes} if classes else {}
    with reading(folder):
        homes = sorted(e for e in folder.iterdir() if e.is_dir() and e.name[0] != ".")
        return {home: _listed(inside(home, root), root) for home in homes}


def _listed(folder: Path, root: Path) -> dict[str, list[Path]]:
    """The image files of each class, both in the order of their names."""
    with reading(folder):
        classes = sorted(
            entry for entry in folder.iterdir() if entry.is_dir() and entry.name[0] != "."
        )
        return {_class(entry): list(_images(inside(entry, root), root)) for entry in classes}


def _class(folder: Path) -> str:
    """The class that a folder is of: its name, which must be text."""
    try:
        folder.name.encode()
    except UnicodeEncodeError as error:
        why = f"its bytes are {os.fsencode(folder.name)!r}, which is not UTF-8"
        raise unfit(folder, "has a name that is no text", "D012", "rename it", why) from error
    return folder.name


def _images(folder: Path, root: Path) -> Iterator[Path]:
    """The images below a folder, none of them outside of the root."""
    for entry in sorted(os.scandir(folder), key=lambda e: e.name):
        path = Path(entry.path)
        if entry.is_symlink():
            inside(path, root)
        if entry.name.startswith("."):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _images(path, root)
        elif path.suffix.lower() in IMAGES and entry.is_file():
            yield path
