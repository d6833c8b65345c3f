"""LEAF's JSON, whole and damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coterie.data import named
from coterie.data.load import load
from tests.data.test_load import fails


def leaf(users: dict[str, list[int]], width: int = 4) -> dict[str, Any]:
    """Each user's labels; a sample is its label repeated."""
    return {
        "users": list(users),
        "num_samples": [len(y) for y in users.values()],
        "user_data": {u: {"x": [[k / 10] * width for k in y], "y": y} for u, y in users.items()},
    }


def write(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path


def test_users_are_owners_with_their_names(tmp_path):
    write(tmp_path / "train" / "a.json", leaf({"zoe": [0, 1], "ann": [2]}))
    write(tmp_path / "train" / "b.json", leaf({"bob": [1], "zoe": [0]}))
    write(tmp_path / "test" / "a.json", leaf({"ann": [1], "new": [0]}))
    data = load(tmp_path)
    assert data.owner is not None
    assert data.owner_test is not None
    assert data.owners == ("ann", "bob", "new", "zoe")
    assert data.owner.tolist() == [3, 3, 0, 1, 3]
    assert data.owner_test.tolist() == [0, 2]
    assert data.y.tolist() == [0, 1, 2, 1, 0]
    assert data.x[:, 0].tolist() == pytest.approx([0, 0.1, 0.2, 0.1, 0])


def test_one_file_is_enough(tmp_path):
    assert load(write(tmp_path / "all.json", leaf({"u": [0, 1]}))).x.shape == (2, 4)


def test_femnist_becomes_images_with_its_characters(tmp_path, monkeypatch):
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path))
    monkeypatch.setattr(named, "SYSTEM", tmp_path)
    write(tmp_path / "femnist" / "train" / "a.json", leaf({"f0": [10, 61], "f1": [36]}, width=784))
    write(tmp_path / "femnist" / "test" / "a.json", leaf({"f0": [10]}, width=784))
    data = load("femnist")
    assert (data.name, data.shape, data.peak) == ("femnist", (1, 28, 28), 1.0)
    assert [data.classes[label] for label in data.y] == ["A", "z", "a"]


def broken(**changes: object) -> dict[str, Any]:
    return {**leaf({"u": [0, 1]}), **changes}


@pytest.mark.parametrize(
    ("code", "content"),
    [
        ("D007", []),
        ("D007", {"users": ["u"]}),
        ("D007", broken(users=[1])),
        ("D007", broken(users=["u", "v"], num_samples=[2, 2])),
        ("D007", broken(user_data={"u": {"x": [[1]]}})),
        ("D008", broken(num_samples=[3])),
        ("D010", leaf({})),
        ("D011", broken(user_data={"u": {"x": [[1]], "y": [0, 1]}})),
        ("D012", broken(user_data={"u": {"x": [[1], [2]], "y": [0, None]}})),
        ("D012", broken(user_data={"u": {"x": [[1], [2]], "y": [0, -1]}})),
        ("D013", broken(user_data={"u": {"x": [[1], ["word"]], "y": [0, 1]}})),
        ("D013", broken(user_data={"u": {"x": [[1], [float("nan")]], "y": [0, 1]}})),
        ("D014", broken(user_data={"u": {"x": [[1], [2, 3]], "y": [0, 1]}})),
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path, code, content):
    fails(code, write(tmp_path / "a.json", content))


@pytest.mark.row(23, counts="damaged data")
def test_broken_json_is_refused_with_its_place(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"users": ["u"],\n "user_data": ')
    assert fails("D007", path).where.startswith(f"{path}:2:")


@pytest.mark.row(23, counts="damaged data")
def test_json_nested_without_end_is_refused(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("[" * 10**5)
    fails("D007", path)


@pytest.mark.row(27, counts="hostile files and names")
def test_a_link_out_of_the_folder_is_not_followed(tmp_path):
    secret = write(tmp_path / "secret.json", leaf({"u": [0, 1]}))
    (tmp_path / "set" / "train").mkdir(parents=True)
    (tmp_path / "set" / "train" / "a.json").symlink_to(secret)
    fails("D017", tmp_path / "set")
