"""An answer from outside is looked at before a number of it is used. Nothing here knows Flower."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from coterie.core.answers import AnswerForm, Form

KINDS = {"float32": 4, "float64": 8, "int64": 8, "bool": 1}  # what a tensor of ours can be
AXES = 8
SAMPLES = 10**9  # more than this is no count of samples
NAMES = 64  # arrays in one answer
HEADERS = {  # of numpy's format, by version
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


class RefusedError(ValueError):
    """Why an answer cannot be used, in words for the events and the terminal: a client's own words
    among them are shown, never obeyed."""

    def __init__(self, why: str) -> None:
        super().__init__(printable(why))


class NotFiniteError(RefusedError):
    """Numbers of an answer are not finite, as when training diverges."""


class Packed(Protocol):
    """An array as it arrives: what it says of itself, and bytes in numpy's format."""

    dtype: str  # name of the kind of number
    shape: tuple[int, ...]
    stype: str  # how the bytes were made
    data: bytes


@dataclass(frozen=True)
class Address:
    """What a question and its answer are about; an answer to anything else is refused."""

    experiment: str
    purpose: str
    round: int
    call: int
    client: str


def tensors(
    arrays: Mapping[str, Packed], expected: AnswerForm | None, limit: int
) -> dict[str, Tensor]:
    """The arrays of an answer, each checked from its header before memory is taken for it."""
    if len(arrays) > NAMES:
        raise RefusedError(f"{len(arrays)} arrays, at most {NAMES} are taken")
    if expected is not None and arrays.keys() != expected.keys():
        missing = sorted(expected.keys() - arrays.keys())
        extra = sorted(arrays.keys() - expected.keys())
        raise RefusedError(f"expected {sorted(expected)}, missing {missing}, unknown {extra}")
    found: dict[str, Tensor] = {}
    for name, packed in arrays.items():
        form = expected[name] if expected is not None else None
        found[name] = tensor(name, packed, form, limit)
        limit -= found[name].nbytes  # for all of them together
    return found


def size_of(forms: AnswerForm) -> int:
    """How many bytes arrays of these forms have; 0 where a length is not known beforehand.

    >>> size_of({"value": Form("float32", (8, 3)), "extra.n": Form("int64", ())})
    104
    >>> size_of({"value": Form("float32", (None, 3))})
    0
    """
    total = 0
    for form in forms.values():
        known = [n for n in form.shape if n is not None]
        if len(known) < len(form.shape):
            return 0
        total += KINDS[form.dtype] * math.prod(known)
    return total


def tensor(name: str, packed: Packed, expected: Form | None, limit: int) -> Tensor:
    """One array: what it declares, what its header declares and how long it is must agree."""
    declared = form(name, packed.dtype, packed.shape)
    sizes = lengths(name, declared.shape)
    if packed.stype != "numpy.ndarray":
        raise RefusedError(f"{name}: stored as {packed.stype!r:.80}, expected numpy.ndarray")
    if expected is not None and not expected.fits(declared):
        raise RefusedError(f"{name} expected {expected}, got {declared}")
    size = KINDS[declared.dtype] * math.prod(sizes)
    if size > limit:
        raise RefusedError(f"{name}: {size:,} bytes declared, at most {limit:,} are taken")
    data = packed.data
    if not isinstance(data, bytes) or len(data) > size + 65536:
        raise RefusedError(f"{name}: {len(data):,} bytes came for {size:,} declared")
    start = header(name, data, declared)
    if len(data) - start != size:
        raise RefusedError(f"{name}: {len(data) - start:,} bytes came for {size:,} declared")
    numbers = np.frombuffer(data, dtype=declared.dtype, offset=start).reshape(sizes)
    return torch.from_numpy(numbers.copy())


def form(name: str, dtype: Any, shape: Any) -> Form:
    """A kind of number and a shape that can be meant."""
    if not isinstance(dtype, str) or dtype not in KINDS:
        raise RefusedError(f"{name}: {dtype!r:.80} is no kind of number that is taken")
    return Form(dtype, lengths(name, shape))


def lengths(name: str, shape: Any) -> tuple[int, ...]:
    """A shape that can be meant."""
    sizes = tuple(shape) if isinstance(shape, tuple | list) else None
    if sizes is None or len(sizes) > AXES or not all(type(s) is int and s >= 0 for s in sizes):
        raise RefusedError(f"{name}: {shape!r:.80} is no shape")
    return sizes


def header(name: str, data: bytes, declared: Form) -> int:
    """Where the numbers begin; the header must declare what the record does."""
    file = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)
        if version not in HEADERS:
            raise RefusedError(f"{name}: its header has version {version}")
        shape, fortran, dtype = HEADERS[version](file, max_header_size=4096)
    except RefusedError:
        raise
    except Exception as cause:  # whatever a parser makes of bytes from outside
        raise RefusedError(f"{name}: its header cannot be read") from cause
    found = Form(str(dtype), tuple(shape))
    plain = not fortran or len(shape) < 2
    if found != declared or not plain or not dtype.isnative:
        raise RefusedError(f"{name}: its header says {found}, its record {declared}")
    return file.tell()


def samples(count: Any, declared: int | None = None) -> int:
    """A number of samples: whole, positive, and the one the client declared when it came."""
    if type(count) is not int or not 0 < count <= SAMPLES:
        raise RefusedError(f"{count!r:.80} is no number of samples")
    if declared is not None and count != declared:
        raise RefusedError(f"it answers for {count:,} samples and declared {declared:,}")
    return count


def address(found: Mapping[str, Any], expected: Address) -> None:
    """Refuse an answer to another question."""
    for name, want in vars(expected).items():
        got = found.get(name)
        if type(got) is not type(want) or got != want:
            raise RefusedError(f"its {name} is {got!r:.80}, expected {want!r}")


def printable(words: Any, longest: int = 500) -> str:
    """Words from outside as one line that no terminal takes for a command.

    >>> printable("a\\x1b[2Jb\\nc")
    'a\\\\x1b[2Jb c'
    """
    line = " ".join(str(words)[: 4 * longest].split())
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)[:longest]


def text(value: Any, what: str, longest: int = 200) -> str:
    """A short text of one line."""
    if not isinstance(value, str) or not value or len(value) > longest or not value.isprintable():
        raise RefusedError(f"{what} is no short text")
    return value
