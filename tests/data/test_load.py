"""`load`: any source, one form of `Data`."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import Dataset, IterableDataset, TensorDataset

import coterie.data
from coterie.core.codes.data import READING
from coterie.core.errors import DataError
from coterie.data.load import load
from coterie.data.readers import arrays


def fails(code: str, source: object, **options: object) -> DataError:
    """The error that loading raises, which must have this code and say how to go on."""
    with pytest.raises(DataError) as caught:
        load(source, **options)  # type: ignore[arg-type]
    assert caught.value.code == code, caught.value
    assert caught.value.fix
    return caught.value


X = np.arange(24.0).reshape(6, 4)
Y = np.array([0, 1, 2, 0, 1, 2])


# --- sources -----------------------------------------------------------------------------------


def test_digits_are_the_embedded_default():
    data = load("digits")
    assert data.x.shape == (1797, 1, 8, 8)
    assert data.x.dtype == torch.uint8
    assert (int(data.x.max()), data.peak) == (16, 16.0)
    assert data.y.bincount().min() > 170


def test_a_pair_of_arrays_keeps_its_numbers():
    data = load((X, Y))
    assert torch.equal(data.x, torch.arange(24.0).reshape(6, 4))
    assert data.y.tolist() == Y.tolist()
    assert (data.classes, data.x_test, data.owner) == (("0", "1", "2"), None, None)


def test_tensors_arrays_and_lists_are_the_same_data():
    sources = [(X, Y), (torch.from_numpy(X), torch.from_numpy(Y)), (X.tolist(), Y.tolist())]
    assert len({load(source).fingerprint for source in sources}) == 1


def test_four_arrays_bring_their_test_set():
    data = load((X, Y, X[:2], Y[:2]))
    assert data.x_test is not None
    assert data.y_test is not None
    assert (data.x_test.shape, data.y_test.tolist()) == ((2, 4), [0, 1])


def test_changing_the_callers_array_later_changes_nothing():
    x, y = torch.zeros(3, 1, 4, 4, dtype=torch.uint8), np.array([0, 1, 0])
    data = load((x, y))
    before = data.fingerprint
    x += 1
    y += 1
    assert data.fingerprint == before


def test_a_torch_dataset_equals_its_tensors():
    x, y = torch.rand(5, 3, 8, 8), torch.tensor([0, 1, 1, 0, 2])
    assert load(TensorDataset(x, y)).fingerprint == load((x, y)).fingerprint


def test_a_dataset_of_images_takes_its_class_names_along():
    image = pytest.importorskip("PIL.Image")

    class Photos(Dataset):  # type: ignore[type-arg]
        classes = ["cat", "dog"]  # noqa: RUF012

        def __len__(self):
            return 4

        def __getitem__(self, i):
            return image.new("RGB", (5, 7), (i, 0, 0)), i % 2

    data = load(Photos())
    assert (data.x.shape, data.x.dtype, data.classes) == ((4, 3, 7, 5), torch.uint8, ("cat", "dog"))
    assert data.x[:, 0, 0, 0].tolist() == [0, 1, 2, 3]


def test_a_second_source_is_the_test_set_with_the_same_class_numbers():
    data = load((X, list("bcdbcd")), test_source=(X[:2], ["d", "a"]))
    assert data.classes == ("a", "b", "c", "d")
    assert data.y_test is not None
    assert (data.y.tolist(), data.y_test.tolist()) == ([1, 2, 3, 1, 2, 3], [3, 0])


def test_a_stream_without_length_is_refused():
    class Stream(IterableDataset):  # type: ignore[type-arg]
        def __iter__(self):
            return iter(())

    assert "length" in str(fails("D003", Stream()))


def test_items_that_are_no_pairs_are_refused_with_their_number():
    assert "item 0" in str(fails("D003", TensorDataset(torch.zeros(3, 2))))


def test_items_of_unequal_shapes_are_named():
    items = [(torch.zeros(2), 0), (torch.zeros(3), 1)]

    class Ragged:
        def __len__(self):
            return 2

        def __getitem__(self, i):
            return items[i]

    assert "item 1 has shape (3,)" in str(fails("D014", Ragged()))


@pytest.mark.parametrize("source", [42, None, (X,), (X, Y, X)])
def test_what_is_no_source_is_refused(source):
    fails("D003", source)


def test_an_unknown_name_lists_the_known_ones():
    assert "fashion-mnist" in str(fails("D002", "minst"))


@pytest.mark.parametrize("name", ["model.pt", "data.pkl", "data.pickle", "data.joblib"])
def test_files_of_python_objects_are_refused_unread(tmp_path, name):
    (tmp_path / name).write_bytes(b"cos\nsystem\n")
    assert "np.savez" in fails("D005", tmp_path / name).fix


def test_a_file_of_no_known_kind_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    fails("D003", tmp_path / "notes.txt")


# --- options -----------------------------------------------------------------------------------


def test_an_unknown_option_lists_the_known_ones():
    assert "features" in fails("D004", "synthetic", feature=3).fix


@pytest.mark.parametrize(
    ("name", "value"), [("samples", "many"), ("classes", 1), ("separation", float("nan"))]
)
def test_an_option_that_cannot_be_meant_is_refused(name, value):
    fails("D004", "synthetic", **{name: value})


def test_a_bad_common_option_is_refused():
    fails("D004", (X, Y), peak=-1)


def test_shape_turns_rows_into_images():
    data = load((X, Y), shape=(1, 2, 2), peak=24)
    assert (data.x.shape, data.peak) == ((6, 1, 2, 2), 24.0)


def test_a_shape_that_does_not_fit_is_refused():
    fails("D018", (X, Y), shape=(3, 3))


# --- samples -----------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 4), st.sampled_from([1, 3, 4]), st.integers(5, 9), st.integers(5, 9), st.data()
)
def test_images_in_either_order_are_the_same_images(n, c, h, w, draw):
    seed = draw.draw(st.integers(0, 99))
    x = np.random.default_rng(seed).integers(0, 256, (n, c, h, w), dtype=np.uint8)
    y = np.arange(n)
    first, last = load((x, y)), load((np.moveaxis(x, 1, -1), y))
    assert torch.equal(first.x, torch.from_numpy(x))
    assert first.fingerprint == last.fingerprint


def test_gray_images_get_a_channel():
    assert load((np.zeros((2, 5, 6)), [0, 1])).shape == (1, 5, 6)


@pytest.mark.parametrize("shape", [(2, 1, 4, 4), (2, 3, 1, 1), (2, 4, 4, 3), (2, 1, 1, 3)])
def test_tiny_images_are_told_by_being_square(shape):
    c, h, w = load((np.zeros(shape, np.uint8), [0, 1])).shape
    assert h == w != c


@pytest.mark.parametrize("shape", [(2, 3, 8, 3), (2, 8, 8, 8), (2, 3, 3, 3)])
def test_unclear_channels_are_asked_for(shape):
    x = np.zeros(shape, np.uint8)
    assert "channels=" in fails("D018", (x, [0, 1])).fix
    assert load((x, [0, 1]), channels="first").x.shape == shape


@pytest.mark.parametrize(
    ("dtype", "top", "kept", "peak"),
    [
        (np.uint8, 255, torch.uint8, 255.0),
        (np.int64, 255, torch.uint8, 255.0),
        (np.uint16, 65535, torch.float32, 65535.0),
        (np.float64, 1, torch.float32, 1.0),
    ],
)
def test_the_peak_follows_the_stored_numbers(dtype, top, kept, peak):
    data = load((np.full((2, 5, 5), top, dtype), [0, 1]))
    assert (data.x.dtype, data.peak, float(data.x.max())) == (kept, peak, top)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e300])
def test_a_value_that_is_no_finite_number_is_named(bad):
    x = X.copy()
    x[4, 1] = bad
    assert "sample 4" in str(fails("D013", (x, Y)))


def test_words_as_samples_are_refused():
    fails("D013", ([["a"], ["b"]], [0, 1]))


def test_ragged_lists_are_refused():
    fails("D014", ([[1, 2], [3]], [0, 1]))


@pytest.mark.parametrize("source", [(X[:0], Y[:0]), (X[:, :0], Y), (X, Y, X[:0], Y[:0])])
def test_empty_data_is_refused(source):
    fails("D010", source)


def test_unequal_numbers_of_samples_and_labels_are_refused():
    assert "6 samples and 5 labels" in str(fails("D011", (X, Y[:5])))


def test_a_test_set_of_another_shape_is_refused():
    fails("D019", (X, Y, X[:, :3], Y))


# --- labels ------------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=12))
def test_any_labels_keep_their_names_and_their_order(labels):
    data = load((np.zeros((len(labels), 2)), np.array(labels)))
    assert [int(data.classes[label]) for label in data.y] == labels
    assert sorted(data.y.unique().tolist()) == list(range(len(data.classes)))


@pytest.mark.parametrize("y", [Y, Y.astype(np.float32), Y[:, None], Y.astype(np.uint8)])
def test_labels_that_are_classes_already_are_kept(y):
    assert load((X, y)).y.tolist() == Y.tolist()


def test_words_are_classes_in_sorted_order():
    data = load((X, np.array(list("bcabca"), dtype=object)))
    assert (data.classes, data.y.tolist()) == (("a", "b", "c"), [1, 2, 0, 1, 2, 0])


@pytest.mark.parametrize(
    "bad", [-1, np.nan, 0.5, np.inf], ids=["negative", "missing", "fraction", "infinite"]
)
def test_a_label_that_is_no_class_is_named(bad):
    y = Y.astype(float)
    y[3] = bad
    assert "row 3" in str(fails("D012", (X, y)))


def test_an_empty_word_is_a_missing_label():
    assert "row 1" in str(fails("D012", (X[:3], ["a", "", "b"])))


def test_one_hot_labels_are_refused_with_the_way_out():
    assert "argmax" in fails("D012", (X, np.eye(3)[Y])).fix


def test_words_in_one_set_and_numbers_in_the_other_are_refused():
    fails("D012", (X, Y, X, list("abcabc")))


def test_a_label_beyond_the_given_classes_is_refused():
    fails("D012", (X, Y), classes=("cat", "dog"))


@pytest.mark.parametrize(
    ("owner", "expected"),
    [([7, 7, 3, 3, 9, 9], [7, 7, 3, 3, 9, 9]), (list("bbaacc"), [1, 1, 0, 0, 2, 2])],
)
def test_owners_are_numbers_kept_or_words_in_order(owner, expected):
    data = load((X, Y), owner=owner)
    assert data.owner is not None
    assert data.owner.tolist() == expected


def test_an_owner_for_every_row_is_wanted():
    fails("D011", (X, Y), owner=[1, 2])


# --- synthetic ---------------------------------------------------------------------------------


@pytest.mark.parametrize("separation", [0, 1000], ids=["clouds", "prototypes"])
def test_synthetic_is_the_same_for_the_same_seed_only(separation):
    one, same, other = (load("synthetic", separation=separation, seed=s) for s in (1, 1, 2))
    assert one.fingerprint == same.fingerprint
    assert not torch.allclose(one.x, other.x, atol=10 if separation else 0.1)


@settings(max_examples=15, deadline=None)
@given(st.integers(2, 7), st.integers(7, 60), st.integers(1, 9))
def test_synthetic_has_the_size_asked_for_and_balanced_classes(classes, samples, features):
    data = load("synthetic", classes=classes, samples=samples, features=features)
    counts = data.y.bincount(minlength=classes)
    assert (data.x.shape, len(data.classes)) == ((samples, features), classes)
    assert int(counts.max() - counts.min()) <= 1


@pytest.mark.parametrize(("separation", "low", "high"), [(0.0, 0.0, 0.25), (10.0, 0.99, 1.0)])
def test_the_separation_decides_how_much_there_is_to_learn(separation, low, high):
    data = load("synthetic", separation=separation, samples=3000)
    x, y = data.x, data.y
    means = torch.stack([x[:1500][y[:1500] == c].mean(0) for c in range(10)])
    accuracy = (torch.cdist(x[1500:], means).argmin(1) == y[1500:]).float().mean()
    assert low <= float(accuracy) <= high


def test_fewer_samples_than_classes_are_refused():
    fails("D004", "synthetic", samples=5)


# --- codes -------------------------------------------------------------------------------------


def test_every_code_is_listed_and_every_listed_code_is_used():
    folder = Path(next(iter(coterie.data.__path__)))
    text = "".join(file.read_text() for file in folder.rglob("*.py"))
    used = set(re.findall(r'"(D0[012]\d)"', text))
    assert used == set(READING)


def test_digits_are_scikit_learns_to_the_bit(monkeypatch):
    from sklearn.datasets import load_digits

    known = load_digits()
    for elsewhere in (False, True):  # the file where it always was, or only scikit-learn knows
        if elsewhere:
            monkeypatch.setattr(arrays.importlib.util, "find_spec", lambda name: None)
        raw = arrays.read_digits()
        assert (raw.x == known.images).all()
        assert (raw.y == known.target).all()
        assert (raw.x.dtype, raw.y.dtype) == (np.uint8, np.int64)


def test_some_classes_and_so_many_samples_of_a_set() -> None:
    whole, part = load("digits"), load("digits", only=["7", 3], limit=50)
    assert part.classes == ("7", "3")
    assert len(part.y) == 50
    assert set(part.y.tolist()) == {0, 1}
    of = {tuple(x.flatten().tolist()): int(y) for x, y in zip(whole.x, whole.y, strict=True)}
    assert [of[tuple(x.flatten().tolist())] for x in part.x] == [(7, 3)[k] for k in part.y]
    assert part.source is not None
    assert load(**part.source).fingerprint == part.fingerprint, "it is read again as it was"


@pytest.mark.parametrize("only", [["no"], [10], [3, "3"]])
def test_a_class_that_is_not_there_is_refused_by_name(only: list[str | int]) -> None:
    with pytest.raises(DataError, match="is no class of digits, or is named twice"):
        load("digits", only=only)
