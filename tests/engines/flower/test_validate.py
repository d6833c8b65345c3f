"""What comes from outside is refused, or is exactly what it says it is; nothing else happens."""

from __future__ import annotations

import io
import tracemalloc
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.core.answers import Form, form_of
from coterie.engines.flower import validate
from coterie.engines.flower.validate import Address, RefusedError

LIMIT = 1 << 20
KINDS = st.sampled_from(sorted(validate.KINDS))
SHAPES = st.lists(st.integers(0, 5), max_size=3).map(tuple)


@dataclass
class Record:
    """An array as it arrives."""

    dtype: Any
    shape: Any
    stype: Any
    data: Any


def stored(array: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@st.composite
def records(draw: st.DrawFn) -> Record:
    kind, shape = draw(KINDS), draw(SHAPES)
    numbers = np.arange(int(np.prod(shape))).reshape(shape).astype(kind)
    return Record(kind, shape, "numpy.ndarray", stored(numbers))


@given(records())
def test_an_honest_array_comes_through_to_the_bit(record: Record) -> None:
    t = validate.tensor("x", record, Form(record.dtype, record.shape), LIMIT)
    assert form_of(t) == Form(record.dtype, record.shape)
    assert stored(t.numpy()) == record.data


@given(records(), KINDS, SHAPES)
@pytest.mark.row(15, counts="malformed answers")
def test_any_other_form_than_the_expected_is_refused(
    record: Record, kind: str, shape: tuple[int, ...]
) -> None:
    if (kind, shape) == (record.dtype, record.shape):
        return
    with pytest.raises(RefusedError, match="x expected"):
        validate.tensor("x", record, Form(kind, shape), LIMIT)


@given(records(), KINDS, SHAPES)
@pytest.mark.row(15, 17, counts="malformed answers")
def test_a_record_that_lies_about_its_bytes_is_refused(
    record: Record, kind: str, shape: tuple[int, ...]
) -> None:
    if (kind, shape) == (record.dtype, record.shape):
        return
    record.dtype, record.shape = kind, shape
    with pytest.raises(RefusedError):
        validate.tensor("x", record, None, LIMIT)


@given(records(), st.data())
@pytest.mark.row(15, counts="malformed answers")
def test_cut_or_longer_bytes_are_refused(record: Record, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(record.data) - 1))
    longer = record.data + data.draw(st.binary(min_size=1, max_size=9))
    for changed in (record.data[:cut], longer):
        with pytest.raises(RefusedError):
            validate.tensor(
                "x", Record(record.dtype, record.shape, record.stype, changed), None, 99
            )


@given(records(), st.data())
def test_a_changed_byte_of_the_header_is_refused_or_harmless(
    record: Record, data: st.DataObject
) -> None:
    raw = bytearray(record.data)
    head = len(raw) - int(np.prod(record.shape)) * validate.KINDS[record.dtype]
    raw[data.draw(st.integers(0, head - 1))] = data.draw(st.integers(0, 255))
    record.data = bytes(raw)
    try:
        t = validate.tensor("x", record, None, LIMIT)
    except RefusedError:
        return
    assert form_of(t) == Form(record.dtype, record.shape)


@given(st.binary(max_size=300), KINDS, SHAPES)
def test_noise_is_refused(noise: bytes, kind: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(RefusedError):
        validate.tensor("x", Record(kind, shape, "numpy.ndarray", noise), None, LIMIT)


JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.integers())
)


@given(records(), JUNK, st.sampled_from(["dtype", "shape", "stype"]))
def test_junk_in_a_record_is_refused(record: Record, junk: Any, field: str) -> None:
    honest = list(record.shape) if field == "shape" else getattr(record, field)
    if junk == honest:
        return
    setattr(record, field, junk)
    with pytest.raises(RefusedError):
        validate.tensor("x", record, None, LIMIT)


@pytest.mark.row(17)
def test_a_huge_claim_takes_no_memory() -> None:
    """A header of 17 TiB, whether only the bytes say so or the record too."""
    lie = b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little")
    text = "{'descr': '<f4', 'fortran_order': False, 'shape': (4398046511104,), }"
    lie += text.ljust(117).encode() + b"\n" + b"\0" * 64
    for shape in ((16,), (4398046511104,)):
        record = Record("float32", shape, "numpy.ndarray", lie)
        tracemalloc.start()
        with pytest.raises(RefusedError):
            validate.tensor("x", record, None, LIMIT)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 1 << 20


@pytest.mark.row(26, counts="hostile pickles")
def test_objects_are_refused() -> None:
    file = io.BytesIO()
    np.save(file, np.array([{}], dtype=object), allow_pickle=True)
    for kind in ("object", "float32"):
        with pytest.raises(RefusedError):
            validate.tensor("x", Record(kind, (1,), "numpy.ndarray", file.getvalue()), None, LIMIT)


@pytest.mark.parametrize("count", [0, -1, 1.0, float("nan"), True, None, "7", 10**10])
@pytest.mark.row(16, counts="false numbers of samples")
def test_what_is_no_number_of_samples_is_refused(count: Any) -> None:
    with pytest.raises(RefusedError):
        validate.samples(count)


@pytest.mark.row(16, counts="false numbers of samples")
def test_samples_are_those_declared() -> None:
    assert validate.samples(7, 7) == 7
    with pytest.raises(RefusedError, match="declared 7"):
        validate.samples(8, 7)


@pytest.mark.parametrize("name", vars(Address("e", "train", 1, 0, "a")))
@pytest.mark.row(19)
def test_an_answer_to_another_question_is_refused(name: str) -> None:
    right = Address("e", "train", 1, 0, "a")
    validate.address(vars(right), right)
    for other in (None, 17, "other", 1.0, True):
        with pytest.raises(RefusedError, match=f"its {name} is"):
            validate.address({**vars(right), name: other}, right)


@pytest.mark.row(15, counts="malformed answers")
def test_names_are_those_expected() -> None:
    record = Record("float32", (1,), "numpy.ndarray", stored(np.zeros(1, dtype=np.float32)))
    forms = {"value": Form("float32", (1,))}
    validate.tensors({"value": record}, forms, LIMIT)
    for arrays in ({}, {"value": record, "more": record}, {"other": record}):
        with pytest.raises(RefusedError, match="missing"):
            validate.tensors(arrays, forms, LIMIT)
    with pytest.raises(RefusedError, match="at most"):
        validate.tensors({str(i): record for i in range(99)}, None, LIMIT)


def test_words_of_a_client_reach_no_terminal_as_a_command() -> None:
    said = str(RefusedError("it could not: \x1b[2J\x1b]0;title\x07 gone\r\nnext\u202e \u200b end"))
    assert said.isprintable()
    assert said.startswith("it could not: \\x1b[2J")
    assert said.endswith("end")
    assert len(str(RefusedError("\x1b" * 10**6))) <= 500
