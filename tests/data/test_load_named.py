"""Named sets: where they are looked for, and what is said when they are missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from coterie.core.errors import DataError
from coterie.data import named
from coterie.data.load import load
from coterie.data.named import NAMED, canonical, find, require
from tests.data.readers.test_idx import write_idx

SHARED = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    """Three folders of one's own: COTERIE_DATA, cache and system."""
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(named, "SYSTEM", tmp_path / "system")
    folders = [tmp_path / "own", tmp_path / "cache" / "coterie", tmp_path / "system"]
    for folder in folders:
        folder.mkdir(parents=True)
    return folders


def gray(path: Path, fill: int = 0, **extra: np.ndarray) -> Path:
    """A tiny archive in the layout of MNIST."""
    x, y = np.full((4, 28, 28), fill, np.uint8), np.array([0, 1, 2, 3], np.uint8)
    np.savez(path, x_train=x, y_train=y, x_test=x[:2], y_test=y[:2], **extra)
    return path


def test_the_folders_are_asked_in_order(places):
    paths = [gray(folder / "mnist.npz", fill) for fill, folder in enumerate(places)]
    for fill, path in enumerate(paths):
        assert find("mnist") == path
        assert int(load("mnist").x.max()) == fill
        path.unlink()
    assert find("mnist") is None


def test_coterie_data_may_be_several_folders(places, tmp_path, monkeypatch):
    second = tmp_path / "second"
    second.mkdir()
    monkeypatch.setenv("COTERIE_DATA", os.pathsep.join(["", str(places[0]), str(second)]))
    assert find("mnist") is None
    assert gray(second / "mnist.npz") == find("mnist")


@pytest.mark.parametrize("name", [name for name, entry in NAMED.items() if not entry.embedded])
def test_a_missing_set_says_where_it_was_looked_for_and_how_to_get_it(name, places):
    with pytest.raises(DataError) as caught:
        load(name)
    assert (caught.value.code, caught.value.exit) == ("D001", 3)
    assert all(str(folder) in caught.value.where for folder in places)
    assert caught.value.fix.startswith(NAMED[name].how())
    assert NAMED[name].commands


def test_fashion_mnist_is_one_debian_package_away():
    assert "apt-get install dataset-fashion-mnist" in NAMED["fashion-mnist"].how()


def test_a_command_quotes_a_folder_with_blanks():
    assert "'/a b/c'/mnist" in NAMED["mnist"].how(Path("/a b/c"))


@pytest.mark.parametrize(
    ("spelling", "name"),
    [("MNIST", "mnist"), ("FashionMNIST", "fashion-mnist"), ("CIFAR-10", "cifar10")],
)
def test_usual_spellings_are_understood(spelling, name):
    assert canonical(spelling) == name


def test_every_entry_has_as_many_class_names_as_classes():
    assert all(len(entry.labels) in (0, entry.classes) for entry in NAMED.values())


def test_class_names_are_all_different():
    assert all(len(set(entry.labels)) == len(entry.labels) for entry in NAMED.values())


def test_debians_layout_is_read(places):
    write_idx(places[2] / "fashion-mnist", gz=True, size=28)
    data = load("fashion-mnist")
    assert (data.name, data.classes[0], data.shape) == ("fashion-mnist", "t-shirt", (1, 28, 28))


def test_torchvisions_layout_is_read(places):
    write_idx(places[0] / "MNIST" / "raw", size=28)
    assert load("mnist").shape == (1, 28, 28)


def test_the_folder_of_the_set_itself_may_be_given(places, monkeypatch):
    write_idx(places[0] / "fashion-mnist", size=28)
    monkeypatch.setenv("COTERIE_DATA", str(places[0] / "fashion-mnist"))
    assert find("fashion-mnist") == places[0] / "fashion-mnist"


def test_a_folder_of_the_right_name_with_other_content_is_passed_over(places):
    (places[0] / "mnist" / "cat").mkdir(parents=True)
    assert find("mnist") is None


def test_a_part_of_a_set_keeps_its_own_name_and_its_own_classes(places):
    x, y = np.zeros((3, 32, 32, 3), np.uint8), np.array([0, 1, 2])
    np.savez(places[0] / "cifar100_first3.npz", x_train=x, y_train=y)
    data = load("cifar100")
    assert (data.name, data.classes) == ("cifar100_first3", ("apple", "aquarium_fish", "baby"))


def test_the_whole_set_is_preferred_to_a_part(places):
    gray(places[0] / "mnist_small.npz", 1)
    gray(places[0] / "mnist.npz", 2)
    assert require("mnist").name == "mnist.npz"


def test_a_name_does_not_match_a_longer_one(places):
    np.savez(places[0] / "cifar100_first20.npz", x=np.zeros(1), y=np.zeros(1))
    assert find("cifar10") is None


def test_writers_are_owners(places):
    gray(places[0] / "mnist.npz", writer_train=np.array([5, 5, 2, 2], np.uint16))
    owner = load("mnist").owner
    assert owner is not None
    assert owner.tolist() == [5, 5, 2, 2]


def test_a_named_file_with_other_images_is_refused(places):
    np.savez(places[0] / "mnist.npz", x=np.zeros((2, 9, 9), np.uint8), y=np.array([0, 1]))
    with pytest.raises(DataError, match=r"expected \(1, 28, 28\)") as caught:
        load("mnist")
    assert caught.value.code == "D022"


def test_a_label_beyond_the_sets_classes_is_refused(places):
    np.savez(places[0] / "mnist.npz", x=np.zeros((2, 28, 28), np.uint8), y=np.array([0, 10]))
    with pytest.raises(DataError, match="none of the 10 classes"):
        load("mnist")


def test_the_registry_is_free_of_torch_and_numpy():
    code = (
        "import sys; import coterie.data.named as n; n.find('mnist');"
        "sys.exit(bool({'torch', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.is_dir(), reason="the real image sets (../shared/data) are absent")
@pytest.mark.parametrize(
    ("name", "sizes", "shape", "classes"),
    [
        ("mnist", (60000, 10000), (1, 28, 28), 10),
        ("fashion-mnist", (60000, 10000), (1, 28, 28), 10),
        ("cifar100", (10000, 2000), (3, 32, 32), 20),
        ("svhn", (1500, 500), (3, 32, 32), 10),
    ],
)
def test_the_real_sets_are_read_whole(name, sizes, shape, classes, monkeypatch):
    monkeypatch.setenv("COTERIE_DATA", str(SHARED))
    data = load(name)
    assert data.x_test is not None
    assert (len(data.x), len(data.x_test)) == sizes
    assert (data.shape, len(data.classes)) == (shape, classes)
    assert data.y.bincount().min() > 0
