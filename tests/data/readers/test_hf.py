"""Sets of the Hugging Face hub, built here: nothing is fetched."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from coterie.data.load import load
from tests.data.test_load import fails

NUMBERS = {"a": [1.0, 2.0, 3.0], "b": [4, 5, 6], "note": ["x", "y", "z"], "label": [0, 1, 0]}


def test_without_the_extra_the_command_that_installs_it_is_said(monkeypatch):
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "datasets":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    assert fails("D020", "hf:org/name").fix == "pip install 'coterie[hf]'"


@pytest.fixture
def hub(monkeypatch):
    """A hub with one set on it, and the arguments it was asked with."""
    datasets = pytest.importorskip("datasets", reason="the extra 'hf' is not installed")
    asked: dict[str, Any] = {}

    def offer(train, features=None, **others):
        def build(columns):
            return datasets.Dataset.from_dict(columns, features=features)

        splits = {"train": train, **others}
        found = datasets.DatasetDict({k: build(v) for k, v in splits.items() if v is not None})

        def fetch(name, config=None, **options):
            asked.update(name=name, config=config, **options)
            return found

        monkeypatch.setattr(datasets, "load_dataset", fetch)
        return found

    offer.asked = asked  # type: ignore[attr-defined]
    offer.datasets = datasets  # type: ignore[attr-defined]
    return offer


def images(hub, values, names=("cat", "dog")):
    d = hub.datasets
    features = d.Features({"img": d.Image(), "label": d.ClassLabel(names=list(names))})
    pictures = [Image.fromarray(np.full((5, 6, 3), v, np.uint8)) for v in values]
    return {"img": pictures, "label": [v % 2 for v in values]}, features


def test_columns_of_numbers_are_features(hub):
    hub(NUMBERS)
    data = load("hf:org/name", config="small", revision="v1")
    assert data.x.tolist() == [[1, 4], [2, 5], [3, 6]]
    assert (data.name, data.y.tolist()) == ("org/name", [0, 1, 0])
    assert (hub.asked["name"], hub.asked["config"], hub.asked["revision"]) == (
        "org/name",
        "small",
        "v1",
    )


def test_images_bring_their_class_names(hub):
    columns, features = images(hub, [3, 4])
    hub(columns, features, test=columns)
    data = load("hf:org/name")
    assert (data.shape, data.classes) == ((3, 5, 6), ("cat", "dog"))
    assert data.x[:, 0, 0, 0].tolist() == [3, 4]
    assert data.x_test is not None


def test_validation_stands_in_for_a_missing_test_split(hub):
    hub(NUMBERS, validation={k: v[:2] for k, v in NUMBERS.items()})
    data = load("hf:org/name")
    assert data.y_test is not None
    assert data.y_test.tolist() == [0, 1]


def test_a_column_of_matrices_is_images(hub):
    hub({"x": np.arange(50.0).reshape(2, 5, 5).tolist(), "y": [0, 1]})
    assert load("hf:org/name").shape == (1, 5, 5)


def test_columns_can_be_named(hub):
    hub({"a": [1, 2], "kind": ["u", "v"], "who": ["p", "q"]})
    data = load("hf:org/name", label="kind", owner="who")
    assert data.owner is not None
    assert (data.classes, data.owner.tolist(), data.x.shape) == (("u", "v"), [0, 1], (2, 1))


def test_a_set_saved_on_disk_is_read(hub, tmp_path):
    columns, features = images(hub, [3, 4])
    hub(columns, features).save_to_disk(tmp_path / "saved")
    assert torch.equal(load(f"hf:{tmp_path / 'saved'}").x[:, 0, 0, 0], torch.tensor([3, 4]).byte())


@pytest.mark.parametrize(
    ("code", "columns", "options"),
    [
        ("D009", {"a": [1, 2], "b": ["u", "v"]}, {}),
        ("D009", {"a": [1, 2], "label": [0, 1]}, {"label": "z"}),
        ("D009", {"text": ["u", "v"], "label": [0, 1]}, {}),
        ("D009", {"a": [1, 2], "label": [0, 1]}, {"image": "z"}),
        ("D012", {"a": [1, 2], "label": [0, None]}, {}),
        ("D012", {"a": [1, 2], "label": [0, -1]}, {}),
        ("D014", {"a": [[1], [2, 3]], "label": [0, 1]}, {}),
        ("D013", {"a": [1.0, None], "label": [0, 1]}, {}),
    ],
)
def test_a_set_that_does_not_fit_is_refused(hub, code, columns, options):
    hub(columns)
    fails(code, "hf:org/name", **options)


def test_a_set_without_training_split_is_refused(hub):
    hub(None, test=NUMBERS)
    fails("D009", "hf:org/name")


def test_a_failing_hub_is_a_data_error(hub, monkeypatch):
    def gone(*args: Any, **options: Any) -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr(hub.datasets, "load_dataset", gone)
    assert "no route" in fails("D021", "hf:org/name").why


@pytest.mark.row(27, counts="hostile files and names")
def test_a_path_inside_a_set_is_not_followed(hub, tmp_path):
    Image.new("RGB", (6, 5)).save(tmp_path / "secret.png")
    d = hub.datasets
    features = d.Features({"img": d.Image(), "label": d.Value("int64")})
    hub({"img": [{"bytes": None, "path": str(tmp_path / "secret.png")}], "label": [0]}, features)
    fails("D017", "hf:org/name")


def test_a_broken_image_is_named_by_its_row(hub):
    columns, features = images(hub, [3, 4])
    columns["img"][1] = {"bytes": b"nonsense", "path": None}
    hub(columns, features)
    assert "image 1" in fails("D015", "hf:org/name").where
