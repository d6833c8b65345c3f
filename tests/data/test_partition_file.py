"""Partitions on disk, and index lists from elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from coterie.core.errors import DataError
from coterie.data import partition_file
from coterie.data.partition import Partition, arguments, divide
from coterie.data.partition_file import from_indices, load_partition, read_indices, save
from tests.data.labelled import labelled

DATA = labelled()


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b) and a.dtype == b.dtype
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    return bool(a == b)


@pytest.mark.parametrize("suffix", [".json", ".npz"])
@pytest.mark.parametrize(
    "kind",
    [
        "iid",
        "natural",
        "label-groups+rotation:0,30+permutation:2+drift",
        "contrast+noise+blur:0,0.1",
    ],
)
@pytest.mark.parametrize("test", ["own", "labels"])
def test_a_partition_comes_back_from_disk(
    tmp_path: Path, suffix: str, kind: str, test: Any
) -> None:
    made = divide(DATA, kind, 20, 0, test=test)
    found = load_partition(save(made, tmp_path / f"p{suffix}"), made.key)
    assert all(equal(getattr(made, f), getattr(found, f)) for f in Partition.__dataclass_fields__)
    assert found.key == made.key


@pytest.mark.parametrize("suffix", [".json", ".npz"])
def test_an_empty_list_comes_back_as_indices(tmp_path: Path, suffix: str) -> None:
    made = divide(labelled(5, 2, test=0), "iid", 5, 0)
    found = load_partition(save(made, tmp_path / f"p{suffix}"))
    assert found.test[0].dtype == torch.long
    assert len(found.test[0]) == 0


@pytest.mark.parametrize("suffix", [".json", ".npz"])
def test_nothing_but_the_file_is_left_behind(tmp_path: Path, suffix: str) -> None:
    save(divide(DATA, "iid", 5, 0), tmp_path / "new" / f"p{suffix}")
    assert [p.name for p in (tmp_path / "new").iterdir()] == [f"p{suffix}"]


@pytest.mark.parametrize("step", ["write_file", "publish"])
def test_a_failing_disk_leaves_the_old_file_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = save(divide(DATA, "iid", 5, 0), tmp_path / "p.json")
    before = path.read_bytes()

    def fail(to: Path, what: object) -> None:
        to.write_bytes(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(partition_file, step, fail)
    with pytest.raises(OSError, match="no space"):
        save(divide(DATA, "iid", 6, 0), path)
    assert [p.name for p in tmp_path.iterdir()] == ["p.json"]
    assert path.read_bytes() == before


def test_a_saved_npz_needs_no_pickle(tmp_path: Path) -> None:
    path = save(divide(DATA, "iid", 5, 0), tmp_path / "p.npz")
    with np.load(path, allow_pickle=False) as arrays:
        assert all(arrays[name].dtype != object for name in arrays)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("kind", {"kind": "shards"}),
        ("clients", {"clients": 6}),
        ("seed", {"seed": 1}),
        ("test", {"test": "labels"}),
        ("test_share", {"test_share": 0.3}),
        ("pool", {"pool": "all"}),
        ("data", {"data": labelled(2999)}),
    ],
)
def test_a_stale_file_is_refused_and_what_differs_is_named(
    tmp_path: Path, name: str, other: dict[str, Any]
) -> None:
    how = {"data": DATA, "kind": "iid", "clients": 5, "seed": 0}
    path = save(divide(**how), tmp_path / "p.json")  # type: ignore[arg-type]
    wanted = arguments(**(how | other))  # type: ignore[arg-type]
    assert load_partition(path, arguments(**how)).key  # type: ignore[arg-type]
    with pytest.raises(DataError) as caught:
        load_partition(path, wanted)
    assert caught.value.code == "D041"
    assert f"{name}: " in caught.value.why


def test_another_key_is_refused_with_what_the_file_was_made_with(tmp_path: Path) -> None:
    path = save(divide(DATA, "iid", 5, 0), tmp_path / "p.npz")
    with pytest.raises(DataError, match='"clients": 5'):
        load_partition(path, divide(DATA, "iid", 6, 0).key)


def test_arguments_changed_by_hand_are_noticed(tmp_path: Path) -> None:
    path = save(divide(DATA, "iid", 5, 0), tmp_path / "p.json")
    table = json.loads(path.read_text())
    table["arguments"]["seed"] = 9
    path.write_text(json.dumps(table))
    with pytest.raises(DataError, match="changed after it was saved"):
        load_partition(path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("p.json", b"{"),
        ("p.json", b"[1, 2]"),
        ("p.json", b"{}"),
        ("p.json", b"\xff\xfe"),
        ("p.npz", b"not a zip"),
        ("p.npz", b""),
        ("p.json", None),
        ("p.npz", None),
    ],
)
def test_a_file_without_a_partition_is_refused(
    tmp_path: Path, name: str, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as caught:
        load_partition(tmp_path / name)
    assert caught.value.code == "D042"


@pytest.mark.parametrize("suffix", [".json", ".npz"])
def test_a_file_cut_short_anywhere_is_refused(tmp_path: Path, suffix: str) -> None:
    path = save(divide(labelled(50, 2, test=0), "iid", 3, 0), tmp_path / f"p{suffix}")
    whole = path.read_bytes()
    for end in range(0, len(whole), max(1, len(whole) // 20)):
        path.write_bytes(whole[:end])
        with pytest.raises(DataError):
            load_partition(path)


@pytest.mark.row(27, counts="hostile files and names")
def test_an_object_array_is_never_unpickled(tmp_path: Path) -> None:
    np.savez(tmp_path / "p.npz", plain=np.array([{"a": 1}], dtype=object))
    with pytest.raises(DataError) as caught:
        load_partition(tmp_path / "p.npz")
    assert caught.value.code == "D042"


@pytest.mark.parametrize(
    "content",
    [
        {"a": [0, 1, 2], "b": [3, 4]},
        {"data_indices": {"a": {"train": [0, 2], "test": [1]}, "b": {"train": [3, 4]}}},
    ],
)
def test_index_lists_of_other_libraries_are_read(tmp_path: Path, content: Any) -> None:
    (tmp_path / "map.json").write_text(json.dumps(content))
    assert read_indices(tmp_path / "map.json") == {"a": [0, 1, 2], "b": [3, 4]}


def test_a_list_of_lists_is_read_with_numbers_for_names(tmp_path: Path) -> None:
    (tmp_path / "map.json").write_text("[[0, 1], [2]]")
    assert read_indices(tmp_path / "map.json") == {"0": [0, 1], "1": [2]}


@pytest.mark.parametrize("text", ["{", "3", '{"a": [0.5]}', '{"a": 3}', '{"a": ["x"]}'])
def test_what_is_no_index_list_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "map.json").write_text(text)
    with pytest.raises(DataError) as caught:
        read_indices(tmp_path / "map.json")
    assert caught.value.code == "D042"


def test_given_indices_are_held_by_whom_they_were_given() -> None:
    made = from_indices(DATA, {"anna": range(50, 60), "ben": [3, 1, 2]}, test_share=0.3)
    assert made.names == ("anna", "ben")
    held = [torch.cat(pair).sort().values for pair in zip(made.train, made.test, strict=True)]
    assert held[0].tolist() == list(range(50, 60))
    assert held[1].tolist() == [1, 2, 3]


def test_the_key_of_given_indices_follows_from_them() -> None:
    one, two = from_indices(DATA, [[0, 1], [2, 3]]), from_indices(DATA, [[0, 1, 2], [3]])
    assert one.key != two.key
    assert one.key == from_indices(DATA, [[1, 0], [2, 3]]).key


@pytest.mark.parametrize(
    ("lists", "code"), [([[0], [3000]], "D044"), ([[-1]], "D044"), ([[0], []], "D033")]
)
def test_indices_that_do_not_fit_are_refused(lists: list[list[int]], code: str) -> None:
    with pytest.raises(DataError) as caught:
        from_indices(DATA, lists)
    assert caught.value.code == code
