"""An answer from outside is looked at before a number of it is used. Nothing here knows Flower."""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from coterie.engines.front import not_finite

KINDS = {"float32": 4, "float64": 8, "int64": 8, "bool": 1}  # what a tensor of ours can be
AXES = 8
SAMPLES = 10**9  # more than this is no count of samples
NAMES = 64  # arrays in one answer
HEADERS = {  # of numpy's format, by version
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}

Form = tuple[str, tuple[int, ...]]  # dtype and shape
Forms = Mapping[str, Form]


class RefusedError(ValueError):
    """Why an answer cannot be used, in words for the events."""


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


def tensors(arrays: Mapping[str, Packed], expected: Forms | None, limit: int) -> dict[str, Tensor]:
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


def size_of(forms: Forms) -> int:
    """How many bytes arrays of these forms have.

    >>> size_of({"value": ("float32", (8, 3)), "extra.n": ("int64", ())})
    104
    """
    return sum(KINDS[dtype] * math.prod(shape) for dtype, shape in forms.values())


def tensor(name: str, packed: Packed, expected: Form | None, limit: int) -> Tensor:
    """One array: what it declares, what its header declares and how long it is must agree."""
    declared = form(name, packed.dtype, packed.shape)
    if packed.stype != "numpy.ndarray":
        raise RefusedError(f"{name}: stored as {packed.stype!r:.80}, expected numpy.ndarray")
    if expected is not None and declared != expected:
        raise RefusedError(f"{name} expected {shown(expected)}, got {shown(declared)}")
    size = KINDS[declared[0]] * math.prod(declared[1])
    if size > limit:
        raise RefusedError(f"{name}: {size:,} bytes declared, at most {limit:,} are taken")
    data = packed.data
    if not isinstance(data, bytes) or len(data) > size + 65536:
        raise RefusedError(f"{name}: {len(data):,} bytes came for {size:,} declared")
    start = header(name, data, declared)
    if len(data) - start != size:
        raise RefusedError(f"{name}: {len(data) - start:,} bytes came for {size:,} declared")
    numbers = np.frombuffer(data, dtype=declared[0], offset=start).reshape(declared[1])
    return torch.from_numpy(numbers.copy())


def form(name: str, dtype: Any, shape: Any) -> Form:
    """A kind of number and a shape that can be meant."""
    if not isinstance(dtype, str) or dtype not in KINDS:
        raise RefusedError(f"{name}: {dtype!r:.80} is no kind of number that is taken")
    sizes = tuple(shape) if isinstance(shape, tuple | list) else None
    if sizes is None or len(sizes) > AXES or not all(type(s) is int and s >= 0 for s in sizes):
        raise RefusedError(f"{name}: {shape!r:.80} is no shape")
    return dtype, sizes


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
    found = (str(dtype), tuple(shape))
    plain = not fortran or len(shape) < 2
    if found != declared or not plain or not dtype.isnative:
        raise RefusedError(f"{name}: its header says {shown(found)}, its record {shown(declared)}")
    return file.tell()


def shown(what: Form) -> str:
    """A form for people.

    >>> shown(("float32", (8, 3)))
    '(8, 3) float32'
    """
    return f"{what[1]} {what[0]}"


def form_of(t: Tensor) -> Form:
    """The form of a tensor.

    >>> form_of(torch.zeros(2, 3))
    ('float32', (2, 3))
    """
    return str(t.dtype).removeprefix("torch."), tuple(t.shape)


def finite(values: Mapping[str, Tensor]) -> None:
    """Refuse numbers that are not finite, with their count."""
    if fault := not_finite(values):
        raise NotFiniteError(fault)


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


def text(value: Any, what: str, longest: int = 200) -> str:
    """A short text of one line."""
    if not isinstance(value, str) or not value or len(value) > longest or not value.isprintable():
        raise RefusedError(f"{what} is no short text")
    return value


def odd_ones(answers: Mapping[int, Mapping[str, Tensor]]) -> dict[int, str]:
    """Those whose answers do not have the form that most have, and how they differ.

    Answers are stacked, so they must be alike. Where the form is known beforehand this finds
    nothing; a tie is decided for the client asked first.
    """
    kinds = {i: tuple(sorted((n, form_of(t)) for n, t in a.items())) for i, a in answers.items()}
    if len(set(kinds.values())) < 2:
        return {}
    usual = Counter(kinds.values()).most_common(1)[0][0]

    def words(kind: tuple[tuple[str, Form], ...]) -> str:
        return ", ".join(f"{name} {shown(f)}" for name, f in kind)

    return {
        i: f"expected {words(usual)} as most sent, got {words(kind)}"
        for i, kind in kinds.items()
        if kind != usual
    }
