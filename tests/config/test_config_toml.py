"""The scanner against tomllib, the writer against tomllib."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.config import toml

KEYS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), min_size=1, max_size=6)
SCALARS = (
    st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.booleans()
    | st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=12)
)
LISTS = st.lists(SCALARS | st.lists(st.integers(), max_size=3), max_size=3)
TREES = st.recursive(
    st.dictionaries(KEYS, SCALARS | LISTS, max_size=3),
    lambda tables: st.dictionaries(KEYS, SCALARS | LISTS | tables, max_size=3),
    max_leaves=6,
)


def paths(tree: object, above: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    if not isinstance(tree, dict):
        return set()
    own = {(*above, k) for k in tree}
    return own.union(*(paths(v, (*above, k)) for k, v in tree.items()))


@settings(max_examples=60, deadline=None)
@given(TREES)
def test_what_is_written_reads_back(tree: dict[str, object]) -> None:
    assert tomllib.loads(toml.write(tree)) == tree


@settings(max_examples=60, deadline=None)
@given(TREES)
def test_the_scanner_sees_every_key_that_tomllib_sees(tree: dict[str, object]) -> None:
    assert set(toml.lines(toml.write(tree))) == paths(tree)


@settings(max_examples=60, deadline=None)
@given(TREES)
def test_the_scanner_sees_every_key_of_inline_tables(tree: dict[str, object]) -> None:
    assert set(toml.lines(f"all = {toml.inline(tree)}\n")) == {("all",)} | paths(tree, ("all",))


@pytest.mark.parametrize(
    ("text", "path", "line"),
    [
        ("seed = 1", ("seed",), 1),
        ("# seed = 2\n\nseed = 1", ("seed",), 3),
        ("[train]\nlr = 1", ("train",), 1),
        ("[train]\nlr = 1", ("train", "lr"), 2),
        ("[a.b]\n[a.c]\nx = 1", ("a", "c", "x"), 3),
        ("[a.b]\n[a.c]\nx = 1", ("a",), 1),
        ("[ a . 'b c' ]\nx = 1", ("a", "b c", "x"), 2),
        ('"a.b" = 1\n"c\\u0041" = 2', ("cA",), 2),
        ("a.b.c = 1\na.b.d = 2", ("a", "b", "d"), 2),
        ("a = [\n 1, # one ]\n 2,\n]\nb = 3", ("b",), 5),
        ("a = [[1], [\n]]\nb = 3", ("b",), 3),
        ("a = { x = 1, y = { z = 2 } }", ("a", "y", "z"), 1),
        ("a = [{ x = 1 }, { y = [\n 2] }]\nb = 3", ("b",), 3),
        ("a = 'it # is'\nb = 1", ("b",), 2),
        ('a = "x = 1 \\" [b]"\nb = 1', ("b",), 2),
        ('a = """\nb = 1\n\\"""\n"""\nb = 2', ("b",), 5),
        ("a = '''\n[c]\n''''\nb = 2", ("b",), 4),
        ('a = """x"""""\nb = 2', ("b",), 2),
        ("[[runs]]\nx = 1\n[[runs]]\nx = 2", ("runs", "x"), 2),
        ("a = 1979-05-27T07:32:00Z\r\nb = 1\r\n", ("b",), 2),
        ("a = -inf # why\nb = 1e-5", ("b",), 2),
    ],
)
def test_a_key_is_found_on_its_line(text: str, path: tuple[str, ...], line: int) -> None:
    tomllib.loads(text)
    assert toml.lines(text)[path] == line


def test_none_is_left_out() -> None:
    assert toml.write({"a": None, "b": {"c": None, "d": 1}}) == "[b]\nd = 1\n"


def test_an_empty_table_is_kept() -> None:
    assert tomllib.loads(toml.write({"a": {}})) == {"a": {}}
