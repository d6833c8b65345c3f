"""Tables, whole and damaged."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.data.load import load
from tests.data.test_load import fails


@pytest.fixture
def table(tmp_path):
    def write(text: str, name: str = "t.csv"):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    return write


@pytest.mark.parametrize("name", ["label", "Target", "class", "y"])
def test_the_label_column_is_found_by_its_name(table, name):
    data = load(table(f"a,{name},b\n1,0,2\n3,1,4\n"))
    assert (data.x.tolist(), data.y.tolist()) == ([[1, 2], [3, 4]], [0, 1])


def test_the_last_column_is_the_label_otherwise(table):
    assert load(table("a,b,c\n1,2,0\n3,4,1\n")).y.tolist() == [0, 1]


@pytest.mark.parametrize("label", ["a", 0, -3])
def test_the_label_column_can_be_named_or_numbered(table, label):
    assert load(table("a,b,c\n0,2,9\n1,4,9\n"), label=label).y.tolist() == [0, 1]


def test_a_table_without_header_is_told_by_its_numbers(table):
    data = load(table("5.1,3.5,setosa\n6.2,2.9,virginica\n"))
    assert (len(data.x), data.classes) == (2, ("setosa", "virginica"))


def test_a_header_of_numbers_is_told_by_its_label(table):
    assert len(load(table("label,0,1\n0,5,6\n1,7,8\n")).x) == 2


def test_a_header_can_be_declared(table):
    assert len(load(table("1,2,3\n0,5,6\n1,7,8\n"), header=True).x) == 2


def test_numbers_as_labels_are_sorted_as_numbers(table):
    data = load(table("a,y\n0,10\n0,9\n0,10\n"))
    assert (data.classes, data.y.tolist()) == (("9", "10"), [1, 0, 1])


def test_an_owner_column_is_no_feature(table):
    data = load(table("who,a,y\nbob,1,0\nann,2,1\nbob,3,0\n"), owner="who")
    assert data.owner is not None
    assert (data.owner.tolist(), data.x.shape) == ([1, 0, 1], (3, 1))
    assert data.owners == ("ann", "bob")


def test_owners_by_number_keep_it(table):
    data = load(table("who,a,y\n12,1,0\n3,2,1\n12,3,0\n"), owner="who")
    assert data.owner is not None
    assert (data.owner.tolist(), data.owners, data.owner_name(12)) == ([12, 3, 12], (), "12")
    named = load(table("who,a,y\n007,1,0\n3,2,1\n"), owner="who")
    assert named.owners == ("007", "3")


@pytest.mark.row(23, counts="damaged data")
def test_a_row_that_is_nobodys_is_refused(table):
    error = fails("D012", table("who,a,y\nbob,1,0\n,2,1\n"), owner="who")
    assert ":3" in str(error.where)


def test_tabs_and_semicolons_are_read(table):
    assert load(table("a\ty\n1\t0\n2\t1\n", "t.tsv")).x.shape == (2, 1)
    assert load(table("a;y\n1;0\n2;1\n"), separator=";").x.shape == (2, 1)


def test_a_byte_order_mark_and_blank_lines_are_passed_over(table):
    assert load(table("\ufeffy,a\r\n0,1\r\n\r\n1,2\r\n")).y.tolist() == [0, 1]


def test_a_test_table_uses_the_same_classes(table):
    train, test = table("a,y\n1,cat\n2,dog\n"), table("a,y\n3,dog\n", "test.csv")
    data = load(train, test_source=test)
    assert data.y_test is not None
    assert data.y_test.tolist() == [1]


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 999))
def test_what_was_written_is_read(tmp_path_factory, n, d, seed):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(n, d)).astype(np.float32), rng.choice(list("abc"), n)
    text = io.StringIO()
    csv.writer(text).writerows(
        [[*map(repr, map(float, row)), word] for row, word in zip(x, y, strict=True)]
    )
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    path.write_text(text.getvalue())
    data = load(path)
    assert torch.equal(data.x, torch.from_numpy(x))
    assert [data.classes[label] for label in data.y] == y.tolist()


@pytest.mark.parametrize(
    ("code", "rows", "said"),
    [
        ("D014", "1,2,0\n1,2\n", "t.csv:3: the row has 2 cells, expected 3"),
        ("D014", "1,2,0\n1,2,0,9\n", "t.csv:3: the row has 4 cells, expected 3"),
        ("D013", "1,2,0\n1,red,0\n", "t.csv:3: column 'b' holds 'red', not a number"),
        ("D013", "1,2,0\n,2,0\n", "t.csv:3: column 'a' holds nothing"),
        ("D013", "1,2,0\n\n1,nan,0\n", "t.csv:4: column 'b' holds nan"),
        ("D013", "1,2,0\n1,1e300,0\n", "t.csv:3: column 'b' holds 1e+300"),
        ("D012", "1,2,0\n1,2, \n", "t.csv:3: the label is missing"),
        ("D012", "1,2,0\n1,2,-1\n", "t.csv:3: the label -1"),
        ("D012", "1,2,0\n1,2,0.5\n", "t.csv:3: the label 0.5"),
        ("D012", "1,2,0\n1,2,nan\n", "t.csv:3: the label is missing"),
        ("D010", "", "no samples"),
    ],
)
@pytest.mark.row(23, counts="damaged data")
def test_a_bad_row_is_named_with_its_line(table, code, rows, said):
    assert said in str(fails(code, table("a,b,y\n" + rows)))


@pytest.mark.row(23, counts="damaged data")
def test_an_empty_file_has_no_samples(table):
    fails("D010", table(""))


def test_one_column_is_no_table(table):
    assert "separator" in fails("D009", table("a;y\n1;0\n")).fix


def test_a_table_of_labels_and_owners_only_is_refused(table):
    fails("D009", table("who,y\n1,0\n2,1\n"), owner="who")


def test_an_unknown_column_lists_the_known_ones(table):
    assert "a, b, y" in fails("D009", table("a,b,y\n1,2,0\n"), label="z").why


@pytest.mark.row(23, counts="damaged data")
def test_bytes_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"a,y\n\xff\xfe,0\n")
    fails("D007", tmp_path / "t.csv")


def test_a_separator_of_two_characters_is_refused(table):
    fails("D007", table("a,y\n1,0\n"), separator="::")


def test_of_two_columns_with_one_name_neither_is_guessed(table):
    text = "a,label,label\n1,0,0\n3,1,1\n"
    for how in ({}, {"label": "label"}):
        assert "2 columns 'label'" in str(fails("D009", table(text), **how))


def test_whole_labels_are_told_apart_however_large(table):
    data = load(table(f"a,label\n1,{2**53 + 1}\n3,{2**53}\n"))
    assert data.y.tolist() == [1, 0]
